package lifecycle

import (
	"os"
	"strconv"
	"time"
)

// monitorSlack is how late the kernel may wake the runtime's monitor.
const monitorSlack = 2 * time.Millisecond

// CalmMonitor lets the kernel wake the Go runtime's monitor thread up to monitorSlack late. The
// monitor wakes every 20 µs while goroutines run; on a virtual machine each wake-up leaves the
// guest twice, which took a tenth of a busy server's time. The cost: a goroutine blocked in a
// system call may keep its processor that much longer. Without CAP_SYS_NICE nothing changes.
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
