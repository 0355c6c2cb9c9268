package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// leftovers returns resources that a stopped server and its boxes should not have left:
// processes, mounts, cgroups and sockets whose names contain the data directory or a box.
func leftovers(data string, boxes []string) []string {
	var out []string
	names := append(slices.Clone(boxes), data)
	bears := func(s string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.Contains(s, n) })
	}
	lines := func(what, file string) {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if bears(line) {
				out = append(out, what+": "+strings.TrimSpace(line))
			}
		}
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
	lines("mount", "/proc/self/mountinfo")
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && bears(filepath.Base(p)) {
			out = append(out, "cgroup: "+p)
		}
		return nil
	})
	lines("socket", "/proc/net/unix")
	_ = filepath.WalkDir(filepath.Join(data, "run"), func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			out = append(out, "socket file: "+p)
		}
		return nil
	})
	return out
}
