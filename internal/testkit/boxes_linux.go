package testkit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// EndBoxes kills the boxes of a data directory whose server was killed: they would wait
// for its successor for the rest of orphan_after.
func EndBoxes(t testing.TB, data string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(data, "run", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var marks [][]byte
	for _, d := range dirs {
		var st syscall.Stat_t
		if syscall.Stat(d, &st) == nil { // it may just have gone
			marks = append(marks, fmt.Appendf(nil, "\x00dir=%d:%d\x00", st.Dev, st.Ino))
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		args, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for _, mark := range marks {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && bytes.HasSuffix(args, mark) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended
			}
		}
	}
}

// Stopped reports whether all threads of a process have stopped; each does when it next
// looks for signals.
func Stopped(t testing.TB, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, name := range threads {
		// The state follows the name, which stands in parentheses.
		stat, err := os.ReadFile(name)
		if i := bytes.LastIndexByte(stat, ')'); err != nil || i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T")) {
			return false
		}
	}
	return true
}
