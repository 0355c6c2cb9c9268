package files

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// fail turns an error of the file system into one with a Kind that names the
// path as the caller spelled it. Errors that have a Kind pass unchanged.
func fail(op, path string, err error) error {
	var known *holdfast.Error
	if errors.As(err, &known) {
		return err
	}
	// The path inside a PathError may be a temporary name, so only the cause is shown.
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	kind, hint := kindOf(err)
	e := holdfast.Errorf(kind, op, "%s: %w", holdfast.Quote(path), err)
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return e
}

func kindOf(err error) (holdfast.Kind, string) {
	var no syscall.Errno
	if !errors.As(err, &no) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return holdfast.KindNotFound, ""
		case errors.Is(err, fs.ErrPermission):
			return holdfast.KindDenied, ""
		case errors.Is(err, fs.ErrExist):
			return holdfast.KindConflict, ""
		}
		return holdfast.KindInternal, ""
	}
	switch no {
	case syscall.ENOENT, syscall.ENOTDIR:
		return holdfast.KindNotFound, ""
	case syscall.EACCES, syscall.EPERM:
		return holdfast.KindDenied, ""
	case syscall.EROFS:
		return holdfast.KindDenied, "this part of the box can only be read: write below the workspace, the home directory or /tmp"
	case syscall.EEXIST, syscall.ENOTEMPTY, syscall.EBUSY, syscall.ETXTBSY:
		return holdfast.KindConflict, ""
	case syscall.EXDEV:
		return holdfast.KindInvalid, "the old and the new path are on different file systems: copy the file and remove the old one"
	case syscall.ELOOP:
		return holdfast.KindInvalid, "at most 40 links are followed, and none of /proc: use Bash for it, as in: readlink -f PATH"
	case syscall.EINVAL, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ENXIO, syscall.EAGAIN:
		return holdfast.KindInvalid, ""
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		return holdfast.KindTooLarge, "free space in the box, or raise its disk limit"
	}
	return holdfast.KindInternal, ""
}
