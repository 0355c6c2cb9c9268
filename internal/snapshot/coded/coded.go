// Package coded has the forms of checkpoints outside of the database: their records in packs, and the cursors of the lists of
// checkpoints in the API.
//
// Package snapshot uses it, and internal/app for the records that the collector reads. It imports the journal.
// Invariant: each later release reads the records that this one writes (docs/format/snapshot.md).
package coded

import (
	"encoding/base64"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Record describes a checkpoint. Packs contain records, so that the database can be made again from the packs alone.
type Record struct {
	Version int            `json:"version"`
	Scope   holdfast.BoxID `json:"scope"`
	holdfast.Checkpoint
}

// NewRecord returns the record of a checkpoint as a pack has it.
func NewRecord(cp journal.Checkpoint) ([]byte, error) {
	return json.Marshal(Record{Version: 1, Scope: cp.Scope, Checkpoint: cp.Checkpoint})
}

// ReadRecord decodes a record that NewRecord returned; invalid for another version than 1.
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

// Failed returns a checkpoint in the form that lists have for one whose snapshot failed: marked as failed, and without
// files.
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

// Cursor says where the next page of a list of checkpoints begins. The list merges two lists, newest first: of the
// stored checkpoints, those after Place follow; of the ends of turns, those of turns with numbers below Turn.
type Cursor struct {
	Place journal.Place `json:"p"`
	Turn  int64         `json:"t"`
}

// String returns the cursor as the API has it.
func (c Cursor) String() string {
	b, _ := json.Marshal(c) // cannot fail: a Cursor has only numbers
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads what Cursor.String returned. last is the number of the session's newest turn: a cursor for later
// turns is invalid. An empty text is the beginning of the list.
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
