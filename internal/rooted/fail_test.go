package rooted

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestKindsOfFailures: an error of the file system gets its kind, and one that the user can end a hint, which names no
// directory: the files may be on any disk.
func TestKindsOfFailures(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind holdfast.Kind
		hint string
	}{
		{fs.ErrNotExist, holdfast.KindNotFound, ""},
		{fs.ErrPermission, holdfast.KindDenied, ""},
		{fs.ErrExist, holdfast.KindConflict, ""},
		{syscall.ENOSPC, holdfast.KindUnavailable, "free space"},
		{syscall.EDQUOT, holdfast.KindUnavailable, "quota"},
		{syscall.EROFS, holdfast.KindDenied, "read-only"},
		{syscall.EIO, holdfast.KindInternal, ""},
	} {
		err := fail("write", &os.PathError{Op: "write", Path: "f", Err: c.err})
		if hint := holdfast.HintOf(err); holdfast.KindOf(err) != c.kind || !strings.Contains(hint, c.hint) || (hint == "") != (c.hint == "") || strings.Contains(hint, "data directory") {
			t.Errorf("%v: %v, hint %q", c.err, holdfast.KindOf(err), hint)
		}
		if again := fail("read", err); !errors.Is(again, err) || fail("read", nil) != nil {
			t.Errorf("%v: %v", c.err, again)
		}
	}
}
