//go:build !linux

package hook

import (
	"os"
	"syscall"
	"time"
)

// awaitExit returns when a child process has ended. It does not reap the child. It polls,
// because these systems cannot wait for a child without reaping it.
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
