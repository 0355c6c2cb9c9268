package direct

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// PackTree copies a file, or a directory with all that can be copied of it, to a writer as a tar archive; sum lists what
// was left out. Relative paths are relative to the workspace; if the path is a symbolic link, the link is followed.
func (w *Work) PackTree(ctx context.Context, id holdfast.SessionID, path string, to io.Writer) (sum holdfast.Copied, err error) {
	out := &counted{w: to}
	var first error
	err = w.look(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		if out.n > 0 {
			return first // a part of the output was sent already, so the copy cannot be repeated
		}
		sum, first = box.Pack(ctx, wire.PackRequest{Path: path}, out)
		return first
	})
	return sum, err
}

// UnpackTree copies the content of a tar archive into the session's files. An archive that is
// refused or incomplete changes nothing. The files are durable when it returns.
func (w *Work) UnpackTree(ctx context.Context, id holdfast.SessionID, to holdfast.CopyTo, r io.Reader) (sum holdfast.Copied, err error) {
	err = w.sessions.InBox(ctx, id, func(ctx context.Context, box *sandbox.Box) (err error) {
		sum, err = box.Unpack(ctx, wire.UnpackRequest{
			Path: to.Path, Name: to.Name, Into: to.Into, File: to.File, MaxBytes: w.maxCopy,
		}, r)
		return err
	})
	return sum, err
}

// Import gives a session that was created with a source its first files: it adds the files of a tar
// archive to those of the agent version. The session accepts messages once the import is complete.
// If the import fails, or the server or the box ends before that, it can be repeated.
func (w *Work) Import(ctx context.Context, id holdfast.SessionID, r io.Reader) (out holdfast.Imported, err error) {
	end, err := w.beginImport(ctx, id)
	if err != nil {
		return out, err
	}
	defer end()
	if out.Copied, err = w.UnpackTree(ctx, id, holdfast.CopyTo{}, r); err != nil {
		return out, err
	}
	if torn := out.Copied.Incomplete; len(torn) > 0 {
		return out, holdfast.Errorf(holdfast.KindConflict, "import", "%d imported files are missing or incomplete, the first: %s",
			int64(len(torn))+out.Copied.IncompleteMore, holdfast.Quote(torn[0])).WithHint("import the files again when nothing changes them")
	}
	start, why, err := w.startCommit(ctx, id)
	if err != nil {
		return out, err
	}
	out.NoStart = why
	out.Session, err = w.sessions.Imported(ctx, id, out.Copied, start)
	return out, err
}

// beginImport checks that a session waits for its first files, and keeps other imports out until
// end is called.
func (w *Work) beginImport(ctx context.Context, id holdfast.SessionID) (end func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := w.sessions.Session(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case s.Status == holdfast.StatusEnded:
		return nil, holdfast.Errorf(holdfast.KindGone, "import", "session %s has ended", id).
			WithHint("create a session for the files: holdfast session create --from DIR")
	case s.Source == nil:
		return nil, holdfast.Errorf(holdfast.KindConflict, "import", "session %s was not created for an import", id).
			WithHint("copy files into the session: holdfast cp -r DIR %s:", id)
	case s.Source.Complete:
		return nil, holdfast.Errorf(holdfast.KindConflict, "import", "session %s already has its imported files, from %s", id, holdfast.Quote(s.Source.From)).
			WithHint("copy more files into the session: holdfast cp -r DIR %s:", id)
	case w.importing[id]:
		return nil, holdfast.Errorf(holdfast.KindConflict, "import", "another import into session %s is under way", id).
			WithHint("wait for the end of the other import")
	}
	w.importing[id] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.importing, id)
	}, nil
}
