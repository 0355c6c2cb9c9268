package local

import (
	"errors"
	"os"
	"runtime"
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

// onOwnThread runs fn on a thread that the server uses for nothing else.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go offFirstThread(func() { done <- fn() }) // still locked: the thread ends with the goroutine
	return <-done
}

// offFirstThread locks its goroutine to a thread that is not the first of the process, and runs
// fn, which may unlock it. The first thread must not be used: /proc/self shows its mounts and
// cgroups as those of the process, and the Go runtime cannot end it.
func offFirstThread(fn func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn()
		return
	}
	// While this goroutine holds the first thread, the next goroutine must run on another one.
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		offFirstThread(fn)
	}()
	<-done
}
