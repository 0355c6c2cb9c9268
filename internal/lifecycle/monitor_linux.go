package lifecycle

import (
	"os"
	"strconv"
	"time"
)

// monitorSlack is how late the kernel may wake the runtime's monitor.
const monitorSlack = 2 * time.Millisecond

// CalmMonitor lets the kernel wake the Go runtime's monitor thread late. While
// goroutines run it looks after them every 20 µs; on a virtual machine each look
// leaves the guest twice, which took a tenth of a busy server's time. Late means
// that a thread blocked in a system call keeps its place for up to monitorSlack.
// It needs CAP_SYS_NICE; without it, or on another system, nothing changes.
func CalmMonitor() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	// The monitor is the first thread that the runtime starts.
	self, monitor := os.Getpid(), 0
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil && id > self && (monitor == 0 || id < monitor) {
			monitor = id
		}
	}
	slack := strconv.FormatInt(monitorSlack.Nanoseconds(), 10)
	_ = os.WriteFile("/proc/"+strconv.Itoa(monitor)+"/timerslack_ns", []byte(slack), 0)
}
