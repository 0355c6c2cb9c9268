package journal

import (
	"time"

	"github.com/holdfast-run/holdfast"
)

// FilesChange is the part of a Change that is about checkpoints.
type FilesChange struct {
	// Checkpoint is a checkpoint to store; nil for none. Its session is that of the change, and its id
	// must be new. Packs are the packs that were written for it; a pack that is stored already
	// keeps its number.
	Checkpoint *Checkpoint
	Packs      []Pack
	// Restore marks a scope whose present files are being replaced by those of a checkpoint, or
	// removes the mark; nil does neither.
	Restore *Restore
	// Rewind moves the head of the session's conversation; nil leaves it.
	Rewind *Rewind
	// Hold sets whether somebody holds a checkpoint of the session; nil changes none. A checkpoint that the
	// session does not have in the store before the change is not_found.
	Hold *Hold
}

// Hold is whether somebody holds a stored checkpoint, so that retention never drops it.
type Hold struct {
	Checkpoint holdfast.CheckpointID
	Held       bool
}

// Checkpoint is a checkpoint as it is stored, with the snapshot of its files.
type Checkpoint struct {
	holdfast.Checkpoint
	// Scope is the box id of the scope whose workspace the snapshot holds.
	Scope holdfast.BoxID
	// Packs are the numbers of the packs that hold the snapshot, ascending; it may list packs that
	// hold nothing of it. In a change they are packs that are stored already: the store adds the
	// numbers of FilesChange.Packs. If one of them is stored no longer, the change is a conflict.
	Packs []int64
	// Order rises with each checkpoint that is stored, over all sessions. The store assigns it.
	Order int64
}

// Place returns where the checkpoint is among those of its session.
func (c *Checkpoint) Place() Place { return Place{c.Seq, c.Order} }

// Place is a place among the checkpoints of a session. They are ordered by Seq, those with the same
// Seq by Order. An Order of 0 is the place before all checkpoints of that Seq.
type Place struct{ Seq, Order int64 }

// Pack is a file of the snapshot store. The store assigns Number, from 1, never reused.
type Pack struct {
	Number int64
	// ID is the name of the file, 64 hex digits.
	ID    string
	Bytes int64
	// Unused is the time since which no checkpoint needs the pack; nil while one does.
	Unused *time.Time
}

// Restore is the mark of a scope whose files are being replaced. If the server ends meanwhile, the
// next one finishes the replacement before anything uses the files.
type Restore struct {
	Scope holdfast.BoxID
	// Session and Checkpoint say whose files are put in place; an empty Checkpoint removes the mark.
	// The checkpoint must be stored already, or with the same change. It is kept as long as the mark.
	Session    holdfast.SessionID
	Checkpoint holdfast.CheckpointID
}

// Rewind moves the head of the conversation back to the end of a turn, or to the empty beginning.
type Rewind struct {
	// Branch are the spans of the log that the conversation at the new head consists of, ascending;
	// none for the empty beginning. Exactly the session's checkpoints outside of them become abandoned.
	Branch []Span
	// Completed is the number of completed turns of that conversation. It becomes the row's.
	Completed int64
}

// Span is the events of a log with numbers above After up to Upto.
type Span struct{ After, Upto int64 }

// StoredFiles is the part of a State that a change with Files depends on.
type StoredFiles struct {
	// Taken is true if a checkpoint with the id of the new one is stored, of any session.
	Taken bool
	// Replaced is true if the files of the new checkpoint's scope are being replaced.
	Replaced bool
	// Missing are the numbers of the new checkpoint's Packs that are not stored.
	Missing []int64
	// Target is true if the checkpoint of Restore is stored and belongs to the session of Restore.
	Target bool
	// Holdable is true if the checkpoint of Hold is stored and belongs to the session of the change.
	Holdable bool
}
