// The Go runtime must not look for cgroup limits before main: it would keep a descriptor open,
// and boxd sets the number of threads itself anyway.
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
	// Before this thread makes others: they inherit its timer slack, and with a large one they
	// would find new work late.
	usualTimers()
	// Then lock the thread: the confined threads are made from this one (HZ-1).
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "boxd:", err)
		os.Exit(111)
	}
}
