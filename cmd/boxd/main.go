// The runtime is not to look for cgroup limits before main: it would keep a
// descriptor open, and the number of threads is set here anyway.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command boxd is the process inside a box. A driver starts it with a control
// socket on descriptor 3 and sends a wire.Config and open files through it, a
// listening socket among them; it takes no arguments and reads no environment.
// Nothing imports it. Invariant (I-23): it is built static, links nothing of the
// server, and leaks no descriptor to a child.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	// Before any thread is made from this one: with late timers they would be as late
	// in finding what there is to do.
	usualTimers()
	// First of all: the confined threads are made from this one (HZ-1).
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "boxd:", err)
		os.Exit(111)
	}
}
