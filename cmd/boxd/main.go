// The runtime is not to look for cgroup limits before main: it would keep a
// descriptor open, and the number of threads is set here anyway.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command boxd is the process inside a box. A driver starts it with a
// wire.Config as JSON on descriptor 3 and a listening socket; it takes no
// arguments and reads no environment. Nothing imports it. Invariant (I-23): it is built
// static, links nothing of the server, and leaks no descriptor to a child.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	// First of all: the confined threads are made from this one (HZ-1).
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "boxd:", err)
		os.Exit(111)
	}
}
