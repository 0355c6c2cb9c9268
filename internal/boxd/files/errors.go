package files

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// fail turns an error of the file system into an error that has a Kind and names path, the path as
// the request spells it. If err has a Kind already, fail returns err unchanged.
func fail(op, path string, err error) error {
	var known *holdfast.Error
	if errors.As(err, &known) {
		return err
	}
	// The path in a PathError can be that of a temporary file, so the message has only the cause.
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
		return holdfast.KindInvalid, "file tools follow at most 40 links and no link of /proc; find out with Bash where the path leads, as in: readlink -f PATH"
	case syscall.EINVAL, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ENXIO, syscall.EAGAIN:
		return holdfast.KindInvalid, ""
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG:
		return holdfast.KindTooLarge, "free space in the box, or raise its disk limit"
	}
	return holdfast.KindInternal, ""
}
