package transcript

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

const op = "transcript"

// entry is what counts of a line: its place in the chain, and what it says.
type entry struct {
	uuid, parent string
	kind         string
	// side: it belongs to a child agent.
	side bool
	sum  [sha256.Size]byte
}

// chained reports whether the conversation runs through it. The rest is bookkeeping,
// which the CLI does without.
func (e *entry) chained() bool { return e.uuid != "" }

// parse reads a line. Two that say the same have the same sum, however they are
// written.
func parse(line []byte) (entry, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		return entry{}, invalid(line)
	}
	if rest := line[dec.InputOffset():]; fields == nil || len(bytes.TrimSpace(rest)) > 0 {
		return entry{}, invalid(line)
	}
	e := entry{}
	// By their exact names: a decoder into a struct takes other spellings as well.
	e.uuid, _ = fields["uuid"].(string)
	e.parent, _ = fields["parentUuid"].(string)
	e.kind, _ = fields["type"].(string)
	e.side, _ = fields["isSidechain"].(bool)
	if !e.chained() {
		return e, nil
	}
	same, err := json.Marshal(fields)
	if err != nil {
		return entry{}, invalid(line)
	}
	e.sum = sha256.Sum256(same)
	return e, nil
}

func invalid(line []byte) error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "a line is no entry: %s", holdfast.Quote(string(line)))
}
