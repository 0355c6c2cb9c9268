// Package coded has what describes checkpoints outside of the database: their records in packs, and the places in lists of them
// that the API hands out.
//
// Package snapshot uses it. It imports the journal. Invariant: what it wrote once, it reads for ever (docs/format/snapshot.md).
package coded

import (
	"encoding/base64"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Record describes a checkpoint in its pack, so that a database can be made again from the packs alone.
type Record struct {
	Version int            `json:"version"`
	Scope   holdfast.BoxID `json:"scope"`
	holdfast.Checkpoint
}

// NewRecord returns the record of a checkpoint as a pack has it.
func NewRecord(cp journal.Checkpoint) ([]byte, error) {
	return json.Marshal(Record{Version: 1, Scope: cp.Scope, Checkpoint: cp.Checkpoint})
}

// ReadRecord reads what NewRecord returned.
func ReadRecord(data []byte) (r Record, err error) {
	if err = json.Unmarshal(data, &r); err == nil && r.Version != 1 {
		err = holdfast.Errorf(holdfast.KindInvalid, "snapshot", "the snapshot record has version %d, but this program reads version 1 only", r.Version)
	}
	return r, err
}

// Recorded returns the checkpoint that a record in a pack describes; false for a record of another kind.
func Recorded(data []byte) (holdfast.CheckpointID, bool) {
	r, err := ReadRecord(data)
	return r.ID, err == nil && r.ID != ""
}

// Failed returns a checkpoint in the form in which lists show it if its snapshot failed: marked as failed, without files.
func Failed(cp holdfast.Checkpoint) holdfast.Checkpoint {
	cp.Failed, cp.Fuzzy, cp.Held = true, false, false
	cp.Workspace, cp.Home, cp.Files, cp.Bytes = "", "", 0, 0
	return cp
}

// The default and the largest number of checkpoints on a page.
const (
	PageSize = 50
	MostPage = 1000
)

// Limit returns how many checkpoints a page has at most if a caller asks for n; n = 0 means PageSize. It returns
// invalid if n is negative or above MostPage.
func Limit(n int) (int, error) {
	switch {
	case n < 0 || n > MostPage:
		return 0, holdfast.Errorf(holdfast.KindInvalid, "checkpoints", "a page cannot have %d checkpoints", n).WithHint("ask for 1 to %d checkpoints", MostPage)
	case n == 0:
		n = PageSize
	}
	return n, nil
}

// Cursor says where the next page of a list of checkpoints begins, which merges two lists, newest first: stored
// checkpoints from before Place follow, and the ends of turns with numbers below Turn.
type Cursor struct {
	Place journal.Place `json:"p"`
	Turn  int64         `json:"t"`
}

// String returns the cursor as the API has it.
func (c Cursor) String() string {
	b, _ := json.Marshal(c) // cannot fail: a Cursor has only numbers
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads what String returned for a session whose newest turn is last; an empty text is the beginning of the list.
func ParseCursor(text string, last int64) (c Cursor, err error) {
	if text == "" {
		return Cursor{Turn: last + 1}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.Turn < 0 || c.Turn > last+1 || c.Place.Seq < 0 || c.Place.Order < 0 || c.String() != text {
		return c, holdfast.Errorf(holdfast.KindInvalid, "checkpoints", "%s is not a cursor of this list of checkpoints", holdfast.Quote(text)).
			WithHint("use the value of next in the page before, or leave the cursor out")
	}
	return c, nil
}
