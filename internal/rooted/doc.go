// Package rooted is the only way from the host into trees that an agent can
// write: it seeds a workspace, reads a file of one, walks and measures a tree, and
// removes one.
//
// The engine and the snapshot code import it; it imports the standard library,
// golang.org/x/sys and the vocabulary. Invariant (I-24): whatever an agent puts into
// its tree or moves about in it meanwhile (symlinks, FIFOs, devices, deep or
// unreadable directories, mounts), nothing outside the tree is read, written or
// removed, and nothing is opened that could block.
package rooted

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
)

// absolute refuses paths that depend on a working directory, and the root.
func absolute(op, dir string) (string, error) {
	clean := filepath.Clean(dir)
	if !filepath.IsAbs(dir) || clean == "/" {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "%s is not the absolute path of a tree", holdfast.Quote(dir))
	}
	return clean, nil
}

// fail gives an error of the file system its Kind.
func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *holdfast.Error
	if errors.As(err, &known) {
		return err
	}
	// Most calls are about files that need not be there: the text is made when it is read.
	e := &holdfast.Error{Op: op, Kind: holdfast.KindInternal, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Kind = holdfast.KindNotFound
	case errors.Is(err, fs.ErrPermission):
		e.Kind = holdfast.KindDenied
	case errors.Is(err, fs.ErrExist):
		e.Kind = holdfast.KindConflict
	}
	return e
}
