package local

import (
	"errors"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// procFD is the path of an open file of this process.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// inMountNamespace runs fn on a new thread in the mount namespace of a process, with
// that namespace's root. The thread is never used again: it ends with its goroutine.
func inMountNamespace(pid int, start uint64, fn func() error) error {
	ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	if err != nil {
		return err
	}
	defer ns.Close()
	// The pid may have been reused before the file was opened, not after.
	if now, err := boxproc.StartTime(pid); err != nil || now != start {
		return errors.Join(err, unix.ESRCH)
	}
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return err
		}
		return fn()
	})
}

// onOwnThread runs fn on a thread that runs nothing else of the server, before or
// afterwards. It is never the first thread: /proc/self shows that one's mounts, and the
// Go runtime cannot end it.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine keeps the thread, the next one has to run elsewhere.
			done <- onOwnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- fn()
		// Still locked: the thread ends here.
	}()
	return <-done
}
