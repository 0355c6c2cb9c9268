package resident

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

// Valid returns a text in which invalid UTF-8 is replaced by U+FFFD.
func Valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Clip cuts a text to a number of bytes, and appends how many were cut.
func Clip(s string, most int) string {
	if s = Valid(s); len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + fmt.Sprintf("\n[cut: %d bytes more]", len(s)-most)
}

// Milliseconds returns a duration in the unit of events, milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Decode decodes the data of an agent's state into v. If the state has no data, v stays unchanged.
func Decode(s *holdfast.AgentState, op string, v any) error {
	if len(s.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.Data, v); err != nil {
		return holdfast.Errorf(holdfast.KindInternal, op, "the data of agent state %d cannot be decoded: %w", s.Generation, err)
	}
	return nil
}

// Marshal returns a value as JSON. It is only for values whose encoding cannot fail.
func Marshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return raw
}
