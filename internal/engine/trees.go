package engine

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Importing implements direct.Sessions.
func (b byHand) Importing(ctx context.Context, id holdfast.SessionID) (end func(), err error) {
	e := b.e
	u := e.lock(id)
	defer u.mu.Unlock()
	row, err := e.liveRow(ctx, id)
	switch {
	case err != nil:
	case row.Source == nil:
		err = holdfast.Errorf(holdfast.KindConflict, "import", "session %s was not created for an import", id).
			WithHint("copy files into it: holdfast cp -r DIR %s:", id)
	case row.Source.Complete:
		err = holdfast.Errorf(holdfast.KindConflict, "import", "session %s has its files already, from %s", id, holdfast.Quote(row.Source.From)).
			WithHint("copy more files into it: holdfast cp -r DIR %s:", id)
	case u.importing:
		err = holdfast.Errorf(holdfast.KindConflict, "import", "another import into session %s is under way", id).
			WithHint("wait for its end")
	default:
		u.importing = true
		return func() { e.endImport(u) }, nil // the unit stays claimed until then
	}
	e.disclaim(u)
	return nil, err
}

func (e *Engine) endImport(u *unit) {
	u.mu.Lock()
	u.importing = false
	u.mu.Unlock()
	e.disclaim(u)
}

// Imported implements direct.Sessions.
func (b byHand) Imported(ctx context.Context, id holdfast.SessionID, files holdfast.Copied, start string) (holdfast.Session, error) {
	done, err := b.e.cfg.Journal.CommitAt(ctx, id, func(row journal.Row, c *journal.Change) error {
		source := *row.Source
		source.Complete, source.Start = true, start
		c.Set = &journal.RowPatch{Source: &source}
		c.Events = []journal.Draft{{Type: holdfast.EventFilesImported, Data: holdfast.FilesImported{
			From: source.From, Files: files.Files, Bytes: files.Bytes, Start: start,
		}}}
		return nil
	})
	return done.Row.Session, err
}

// maxSource is the longest name of a source, in bytes.
const maxSource = 5000

func checkSource(s string) error {
	if len(s) > maxSource || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return holdfast.Errorf(holdfast.KindInvalid, "session.create", "the source %s is not a text of at most %d bytes", holdfast.Quote(s), maxSource)
	}
	return nil
}

// imported refuses a message to a session whose first files are not all there.
func imported(s holdfast.Session) error {
	if s.Source == nil || s.Source.Complete {
		return nil
	}
	return holdfast.Errorf(holdfast.KindConflict, "send", "the import of its files from %s is incomplete", holdfast.Quote(s.Source.From)).
		WithHint("run the command that created the session once more, or: holdfast session delete %s --purge", s.ID)
}
