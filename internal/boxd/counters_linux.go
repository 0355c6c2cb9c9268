package boxd

import (
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Stats reads the box's counters. A counter that cannot be read is -1.
func (h *OSHands) Stats() wire.Stats {
	st := wire.Stats{
		MemoryBytes: h.number("memory.usage"), MemoryLimit: h.number("memory.limit"),
		Pids: h.number("pids.current"), PidsLimit: h.number("pids.max"),
		CPUMicros: h.cpu(),
	}
	st.OOMKills, st.PidsRefused = h.Events()
	if st.Pids < 0 {
		if procs, err := h.Processes(); err == nil {
			st.Pids = int64(len(procs))
		}
	}
	return st
}

// Events reads the counters that exit classes are judged by; -1 means unknown.
func (h *OSHands) Events() (oomKills, pidsRefused int64) {
	return h.field("memory.events", "oom_kill"), h.field("pids.events", "max")
}

// number reads a counter file that holds one number. It returns -1 for "max" or a missing file.
func (h *OSHands) number(name string) int64 {
	s, ok := h.forker.Counter(name)
	if !ok {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n >= 1<<62 { // cgroup v1 writes a huge number for no limit
		return -1
	}
	return n
}

// field returns the value of the line "key value" in a counter file, or -1.
func (h *OSHands) field(name, key string) int64 {
	s, ok := h.forker.Counter(name)
	if !ok {
		return -1
	}
	return lookField(s, key)
}

func lookField(s, key string) int64 {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == key {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// cpu returns the CPU time used, in microseconds, from cpu.stat (cgroup v2) or cpuacct.usage (v1,
// in ns); -1 if unknown.
func (h *OSHands) cpu() int64 {
	s, ok := h.forker.Counter("cpu")
	if !ok {
		return -1
	}
	if n := lookField(s, "usage_usec"); n >= 0 {
		return n
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return -1
	}
	return n / 1000
}
