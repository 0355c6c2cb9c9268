package local

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// limitV1 sets the limit of one controller on a leaf of a version 1 hierarchy.
func limitV1(controller, leaf string, l sandbox.Limits) error {
	switch controller {
	case "memory":
		return memoryV1(leaf, l.MemoryBytes)
	case "pids":
		v := strconv.FormatInt(l.Pids, 10)
		return writeBack(path.Join(leaf, "pids.max"), v, equals(v))
	case "cpu":
		period := strconv.Itoa(cpuPeriod)
		if err := writeBack(path.Join(leaf, "cpu.cfs_period_us"), period, equals(period)); err != nil {
			return err
		}
		v := quota(l.CPUs)
		return writeBack(path.Join(leaf, "cpu.cfs_quota_us"), v, equals(v))
	}
	return nil
}

// memoryV1 limits memory, and memory plus swap to the same value, so that the box cannot swap.
func memoryV1(leaf string, limit int64) error {
	v := strconv.FormatInt(limit, 10)
	file, swap := path.Join(leaf, "memory.limit_in_bytes"), path.Join(leaf, "memory.memsw.limit_in_bytes")
	err := writeBack(file, v, bytesNear(limit))
	if err != nil {
		return err
	}
	err = writeBack(swap, v, bytesNear(limit))
	if errors.Is(err, fs.ErrNotExist) {
		if !swapping() {
			return nil
		}
		return errors.New("the kernel does not account swap: boot with swapaccount=1, or turn swap off")
	}
	return err
}

// swapping reports whether this machine has swap. If it cannot read that, it returns true.
func swapping() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(strings.TrimSpace(string(b)), "\n") > 0
}

// tasks opens the "tasks" files of a v1 leaf, one for each directory. A thread that writes 0 to them enters the leaf.
func (c *boxCgroup) tasks(leaf string) ([]*os.File, error) {
	if c.V2 {
		return nil, nil
	}
	var out []*os.File
	for _, d := range c.dirs() {
		f, err := os.OpenFile(path.Join(d, leaf, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			closeAll(out)
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the cgroup of the box: %w", err)
		}
		out = append(out, f)
	}
	return out, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// countersV1 are the files of the work leaf from which boxd reads counters, by the names of wire.Jail.Counters.
var countersV1 = map[string]struct{ controller, file string }{
	"memory.events": {"memory", "memory.oom_control"},
	"memory.usage":  {"memory", "memory.usage_in_bytes"},
	"memory.limit":  {"memory", "memory.limit_in_bytes"},
	"pids.events":   {"pids", "pids.events"},
	"pids.current":  {"pids", "pids.current"},
	"pids.max":      {"pids", "pids.max"},
	"cpu":           {"cpuacct", "cpuacct.usage"},
}

// counters opens the files of countersV1; it omits those whose controller is missing.
func (c *boxCgroup) counters() (map[string]*os.File, error) {
	out := map[string]*os.File{}
	if c.V2 {
		return out, nil
	}
	for name, x := range countersV1 {
		leaf := c.leaf(x.controller, leafWork)
		if leaf == "" {
			continue
		}
		f, err := os.Open(path.Join(leaf, x.file))
		if err != nil {
			closeAll(slices.Collect(maps.Values(out)))
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open the cgroup counters of the box: %w", err)
		}
		out[name] = f
	}
	return out, nil
}

// inside runs fn on a thread in boxd's leaf, so that a process that fn starts begins there and its cgroup namespace
// has its root there. It never uses the first thread, whose cgroup the server takes for its own. leaf holds the
// "tasks" files of boxd's leaf. On v2 a thread cannot move alone; there boxd moves itself.
func (c *boxCgroup) inside(h hierarchy, leaf []*os.File, fn func()) error {
	if c.V2 || len(c.Dirs) == 0 {
		fn()
		return nil
	}
	done := make(chan error, 1)
	go boxproc.OffFirstThread(func() {
		err := enter(leaf)
		if err == nil {
			fn()
		}
		// A thread that cannot return stays locked to this goroutine and ends with it.
		if h.enterOwn() == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	})
	return <-done
}

// enterOwn moves the calling thread back to the server's own cgroup.
func (h hierarchy) enterOwn() error {
	for _, dir := range dirsOf(h.own) {
		if err := os.WriteFile(path.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

func enter(tasks []*os.File) error {
	for _, f := range tasks {
		if _, err := f.Write([]byte("0")); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot move a thread into the cgroup of the box: %w", err)
		}
	}
	return nil
}
