package boxd

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
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

// readProc reads one process. ok is false if there is no process with this pid, or if boxd may not see
// it. After an error it is not known whether the process exists.
func readProc(pid int) (p proc, ok bool, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, fs.ErrPermission):
		return proc{}, false, nil
	case err != nil:
		return proc{}, false, cannotList(err)
	}
	p, ok = parseStat(pid, b)
	return p, ok, nil
}

func cannotList(err error) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "boxd", "boxd cannot list the processes of the box: %w", err)
}

// parseStat parses /proc/PID/stat: "pid (name) state ppid pgrp session …". The name can contain any characters.
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

// descendants lists the children of the process pid, their children and so on. A process comes after its parent.
func descendants(pid int) ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, cannotList(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, cannotList(err)
	}
	below := map[int][]proc{}
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil || n == pid {
			continue
		}
		p, ok, err := readProc(n)
		if err != nil {
			return nil, err
		}
		if ok {
			below[p.ppid] = append(below[p.ppid], p)
		}
	}
	if pid == 1 {
		// A process that entered this pid namespace from another one has the parent 0. It belongs to the box too.
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

// orphanage reads the children of the main thread of a process. The kernel makes orphans children of this
// thread. Children that other threads have forked are not in the list.
type orphanage struct{ f *os.File }

func openOrphanage(pid int) orphanage {
	id := strconv.Itoa(pid)
	f, err := os.Open("/proc/" + id + "/task/" + id + "/children")
	if err != nil {
		return orphanage{} // the kernel does not have this file
	}
	return orphanage{f}
}

// list returns the pids of the main thread's present children. It returns false if they cannot be listed.
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

// endedChild returns the pid of a child that has ended, without reaping it; 0 if no child has ended.
func endedChild() (pid int) {
	// info is a siginfo_t: signo, errno, code and padding, and then at offset 16 the pid.
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
