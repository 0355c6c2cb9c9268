package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// EndBoxes kills the boxes of a data directory whose server has ended for good, and removes their
// control groups. Otherwise the boxes would wait for the next server until orphan_after has
// passed, and their control groups would stay for ever.
func EndBoxes(t testing.TB, data string) {
	t.Helper()
	var marks [][]byte
	for _, d := range Glob(data, "run/*") {
		var st syscall.Stat_t
		if syscall.Stat(d, &st) == nil { // the directory may have been removed meanwhile
			marks = append(marks, fmt.Appendf(nil, "\x00dir=%d:%d\x00", st.Dev, st.Ino))
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]bool{}
	for _, name := range lines {
		args, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for _, mark := range marks {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && bytes.HasSuffix(args, mark) {
				for _, g := range ownersGroups(pid) {
					groups[g] = true
				}
				_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended meanwhile
			}
		}
	}
	for g := range groups {
		Eventually(t, "the control groups of ended boxes can be removed", func() bool { return removeGroups(g) })
	}
}

// ownersGroups returns the directories of the control groups that contain all boxes of one data
// directory: that of the box in which the process pid runs.
func ownersGroups(pid int) (out []string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	for l := range strings.Lines(string(text)) {
		// A line has, for example, the text 4:cpu,cpuacct:/…/holdfast-OWNER/BOX/boxd.
		f := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(f) < 3 {
			continue
		}
		owner := filepath.Dir(filepath.Dir(f[2]))
		if !strings.HasPrefix(filepath.Base(owner), "holdfast-") {
			continue
		}
		for _, mount := range append(strings.Split(f[1], ","), f[1], "unified", "") {
			if dir := filepath.Join("/sys/fs/cgroup", mount, owner); isDir(dir) {
				out = append(out, dir)
			}
		}
	}
	return out
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// removeGroups removes a tree of control groups that contain no processes.
func removeGroups(dir string) bool {
	inner, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
	for _, name := range inner {
		removeGroups(filepath.Dir(name))
	}
	err := syscall.Rmdir(dir)
	return err == nil || errors.Is(err, syscall.ENOENT)
}

// Stopped reports whether all threads of a process have stopped after a SIGSTOP: each stops when
// it next checks for signals.
func Stopped(t testing.TB, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, name := range threads {
		// In /proc/PID/task/TID/stat the state follows the name, which is in parentheses.
		stat, err := os.ReadFile(name)
		if i := bytes.LastIndexByte(stat, ')'); err != nil || i < 0 || !bytes.HasPrefix(stat[i:], []byte(") T")) {
			return false
		}
	}
	return true
}
