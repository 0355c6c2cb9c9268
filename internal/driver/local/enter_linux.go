package local

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// procFD returns a path that leads to an open file of this process.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openNamespace opens a namespace of a process, which is identified by its pid and its start.
func openNamespace(pid int, start uint64, kind string) (*os.File, error) {
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/" + kind)
	if err != nil {
		return nil, err
	}
	// The pid may have been reused before the file was opened, but not since.
	if now, err := boxproc.StartTime(pid); err != nil || now != start {
		_ = ns.Close()
		return nil, errors.Join(err, unix.ESRCH)
	}
	return ns, nil
}

// oneID maps one host id to an id of a user namespace.
func oneID(inside, host uint32) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: int(inside), HostID: int(host), Size: 1}}
}

// inMountNamespace runs fn on a new thread in the mount namespace of a process, with that
// namespace's root. The thread is not used again: it ends with its goroutine.
func inMountNamespace(pid int, start uint64, fn func() error) error {
	ns, err := openNamespace(pid, start, "mnt")
	if err != nil {
		return err
	}
	defer ns.Close()
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
