package agents

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestAFullDiskIsNotAnInternalError: a disk that is full while a tar is unpacked is unavailable, with a hint.
func TestAFullDiskIsNotAnInternalError(t *testing.T) {
	err := disk((&source{}).explain(&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}))
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
		t.Error(err)
	}
}
