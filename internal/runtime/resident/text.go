package resident

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

// Valid returns a text with what is not UTF-8 replaced.
func Valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Clip bounds a text in bytes; it says how much was cut.
func Clip(s string, most int) string {
	if s = Valid(s); len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + fmt.Sprintf("\n[cut: %d bytes more]", len(s)-most)
}

// Milliseconds returns a duration as events have it.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Decode reads the data of an agent's state; a state without any leaves the value.
func Decode(s *holdfast.AgentState, op string, v any) error {
	if len(s.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.Data, v); err != nil {
		return holdfast.Errorf(holdfast.KindInternal, op, "agent state %d does not decode: %w", s.Generation, err)
	}
	return nil
}

// Marshal returns a value as JSON. It is for values that always encode.
func Marshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return raw
}
