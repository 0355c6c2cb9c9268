package background

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// lowPriority is the niceness of the threads that read, hash and compress files.
const lowPriority = 10

// Run runs fn in a goroutine of its own, and waits for its end. From the first call of slowly on, fn
// runs in a thread of its own, to which the scheduler gives less time than to the rest of the server.
func Run(fn func(slowly func())) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var once sync.Once
		fn(func() {
			once.Do(func() {
				// The thread ends with the goroutine, because it stays locked: an ordinary user may not raise
				// its priority again.
				runtime.LockOSThread()
				_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowPriority) // if refused, the work runs as any other
			})
		})
	}()
	<-done
}
