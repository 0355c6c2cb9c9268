package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// leftovers returns resources that a stopped server and its boxes should not have left:
// processes, mounts, cgroups and sockets whose names contain the data directory or a box.
func leftovers(data string, boxes []string) []string {
	var out []string
	bears := func(s string) bool {
		if strings.Contains(s, data) {
			return true
		}
		for _, b := range boxes {
			if strings.Contains(s, b) {
				return true
			}
		}
		return false
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if pid := filepath.Base(p); pid == fmt.Sprint(os.Getpid()) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(p, "cgroup"))
		mounts, _ := os.ReadFile(filepath.Join(p, "mountinfo"))
		cwd, _ := os.Readlink(filepath.Join(p, "cwd"))
		exe, _ := os.Readlink(filepath.Join(p, "exe"))
		if bears(exe) || bears(string(groups)) || bears(cwd) || strings.Contains(string(mounts), data) {
			out = append(out, fmt.Sprintf("process %s: %q", filepath.Base(p), strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if bears(line) {
			out = append(out, "mount: "+strings.TrimSpace(line))
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && bears(filepath.Base(p)) {
			out = append(out, "cgroup: "+p)
		}
		return nil
	})
	sockets, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(sockets)) {
		if bears(line) {
			out = append(out, "socket: "+strings.TrimSpace(line))
		}
	}
	_ = filepath.WalkDir(filepath.Join(data, "run"), func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			out = append(out, "socket file: "+p)
		}
		return nil
	})
	return out
}
