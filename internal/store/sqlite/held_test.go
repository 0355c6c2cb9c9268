package sqlite

import (
	"runtime"
	"strings"
	"testing"
)

// TestWhatWasWrittenIsLetGo: the row that is kept in memory holds nothing else of the
// change that made it.
func TestWhatWasWrittenIsLetGo(t *testing.T) {
	s := openNew(t, Config{})
	commit(t, s, creation(testID(1)))
	data := []byte(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
	gone := make(chan struct{})
	runtime.AddCleanup(&data[0], func(gone chan struct{}) { close(gone) }, gone)
	commit(t, s, appending(testID(1), data, 1))
	data = nil
	eventually(t, "the payload is collected", func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
}
