package engine

import (
	"context"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// PackTree copies a file, or a directory with all that is in it, to w as a tar archive.
// Relative paths are relative to the workspace; a link to the path is followed.
func (e *Engine) PackTree(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) (sum holdfast.Copied, err error) {
	out := &counted{w: w}
	var first error
	err = e.look(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		if out.n > 0 {
			return first // what was sent cannot be taken back
		}
		sum, first = box.Pack(ctx, wire.PackRequest{Path: path}, out)
		return first
	})
	return sum, err
}

// UnpackTree puts a tar archive into the session's files. An archive that is refused or that
// does not come whole changes nothing. It is durable on return.
func (e *Engine) UnpackTree(ctx context.Context, id holdfast.SessionID, to holdfast.CopyTo, r io.Reader) (sum holdfast.Copied, err error) {
	err = e.withBox(ctx, id, func(ctx context.Context, box *sandbox.Box) (err error) {
		sum, err = box.Unpack(ctx, wire.UnpackRequest{
			Path: to.Path, Name: to.Name, Into: to.Into, File: to.File, MaxBytes: e.cfg.MaxCopy,
		}, r)
		return err
	})
	return sum, err
}

// Import gives a session that was created with a source its first files: those of a tar
// archive, merged with what the agent's version brings. The session takes messages once the
// import is complete. If the import fails, or server or box end before that, it may be done
// again.
func (e *Engine) Import(ctx context.Context, id holdfast.SessionID, r io.Reader) (out holdfast.Imported, err error) {
	if err := e.beginImport(ctx, id); err != nil {
		return out, err
	}
	defer e.endImport(id)
	if out.Copied, err = e.UnpackTree(ctx, id, holdfast.CopyTo{}, r); err != nil {
		return out, err
	}
	if torn := out.Copied.Incomplete; len(torn) > 0 {
		return out, holdfast.Errorf(holdfast.KindConflict, "import", "%d files are missing or torn, the first: %s",
			int64(len(torn))+out.Copied.IncompleteMore, holdfast.Quote(torn[0])).WithHint("import again when nothing changes them")
	}
	start, why, err := e.startCommit(ctx, id)
	if err != nil {
		return out, err
	}
	out.NoStart = why
	done, err := e.commitAt(ctx, id, func(row journal.Row, c *journal.Change) {
		source := *row.Source
		source.Complete, source.Start = true, start
		c.Set = &journal.RowPatch{Source: &source}
		c.Events = []journal.Draft{{Type: holdfast.EventFilesImported, Data: holdfast.FilesImported{
			From: source.From, Files: out.Copied.Files, Bytes: out.Copied.Bytes, Start: start,
		}}}
	})
	out.Session = done.Row.Session
	return out, err
}

// beginImport makes sure that the session waits for an import and that no other one is under
// way.
func (e *Engine) beginImport(ctx context.Context, id holdfast.SessionID) error {
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
		return nil // the unit stays claimed until endImport
	}
	e.disclaim(u)
	return err
}

func (e *Engine) endImport(id holdfast.SessionID) {
	u := e.lock(id)
	u.importing = false
	e.unlock(u)
	e.disclaim(u) // the claim of beginImport
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
