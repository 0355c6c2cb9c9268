package resident

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Moved is the reason why an agent cannot continue its stored conversation: it worked in a box and now runs
// on the host, or the other way around.
const Moved = "the session's trust has changed, and with it the paths of its files"

// Valid returns a text in which invalid UTF-8 is replaced by U+FFFD.
func Valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Decode decodes the data of an agent's state into v. If the state has no data, v stays unchanged.
func Decode(s *holdfast.AgentState, op string, v any) error {
	if len(s.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.Data, v); err != nil {
		return holdfast.Errorf(holdfast.KindInternal, op, "the data of the agent's saved state number %d cannot be decoded: %w", s.Generation, err)
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
