// The Go runtime must not look for cgroup limits before main: it would keep a descriptor open,
// and boxd sets the number of threads itself anyway.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command boxd is the process inside a box. A driver starts it with a control socket on descriptor 3,
// and sends a wire.Config and open files, such as a listening socket, through this socket. boxd takes no
// arguments and reads no environment. Nothing imports it. Invariant (I-23): boxd is linked statically,
// contains of the server's packages only those that both programs use, and leaks no descriptor to a child.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	// Set the timer slack before this thread makes others, which inherit it: with a large timer slack
	// they would find new work late.
	usualTimers()
	// Lock the main goroutine to the main thread of the process, so that this thread is never confined (HZ-1).
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "boxd:", err)
		os.Exit(111)
	}
}
