//go:build linux

package jail

import (
	"os"
	"runtime"
	"testing"
)

// TestMain pins the first thread, as boxd does: a goroutine that hardens the
// thread it runs on must never get that one.
func TestMain(m *testing.M) {
	runtime.LockOSThread()
	os.Exit(m.Run())
}
