// Package rooted is the only way from the host into trees that an agent can write: it seeds a
// workspace, reads one of its files, walks and measures a tree, writes entries of one, and removes one.
//
// The engine and the snapshot code import it; it imports the standard library,
// golang.org/x/sys and the vocabulary. Invariant (I-24): whatever an agent puts into its tree or
// moves there meanwhile (symlinks, FIFOs, devices, deep or unreadable directories, mounts), only
// files in the tree are read, written or removed, and no file is opened whose opening could
// block.
package rooted

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// absolute returns the clean path dir; it returns an error for a relative path and for the root.
func absolute(op, dir string) (string, error) {
	clean := filepath.Clean(dir)
	if !filepath.IsAbs(dir) || clean == "/" {
		return "", holdfast.Errorf(holdfast.KindInvalid, op, "%s is not the absolute path of a directory below /", holdfast.Quote(dir))
	}
	return clean, nil
}

// fail turns an error of the file system into one with a Kind.
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
