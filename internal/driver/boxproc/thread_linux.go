package boxproc

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs fn on a thread that the server uses for nothing else. The thread ends after fn has returned, so
// that nothing of the server runs with what fn changed of it, such as its namespaces.
func OnOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go OffFirstThread(func() { done <- fn() }) // still locked: the thread ends with the goroutine
	return <-done
}

// OffFirstThread locks its goroutine to a thread that is not the first of the process, and runs
// fn, which may unlock it. The first thread must not be used: /proc/self shows its mounts and
// cgroups as those of the process, and the Go runtime cannot end it.
func OffFirstThread(fn func()) {
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
		OffFirstThread(fn)
	}()
	<-done
}
