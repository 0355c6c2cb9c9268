package background

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// lowPriority is the niceness of a thread for which slowly was called.
const lowPriority = 10

// Run runs fn in a new goroutine, and waits for its end. When fn calls slowly, its goroutine gets a thread of its own,
// to which the scheduler gives less time than to the other threads of the server.
func Run(fn func(slowly func())) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var once sync.Once
		fn(func() {
			once.Do(func() {
				// The goroutine stays locked to the thread, so that the thread ends with it: an ordinary user may not raise the
				// priority of a thread again.
				runtime.LockOSThread()
				_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowPriority) // if the kernel refuses, the work runs with the usual priority
			})
		})
	}()
	<-done
}
