package boxd

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// proc is a process as /proc/PID/stat describes it.
type proc struct {
	pid, ppid, group, session int
	name                      string
	state                     byte
	start                     uint64
}

// ended reports whether the process is dead and only waits to be reaped.
func (p proc) ended() bool { return p.state == 'Z' || p.state == 'X' }

func (p proc) wire() wire.Process {
	return wire.Process{PID: p.pid, PPID: p.ppid, Name: p.name, State: string(p.state)}
}

// readProc reads one process; false if it does not exist.
func readProc(pid int) (proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	return parseStat(pid, b)
}

// parseStat parses "pid (name) state ppid pgrp session …"; the name may hold anything.
func parseStat(pid int, b []byte) (proc, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return proc{}, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 20 {
		return proc{}, false
	}
	p := proc{pid: pid, name: strings.ToValidUTF8(string(b[open+1:end]), "?"), state: f[0][0]}
	p.ppid, _ = strconv.Atoi(string(f[1]))
	p.group, _ = strconv.Atoi(string(f[2]))
	p.session, _ = strconv.Atoi(string(f[3]))
	p.start, _ = strconv.ParseUint(string(f[19]), 10, 64)
	return p, true
}

// descendants lists all processes below pid, parents before children.
func descendants(pid int) ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "cannot list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd", "cannot list processes: %w", err)
	}
	below := map[int][]proc{}
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil || n == pid {
			continue
		}
		if p, ok := readProc(n); ok {
			below[p.ppid] = append(below[p.ppid], p)
		}
	}
	if pid == 1 {
		// Processes that entered from another namespace have parent 0; they belong to the box too.
		below[1] = append(below[1], below[0]...)
		delete(below, 0)
	}
	var out []proc
	seen := map[int]bool{pid: true}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, p := range below[queue[0]] {
			if !seen[p.pid] {
				seen[p.pid] = true
				out = append(out, p)
				queue = append(queue, p.pid)
			}
		}
	}
	return out, nil
}

// orphanage reads the children of a process's main thread. The kernel makes orphans children of
// that thread; children that other threads forked stay with those threads while they live.
type orphanage struct{ f *os.File }

func openOrphanage(pid int) orphanage {
	id := strconv.Itoa(pid)
	f, err := os.Open("/proc/" + id + "/task/" + id + "/children")
	if err != nil {
		return orphanage{} // the kernel lacks this file: callers scan all processes
	}
	return orphanage{f}
}

// list returns the main thread's current children; false where the kernel cannot list them.
func (o orphanage) list() ([]int, bool) {
	if o.f == nil {
		return nil, false
	}
	var page [4096]byte
	var all []byte
	for {
		n, err := o.f.ReadAt(page[:], int64(len(all)))
		if n == 0 && len(all) == 0 && err == io.EOF {
			return nil, true
		}
		all = append(all, page[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, false
		}
	}
	var out []int
	for _, f := range bytes.Fields(all) {
		if n, err := strconv.Atoi(string(f)); err == nil {
			out = append(out, n)
		}
	}
	return out, true
}

// readMark returns the inherited mark of a process, or 0 if it has none.
func readMark(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0
	}
	return parseMark(b)
}

func parseMark(limits []byte) uint64 {
	_, line, ok := bytes.Cut(limits, []byte("Max realtime timeout"))
	if !ok {
		return 0
	}
	f := bytes.Fields(line)
	if len(f) == 0 {
		return 0
	}
	v, err := strconv.ParseUint(string(f[0]), 10, 64)
	if err != nil || v <= markBase {
		return 0
	}
	return v - markBase
}

// endedChild returns the pid of a child that has ended, without reaping it; 0 if there is none.
func endedChild() (pid int) {
	// siginfo_t: signo, errno, code, padding, then the pid at 16.
	var info [128]byte
	for {
		_, _, e := unix.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|unix.WNOHANG|unix.WALL, 0, 0)
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return 0
		}
		return int(*(*int32)(unsafe.Pointer(&info[16])))
	}
}
