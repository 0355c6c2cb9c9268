package lifecycle

import (
	"os"
	"strings"
	"testing"
)

// TestCalmMonitor: one thread is woken late from then on, and it is not the one
// that carries this process's own timers.
func TestCalmMonitor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it needs CAP_SYS_NICE")
	}
	CalmMonitor()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	late := 0
	for _, th := range threads {
		b, err := os.ReadFile("/proc/" + th.Name() + "/timerslack_ns")
		if err == nil && strings.TrimSpace(string(b)) == "2000000" {
			late++
		}
	}
	if late != 1 {
		t.Errorf("%d of %d threads are woken late, want the monitor alone", late, len(threads))
	}
}
