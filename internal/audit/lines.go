package audit

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// version is the version of the export's format.
const version = 1

// header is the first line of an export.
type header struct {
	Audit     int    `json:"audit"`
	PublicKey string `json:"public_key"`
	// First is the number of the first record, Prev the hash of the record before it.
	First int64  `json:"first"`
	Prev  string `json:"prev"`
}

// headLine is the line of a signed head. It follows the record that it names.
type headLine struct {
	Head      int64  `json:"head"`
	Hash      string `json:"hash"`
	Time      string `json:"time"`
	Signature string `json:"signature"`
}

// endLine is the last line of an export; it signs the whole range.
type endLine struct {
	End       int64  `json:"end"`
	Hash      string `json:"hash"`
	First     int64  `json:"first"`
	Prev      string `json:"prev"`
	Time      string `json:"time"`
	Signature string `json:"signature"`
}

// brokenLine is the last line of an export in which the server itself found damage at record N.
type brokenLine struct {
	Broken string `json:"broken"`
	N      int64  `json:"n"`
}

// Each line that is not a record has exactly one valid form: the JSON encoding of its type.
func (h headLine) line() []byte { return encode(h, nil) }
func (e endLine) line() []byte  { return encode(e, nil) }
func (h header) line() []byte   { return encode(h, nil) }

func (h Head) line() headLine {
	return headLine{Head: h.N, Hash: h.Hash.String(), Time: h.Time.UTC().Format(timeFormat), Signature: hex.EncodeToString(h.Signature)}
}

func (e ending) line() endLine {
	return endLine{
		End: e.N, Hash: e.Hash.String(), First: e.first.N + 1, Prev: e.first.Hash.String(),
		Time: e.Time.UTC().Format(timeFormat), Signature: hex.EncodeToString(e.Signature),
	}
}

// fields are the fields of a record that the verifier checks.
type fields struct {
	N    int64           `json:"n"`
	Time string          `json:"time"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
