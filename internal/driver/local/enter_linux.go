package local

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// procFD returns a path that leads to an open file of this process.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// inMountNamespace runs fn on a new thread in the mount namespace of a process, with that
// namespace's root. The thread is not used again: it ends with its goroutine.
func inMountNamespace(pid int, start uint64, fn func() error) error {
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	if err != nil {
		return err
	}
	defer ns.Close()
	// The pid may have been reused before the file was opened, but not since.
	if now, err := boxproc.StartTime(pid); err != nil || now != start {
		return errors.Join(err, unix.ESRCH)
	}
	return boxproc.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return err
		}
		return fn()
	})
}
