package branch

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Trees reads the files of checkpoints, except for those that the path rules of the session's box hide. Safe for
// concurrent use. Its methods return not_found for an unknown checkpoint or path, and for a path that no rule lets the
// session read; denied for a path that a rule denies.
type Trees interface {
	// Diff writes the difference between two checkpoints to w. notes says in lines for people which checkpoints were
	// compared, and what the difference leaves out.
	Diff(ctx context.Context, row journal.Row, c holdfast.CompareCheckpoints, w io.Writer) (notes string, err error)
	// ReadFile writes a file of a checkpoint to w; invalid for a directory.
	ReadFile(ctx context.Context, row journal.Row, id holdfast.CheckpointID, name string, w io.Writer) error
	// ListFiles lists a directory of a checkpoint, or one file.
	ListFiles(ctx context.Context, row journal.Row, id holdfast.CheckpointID, name string) (holdfast.FileList, error)
	// PackFiles writes a file of a checkpoint, or a directory with everything in it, to w as a tar archive. Before the
	// first byte it calls begin, and says whether it packs a directory.
	PackFiles(ctx context.Context, row journal.Row, id holdfast.CheckpointID, name string, w io.Writer, begin func(dir bool)) error
}

// Diff writes the difference between two checkpoints of a session to w. The session may have ended. notes says in lines
// for people which checkpoints were compared, and what the difference leaves out.
func (b *Branches) Diff(ctx context.Context, id holdfast.SessionID, c holdfast.CompareCheckpoints, w io.Writer) (notes string, err error) {
	row, err := b.settled(ctx, id)
	if err != nil {
		return "", err
	}
	return b.cfg.Trees.Diff(ctx, row, c, w)
}

// ReadFile writes a file of a checkpoint to w; invalid for a directory.
func (b *Branches) ReadFile(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, name string, w io.Writer) error {
	row, err := b.settled(ctx, id)
	if err != nil {
		return err
	}
	return b.cfg.Trees.ReadFile(ctx, row, at, name, w)
}

// ListFiles lists a directory of a checkpoint, or one file.
func (b *Branches) ListFiles(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, name string) (holdfast.FileList, error) {
	row, err := b.settled(ctx, id)
	if err != nil {
		return holdfast.FileList{}, err
	}
	return b.cfg.Trees.ListFiles(ctx, row, at, name)
}

// RestoreFiles writes a file, a link or the files of a directory of a checkpoint into the session's files through the
// session's box. Other files in such a directory stay. After an error the files are as before. If the workspace is not
// the session's alone, kept is a checkpoint with the files as they were before, and the error is conflict if no such
// checkpoint can be taken.
func (b *Branches) RestoreFiles(ctx context.Context, id holdfast.SessionID, req holdfast.RestoreFiles) (sum holdfast.Copied, kept holdfast.CheckpointID, err error) {
	row, err := b.settled(ctx, id)
	if err != nil {
		return sum, "", err
	}
	to, err := destination(req.Path)
	if err != nil {
		return sum, "", err
	}
	if borrowed, err := b.cfg.Snapshots.Borrowed(ctx, row); err != nil {
		return sum, "", err
	} else if borrowed {
		if kept, err = between(ctx, b, id, "files.restore", b.cfg.Snapshots.Keep); err != nil {
			return sum, "", err
		}
	}
	sum, err = b.putBack(ctx, row, req, to)
	return sum, kept, err
}

// putBack does the restoring for RestoreFiles, which has taken a checkpoint of the present files before if one is
// needed.
func (b *Branches) putBack(ctx context.Context, row journal.Row, req holdfast.RestoreFiles, to holdfast.CopyTo) (sum holdfast.Copied, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	begun, packed := make(chan bool, 1), make(chan error, 1)
	go func() {
		err := b.cfg.Trees.PackFiles(ctx, row, req.At, req.Path, w, func(dir bool) { begun <- dir })
		_ = w.CloseWithError(err)
		packed <- err
	}()
	select {
	case dir := <-begun:
		to.File = !dir
		sum, err = b.cfg.Unpack(ctx, row.ID, to, r)
	case err = <-packed:
		return sum, err
	}
	_ = r.Close()
	cancel()
	// If the files of the checkpoint could not be read, that made Unpack fail: return the cause instead of Unpack's error.
	if perr := <-packed; err != nil && perr != nil && !errors.Is(perr, io.ErrClosedPipe) && !errors.Is(perr, context.Canceled) {
		return sum, perr
	}
	return sum, err
}

// destination returns where RestoreFiles puts the file or directory that a checkpoint has at a path of the workspace or
// home.
func destination(name string) (to holdfast.CopyTo, err error) {
	switch clean := path.Clean(name); {
	case name == "":
		return to, holdfast.Errorf(holdfast.KindInvalid, "files.restore", "the path to restore is empty").WithHint("give . for the whole workspace")
	case clean == "." || clean == "~":
		return holdfast.CopyTo{Path: clean}, nil
	case path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../"):
		return to, holdfast.Errorf(holdfast.KindInvalid, "files.restore", "the path %s lies neither in the workspace nor in the home directory", holdfast.Quote(name)).
			WithHint("give a path relative to the workspace, or one that begins with ~/")
	default:
		// Copy into the parent directory, under the file's name: a symlink that has this name now is replaced, not followed.
		return holdfast.CopyTo{Path: path.Dir(clean), Name: path.Base(clean), Into: true}, nil
	}
}
