package journal

import (
	"time"

	"github.com/holdfast-run/holdfast"
)

// FilesChange is the part of a Change that concerns checkpoints and the session's files.
type FilesChange struct {
	// Checkpoint is a checkpoint to store; nil for none. It must belong to the session of the change and have
	// a new id. Packs are the packs that were written for it; a pack that is stored already keeps its number.
	Checkpoint *Checkpoint
	Packs      []Pack
	// Restore marks a scope whose present files are being replaced by those of a checkpoint, or
	// removes the mark; nil does neither.
	Restore *Restore
	// Rewind moves the head of the session's conversation back; nil does not move it.
	Rewind *Rewind
	// Hold sets or clears the hold on a checkpoint of the session; nil does neither. The change fails with
	// not_found if the session had no such checkpoint before the change.
	Hold *Hold
}

// Hold says for a stored checkpoint whether somebody holds it: retention never drops a held checkpoint.
type Hold struct {
	Checkpoint holdfast.CheckpointID
	Held       bool
}

// Checkpoint is a checkpoint as it is stored, with the snapshot of its files.
type Checkpoint struct {
	holdfast.Checkpoint
	// Scope identifies the files that the snapshot has, by a box id. The server uses the id of the session's
	// own box, also for a session that shares a box.
	Scope holdfast.BoxID
	// Packs are the numbers of the packs that contain the snapshot, ascending; there may be packs without any
	// part of it among them. In a change, Packs names only packs that are stored already, and the store adds
	// the numbers of FilesChange.Packs. If the store no longer has one of them, the change is a conflict.
	Packs []int64
	// Order rises with each checkpoint that is stored, over all sessions. The store assigns it.
	Order int64
}

// Place returns the position of the checkpoint in the order of its session's checkpoints.
func (c *Checkpoint) Place() Place { return Place{c.Seq, c.Order} }

// Place is a position in the order of a session's checkpoints: by Seq, and with equal Seq by Order. Order 0
// is the position before all checkpoints of that Seq.
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

// Restore is a mark that the files of a scope are being replaced by those of a checkpoint. If the server ends
// meanwhile, the next server finishes the replacement before anything uses the files.
type Restore struct {
	Scope holdfast.BoxID
	// Session and Checkpoint name the checkpoint whose files are put in place; an empty Checkpoint removes the mark.
	// The checkpoint must be stored already, or by the same change. It cannot be dropped while the mark exists.
	Session    holdfast.SessionID
	Checkpoint holdfast.CheckpointID
}

// Rewind moves the head of the conversation back to the end of a turn, or to the empty beginning.
type Rewind struct {
	// Branch are the spans of the log, ascending, that led to the checkpoint to which the rewind goes. That may be after
	// the new head. The session's checkpoints outside of these spans become abandoned, all others not.
	Branch []Span
	// Completed is the number of completed turns of that conversation. It becomes the CompletedTurns of the
	// session's row.
	Completed int64
}

// Span is the events of a log with numbers above After up to Upto.
type Span struct{ After, Upto int64 }

// StoredFiles is what the store already contains that decides whether a change with Files is allowed.
type StoredFiles struct {
	// Taken is true if the id of the new checkpoint is already used, by a checkpoint of any session.
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
