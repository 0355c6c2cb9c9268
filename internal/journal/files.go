package journal

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// check refuses a FilesChange that every store must refuse, whatever the store contains. session is the session
// of the change.
func (f *FilesChange) check(session holdfast.SessionID) error {
	if f == nil {
		return nil
	}
	if f.Checkpoint != nil {
		if err := f.Checkpoint.check(session); err != nil {
			return err
		}
	} else if len(f.Packs) > 0 {
		return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the change has %d packs, but no checkpoint that needs them", len(f.Packs))
	}
	if err := CheckPacks(f.Packs); err != nil {
		return err
	}
	if err := f.Restore.check(); err != nil {
		return err
	}
	if f.Hold != nil {
		if _, err := holdfast.Parse[holdfast.CheckpointID](string(f.Hold.Checkpoint)); err != nil {
			return err
		}
	}
	return f.Rewind.check()
}

// check refuses a checkpoint that is incomplete or has an invalid field.
func (c *Checkpoint) check(session holdfast.SessionID) error {
	id, err := holdfast.Parse[holdfast.CheckpointID](string(c.ID))
	if err != nil {
		return err
	}
	if _, err := holdfast.Parse[holdfast.BoxID](string(c.Scope)); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindInvalid, opCommit, "checkpoint "+holdfast.Quote(string(c.ID))+" "+format, args...)
	}
	if c.Turn != "" {
		turn, err := holdfast.Parse[holdfast.TurnID](string(c.Turn))
		if err != nil {
			return err
		}
		if turn != c.Turn {
			return bad("names turn %s, which is not in lower case", holdfast.Quote(string(c.Turn)))
		}
	}
	switch {
	case id != c.ID:
		return bad("has an id that is not in lower case")
	case c.Session != session:
		return bad("belongs to session %s, but the change is for session %s", holdfast.Quote(string(c.Session)), session)
	case !slices.Contains(holdfast.Words[holdfast.CheckpointReason](), c.Reason):
		return bad("has the unknown reason %s", holdfast.Quote(string(c.Reason)))
	case c.Workspace != "" && !hash(c.Workspace), c.Home != "" && !hash(c.Home):
		return bad("has the trees %s and %s, which are not 64 hex digits each", holdfast.Quote(c.Workspace), holdfast.Quote(c.Home))
	case c.Held:
		return bad("is held, but a checkpoint can only be held once it is stored")
	case c.Seq < 1 || c.Number < 0 || c.Files < 0 || c.Bytes < 0:
		return bad("has a number that is too small: event #%d, turn %d, %d files, %d bytes", c.Seq, c.Number, c.Files, c.Bytes)
	}
	return CheckPackNumbers(c.Packs)
}

// check refuses a Restore whose scope is not a valid id, or which names a checkpoint by invalid ids.
func (r *Restore) check() error {
	if r == nil {
		return nil
	}
	if _, err := holdfast.Parse[holdfast.BoxID](string(r.Scope)); err != nil {
		return err
	}
	if r.Checkpoint == "" {
		return nil
	}
	if _, err := holdfast.Parse[holdfast.SessionID](string(r.Session)); err != nil {
		return err
	}
	_, err := holdfast.Parse[holdfast.CheckpointID](string(r.Checkpoint))
	return err
}

// check refuses a Rewind whose spans are empty, overlap or are out of order.
func (r *Rewind) check() error {
	if r == nil {
		return nil
	}
	if r.Completed < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, opCommit, "a rewind cannot leave %d completed turns: the number is negative", r.Completed)
	}
	end := int64(0)
	for _, s := range r.Branch {
		if s.After < end || s.Upto <= s.After {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "in the rewind, the span of events after #%d up to #%d is empty or begins before event #%d", s.After, s.Upto, end)
		}
		end = s.Upto
	}
	return nil
}

// CheckPacks returns invalid for packs that are incomplete, or that have a field which the store
// assigns.
func CheckPacks(list []Pack) error {
	seen := make(map[string]bool, len(list))
	for _, p := range list {
		if !hash(p.ID) || p.Bytes < 1 || p.Number != 0 || p.Unused != nil || seen[p.ID] {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit,
				"pack %s of %d bytes cannot be a new pack: it needs an id of 64 hex digits, a size and no number, and must be in the list only once", holdfast.Quote(p.ID), p.Bytes)
		}
		seen[p.ID] = true
	}
	return nil
}

// CheckPackNumbers returns invalid for a list of pack numbers that are not positive and ascending.
func CheckPackNumbers(list []int64) error {
	last := int64(0)
	for _, n := range list {
		if n <= last {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the list of pack numbers is not ascending: number %d follows number %d", n, last)
		}
		last = n
	}
	return nil
}

// hash reports whether s is 64 lower-case hex digits.
func hash(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// planFiles checks whether the FilesChange is allowed with the stored files in s and the session's new row.
// After a rewind it sets the row's number of completed turns.
func (c *Encoded) planFiles(s State, row *Row) error {
	f := c.Files
	if f == nil {
		return nil
	}
	if cp := f.Checkpoint; cp != nil {
		switch {
		case s.Files.Taken:
			return conflict("checkpoint %s exists already", cp.ID)
		case s.Files.Replaced && f.Restore == nil:
			return conflict("the files of box %s are being replaced, so checkpoint %s would contain only a part of them", cp.Scope, cp.ID)
		case len(s.Files.Missing) > 0:
			return conflict("checkpoint %s needs pack number %d, which is not stored any more", cp.ID, s.Files.Missing[0])
		case cp.Seq > row.LastSeq || cp.Number > row.LastTurn:
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "checkpoint %s is at event #%d and turn %d, but the session ends at event #%d and turn %d",
				cp.ID, cp.Seq, cp.Number, row.LastSeq, row.LastTurn)
		}
	}
	if r := f.Restore; r != nil && r.Checkpoint != "" && !s.Files.Target && !f.takes(r) {
		return NoCheckpoint(r.Session, r.Checkpoint)
	}
	if f.Hold != nil && !s.Files.Holdable {
		return NoCheckpoint(c.Session, f.Hold.Checkpoint)
	}
	if r := f.Rewind; r != nil {
		if n := len(r.Branch); n > 0 && r.Branch[n-1].Upto > row.LastSeq {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the rewind of session %s refers to event #%d, but the log ends at #%d",
				c.Session, r.Branch[n-1].Upto, row.LastSeq)
		}
		if r.Completed > row.LastTurn {
			return holdfast.Errorf(holdfast.KindInvalid, opCommit, "the rewind of session %s leaves %d completed turns, but the session has only %d turns",
				c.Session, r.Completed, row.LastTurn)
		}
		row.CompletedTurns = r.Completed
	}
	return nil
}

// takes reports whether the change itself stores the checkpoint that r names.
func (f *FilesChange) takes(r *Restore) bool {
	return f.Checkpoint != nil && f.Checkpoint.ID == r.Checkpoint && f.Checkpoint.Session == r.Session
}

// NoCheckpoint returns the not_found error for a checkpoint that does not exist.
func NoCheckpoint(session holdfast.SessionID, id holdfast.CheckpointID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "session %s has no checkpoint %s", session, holdfast.Quote(string(id))).
		WithHint("holdfast session checkpoints %s shows the checkpoints", session)
}
