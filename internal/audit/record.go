package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Hash is the SHA-256 hash of a record's body.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash parses a hash of 64 lower-case hex digits; false for anything else.
func ParseHash(s string) (Hash, bool) {
	var h Hash
	n, err := hex.Decode(h[:], []byte(s[:min(len(s), 2*len(h))]))
	return h, err == nil && n == len(h) && h.String() == s
}

// Link is a record's place and hash. A link with number 0 and no hash is the place before the first
// record of its chain.
type Link struct {
	Place
	Hash Hash
}

// Entry is the content of a record that has no number and hash yet.
type Entry struct {
	Time    time.Time
	Type    holdfast.EventType
	Session holdfast.SessionID
	Seq     int64
	Turn    holdfast.TurnID
	// By is the caller who asked for the change: "owner", or "key" and the key's id. It is empty
	// for the server itself.
	By string
	// Data is the recorded data of the event, as JSON.
	Data []byte
}

// Record is an entry with its place in the chain. Body is the part of its line in an export that is
// hashed: all before the field hash.
type Record struct {
	Link
	Body []byte
}

// timeFormat is the format of every time in the chain: UTC, with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z"

// Next returns the record that follows record l in its chain, made from an entry.
func (l Link) Next(e Entry) Record {
	b := make([]byte, 0, 320+len(e.Data))
	b = l.prefix(b)
	b = append(b, `,"time":"`...)
	b = e.Time.UTC().AppendFormat(b, timeFormat)
	b = append(b, `","type":`...)
	b = appendString(b, string(e.Type))
	if e.Session != "" {
		b = append(b, `,"session_id":`...)
		b = appendString(b, string(e.Session))
	}
	if e.Seq != 0 {
		b = append(b, `,"seq":`...)
		b = strconv.AppendInt(b, e.Seq, 10)
	}
	if e.Turn != "" {
		b = append(b, `,"turn_id":`...)
		b = appendString(b, string(e.Turn))
	}
	if e.By != "" {
		b = append(b, `,"by":`...)
		b = appendString(b, e.By)
	}
	b = append(b, `,"data":`...)
	b = append(b, oneLine(bounded(e.Data))...)
	return Record{Link: Link{Place: l.next(), Hash: sha256.Sum256(b)}, Body: b}
}

// next returns the place after l in the same chain.
func (l Link) next() Place { return Place{Chain: l.Chain, N: l.N + 1} }

// prefix appends the beginning of the body of the record after l: its place and the hash of l.
// Records of chain 0 do not contain its number.
func (l Link) prefix(b []byte) []byte {
	b = append(b, '{')
	if l.Chain != 0 {
		b = append(b, `"chain":`...)
		b = strconv.AppendInt(b, l.Chain, 10)
		b = append(b, ',')
	}
	b = append(b, `"n":`...)
	b = strconv.AppendInt(b, l.N+1, 10)
	b = append(b, `,"prev":"`...)
	b = hex.AppendEncode(b, l.Hash[:])
	return append(b, '"')
}

// hashField is the text between the body of a record's line and its hash.
const hashField = `,"hash":"`

// line appends the record's line in an export, without the line break.
func (r Record) line(b []byte) []byte {
	b = append(b, r.Body...)
	b = append(b, hashField...)
	b = hex.AppendEncode(b, r.Hash[:])
	return append(b, `"}`...)
}

// cut splits a record's line into its body and its hash; ok is false if it has no hash.
func cut(line []byte) (body []byte, h Hash, ok bool) {
	const tail = len(hashField) + 2*len(h) + len(`"}`)
	if len(line) < tail {
		return nil, h, false
	}
	body, rest := line[:len(line)-tail], line[len(line)-tail:]
	if string(rest[:len(hashField)]) != hashField || string(rest[len(rest)-2:]) != `"}` {
		return nil, h, false
	}
	h, ok = ParseHash(string(rest[len(hashField) : len(rest)-2]))
	return body, h, ok
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			q, err := json.Marshal(s)
			if err != nil {
				q = []byte(`""`) // a string always marshals
			}
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// oneLine returns JSON without line breaks, which JSON has only as white space between values.
func oneLine(data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 {
		return data
	}
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return []byte("null")
	}
	return b.Bytes()
}

const (
	// fieldMax is the largest field of a payload, in bytes, that a record contains as it is,
	// dataMax the largest payload.
	fieldMax = 4 << 10
	dataMax  = 64 << 10
)

// bounded replaces large fields of a payload by their hashes, and a payload that is still too large
// as a whole.
func bounded(data []byte) []byte { return Shorten(data, fieldMax, dataMax) }

// Shorten limits the size of a JSON value. A value of up to field bytes is returned as it is. In a
// larger object each field of more than field bytes is replaced by {"sha256":…,"bytes":…}; if
// the result has more than most bytes, or the value is not an object, all of it is replaced so.
func Shorten(data []byte, field, most int) []byte {
	if len(data) <= field {
		return data
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(data, &fields) != nil {
		return digest(data)
	}
	for k, v := range fields {
		if len(v) > field {
			fields[k] = digest(v)
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(fields) != nil || b.Len() > most {
		return digest(data)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func digest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return []byte(`{"sha256":"` + hex.EncodeToString(sum[:]) + `","bytes":` + strconv.Itoa(len(data)) + `}`)
}
