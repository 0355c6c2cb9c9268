package boxd

import (
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Stats reads the counters of the box. An unreadable one is -1, but for Pids Stats then counts the processes itself.
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

// Events reads the two counters that decide the exit class of a call; -1 means that a counter cannot be read.
func (h *OSHands) Events() (oomKills, pidsRefused int64) {
	return h.field("memory.events", "oom_kill"), h.field("pids.events", "max")
}

// number reads a counter file that contains one number. It returns -1 for an unreadable file or if there is no limit.
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

// field returns the value from the line "key value" of a counter file; -1 if there is no such line.
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

// cpu returns the CPU time that the tools have used, in microseconds; -1 if it cannot be read. The
// counter file is cpu.stat on cgroup v2, and cpuacct.usage, in nanoseconds, on cgroup v1.
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
