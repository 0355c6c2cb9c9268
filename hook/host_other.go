//go:build !linux

package hook

import (
	"os"
	"syscall"
	"time"
)

// awaitExit returns when a child ended, and leaves it to be reaped: where a system
// cannot wait without reaping, when its group holds only a process that is gone.
func awaitExit(pid int) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		p, err := os.FindProcess(pid)
		if err != nil || p.Signal(syscall.Signal(0)) != nil {
			return
		}
	}
}
