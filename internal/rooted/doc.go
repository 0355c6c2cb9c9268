// Package rooted lets the server use trees that an agent can write: it seeds a workspace, reads files of a tree, walks
// and measures a tree, writes entries into a tree, and removes a tree.
//
// Packages of the server that touch such trees import it; it imports internal/durable, golang.org/x/sys and the
// vocabulary. Invariant (I-24): whatever an agent puts into its tree or moves there meanwhile (symlinks, FIFOs,
// devices, deep or unreadable directories, mounts), only files in the tree are read, written or removed, and no file is
// opened whose opening could block.
package rooted

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// absolute returns the path dir in its clean form. It returns invalid for a relative path and for the path "/".
func absolute(op, dir string) (string, error) {
	clean := filepath.Clean(dir)
	if !filepath.IsAbs(dir) || clean == "/" {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "%s is not the absolute path of a directory below /", holdfast.Quote(dir))
	}
	return clean, nil
}

// Absent reports whether an error of the file system says that a path does not exist. Any other error, such as EIO,
// EACCES or ENFILE, leaves open what is at the path.
func Absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// fail turns an error of the file system into a *holdfast.Error, which has a Kind. It returns an error that has a
// *holdfast.Error in its chain as it is.
func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *holdfast.Error
	if errors.As(err, &known) {
		return err
	}
	// Callers often ask for files that may be missing, so the text of the error is made only when somebody reads it.
	e := &holdfast.Error{Op: op, Kind: holdfast.KindInternal, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Kind = holdfast.KindNotFound
	case errors.Is(err, fs.ErrPermission):
		e.Kind = holdfast.KindDenied
	case errors.Is(err, fs.ErrExist):
		e.Kind = holdfast.KindConflict
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Kind, e.Hint = holdfast.KindUnavailable, "free space on the disk that has these files, or raise its quota: df -h"
	case errors.Is(err, syscall.EROFS):
		e.Kind, e.Hint = holdfast.KindDenied, "the disk that has these files is mounted read-only: mount it for writing"
	}
	return e
}
