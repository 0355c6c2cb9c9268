package transcript

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"io"

	"github.com/holdfast-run/holdfast"
)

const op = "transcript"

// entry holds what a check needs of a line: its place in the chain of entries, and a sum of its content.
type entry struct {
	uuid, parent string
	kind         string
	// side is true if the entry belongs to a child agent.
	side bool
	sum  [sha256.Size]byte
}

// chained reports whether the entry is part of the conversation. Other entries are bookkeeping,
// which the CLI does not need.
func (e *entry) chained() bool { return e.uuid != "" }

// mostLevels is the deepest nesting of JSON in a line, as in encoding/json.
const mostLevels = 10_000

// parse reads a line token by token, so that it needs no more memory than the line itself: a
// decoded list of small values takes twenty times as much. Two lines with equal values have the
// same sum, whatever their white space and escapes.
func parse(line []byte) (entry, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var e entry
	sum := sha256.New()
	// objects holds for each open JSON value, outermost first, whether it is an object; otherwise it is an array.
	var objects []bool
	var key string
	keyNext := false
	for first := true; first || len(objects) > 0; first = false {
		tok, err := dec.Token()
		if err != nil || first && tok != json.Delim('{') {
			return entry{}, invalid(line)
		}
		addToken(sum, tok)
		switch tok {
		case json.Delim('{'), json.Delim('['):
			keyNext = tok == json.Delim('{')
			if objects = append(objects, keyNext); len(objects) > mostLevels {
				return entry{}, invalid(line)
			}
			continue
		case json.Delim('}'), json.Delim(']'):
			objects = objects[:len(objects)-1]
		default:
			if keyNext {
				keyNext = false
				if name, _ := tok.(string); len(objects) == 1 {
					key = name
				}
				continue
			}
			if len(objects) == 1 {
				e.set(key, tok)
			}
		}
		keyNext = len(objects) > 0 && objects[len(objects)-1]
	}
	if len(bytes.TrimSpace(line[dec.InputOffset():])) > 0 {
		return entry{}, invalid(line)
	}
	sum.Sum(e.sum[:0])
	return e, nil
}

// set stores a field of the line by its exact name: decoding into a struct would accept keys in other
// spellings (upper and lower case), too.
func (e *entry) set(key string, v json.Token) {
	text, _ := v.(string)
	switch key {
	case "uuid":
		e.uuid = text
	case "parentUuid":
		e.parent = text
	case "type":
		e.kind = text
	case "isSidechain":
		e.side, _ = v.(bool)
	}
}

// addToken hashes a token with its kind and length, so that different sequences of
// tokens never hash as the same bytes.
func addToken(h hash.Hash, tok json.Token) {
	kind, text := byte(0), ""
	switch v := tok.(type) {
	case json.Delim:
		kind = byte(v)
	case string:
		kind, text = '"', v
	case json.Number:
		kind, text = '0', string(v)
	case bool:
		if kind = 'f'; v {
			kind = 't'
		}
	case nil:
		kind = 'n'
	}
	var head [9]byte
	head[0] = kind
	binary.LittleEndian.PutUint64(head[1:], uint64(len(text)))
	_, _ = h.Write(head[:])
	_, _ = io.WriteString(h, text)
}

func invalid(line []byte) error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "a line of the transcript is not a valid entry: %s", holdfast.Quote(string(line)))
}
