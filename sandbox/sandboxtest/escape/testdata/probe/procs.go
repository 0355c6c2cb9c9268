package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func procVerbs() map[string]verb {
	return map[string]verb{
		"victim":    victim,
		"scan":      scan,
		"ptrace":    func(a []string) (string, error) { return "", ptrace(pid(a)) },
		"vmread":    vmread,
		"vmwrite":   vmwrite,
		"pidfd-get": pidfdGet,
		"kill":      func(a []string) (string, error) { return "", unix.Kill(pid(a), syscall.Signal(atoi(a[1]))) },
		"killall":   func(a []string) (string, error) { return "", killThreads(pid(a), atoi(a[1])) },
		"prlimit": func(a []string) (string, error) {
			return "", unix.Prlimit(pid(a), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}, nil)
		},
		"mem": func(a []string) (string, error) { return mem(pid(a)) },
		"fds": fds,
	}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func pid(a []string) int { return atoi(a[0]) }

func closingFD(fd int, err error) error {
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// victim is another session's process: it holds a secret in its memory and its
// environment, in an open file and in its working directory, and waits.
func victim(a []string) (string, error) {
	secret, err := os.ReadFile(a[0])
	if err != nil {
		return "", err
	}
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := os.Chdir(filepath.Dir(a[0])); err != nil {
		return "", err
	}
	fmt.Printf("ready %d %d\n", os.Getpid(), uintptr(unsafe.Pointer(&secret[0])))
	time.Sleep(time.Hour)
	return string(secret), nil
}

// scan looks for a needle in what every process shows of itself but this one.
func scan(a []string) (string, error) {
	what, needle := a[0], []byte(a[1])
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return "", err
	}
	seen := map[string]int{}
	for _, p := range procs {
		if p == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		err := look(p, what, needle)
		if err == nil {
			return "in " + what + " of a process", nil
		}
		seen[strings.TrimPrefix(outcome(err), "failed: ")]++
	}
	var out []string
	for _, name := range []string{"EACCES", "ENOENT", "EPERM", "clean"} {
		if seen[name] > 0 {
			out = append(out, name)
		}
		delete(seen, name)
	}
	for name := range seen {
		out = append(out, name)
	}
	return "", errors.New("none: " + strings.Join(out, " "))
}

var errClean = errors.New("clean")

// look looks for the needle in one aspect of one process.
func look(proc, what string, needle []byte) error {
	switch what {
	case "environ", "maps", "cmdline":
		b, err := os.ReadFile(proc + "/" + what)
		if err == nil && !bytes.Contains(b, needle) {
			err = errClean
		}
		return err
	case "cwd":
		return contains(proc+"/cwd/secret", needle)
	case "fd":
		fds, err := os.ReadDir(proc + "/fd")
		if err != nil {
			return err
		}
		err = errClean
		for _, fd := range fds {
			if e := contains(proc+"/fd/"+fd.Name(), needle); e == nil {
				return nil
			}
		}
		return err
	case "mem":
		n, err := strconv.Atoi(filepath.Base(proc))
		if err != nil {
			return err
		}
		got, err := mem(n)
		if err == nil && !strings.Contains(got, string(needle)) {
			err = errClean
		}
		return err
	}
	return errors.New("scan what?")
}

// contains reads a file if it is a regular one: nothing else may block us.
func contains(path string, needle []byte) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > 1<<20 {
		return errClean
	}
	b, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(b, needle) {
		err = errClean
	}
	return err
}

// mem reads the writable memory of a process through /proc and gives the secret
// it finds there.
func mem(pid int) (string, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return "", err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return "", err
	}
	defer f.Close()
	const mark = "escape-canary-"
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var perm string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perm); n != 3 || !strings.HasPrefix(perm, "rw") {
			continue
		}
		buf := make([]byte, min(to-from, 8<<20))
		n, _ := f.ReadAt(buf, from)
		if i := bytes.Index(buf[:n], []byte(mark)); i >= 0 {
			return string(buf[i:min(i+40, n)]), nil
		}
	}
	return "", errClean
}

func ptrace(pid int) error {
	if err := unix.PtraceAttach(pid); err != nil {
		return err
	}
	var ws unix.WaitStatus
	_, _ = unix.Wait4(pid, &ws, 0, nil)
	return unix.PtraceDetach(pid)
}

func iovecs(a []string, buf []byte) ([]unix.Iovec, []unix.RemoteIovec) {
	at, err := strconv.ParseUint(a[1], 10, 64)
	if err != nil {
		panic(err)
	}
	l := []unix.Iovec{{Base: &buf[0]}}
	l[0].SetLen(len(buf))
	return l, []unix.RemoteIovec{{Base: uintptr(at), Len: len(buf)}}
}

func vmread(a []string) (string, error) {
	buf := make([]byte, 20)
	l, r := iovecs(a, buf)
	n, err := unix.ProcessVMReadv(pid(a), l, r, 0)
	return string(buf[:max(n, 0)]), err
}

func vmwrite(a []string) (string, error) {
	l, r := iovecs(a, []byte("overwritten"))
	_, err := unix.ProcessVMWritev(pid(a), l, r, 0)
	return "", err
}

// pidfdGet takes a descriptor out of another process. A pidfd of pid 1 may be
// had; what it leads to may not.
func pidfdGet(a []string) (string, error) {
	fd, err := unix.PidfdOpen(pid(a), 0)
	if err != nil {
		fd = -1
	}
	return "", closingFD(unix.PidfdGetfd(fd, 1, 0))
}

// killThreads signals every thread of a process in every way there is.
func killThreads(pid, sig int) error {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if len(tasks) < 2 {
		return fmt.Errorf("%d threads were seen", len(tasks))
	}
	var last error
	for _, t := range tasks {
		n, s := uintptr(atoi(filepath.Base(t))), uintptr(sig)
		for _, err := range []error{
			sys(unix.SYS_KILL, n, s), sys(unix.SYS_TKILL, n, s), sys(unix.SYS_TGKILL, uintptr(pid), n, s),
		} {
			if err == nil {
				return nil
			}
			last = err
		}
	}
	return last
}

// fds accounts for every descriptor of this process: stdio that leads to pipes
// or files of this call, and what the language's own runtime opened.
func fds([]string) (string, error) {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return "", err
	}
	var strange []string
	for _, d := range dir {
		to, err := os.Readlink("/proc/self/fd/" + d.Name())
		n := atoi(d.Name())
		switch {
		case err != nil: // the open directory itself
		case n <= 2 && (to == "/dev/null" || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "/dev/pts/") || strings.HasSuffix(to, " (deleted)")):
		case n > 2 && strings.HasPrefix(to, "anon_inode:[event"), strings.HasPrefix(to, "/proc/"):
		default:
			strange = append(strange, fmt.Sprintf("%d=%s", n, to))
		}
	}
	if len(strange) == 0 {
		return "", errors.New("none beyond stdio")
	}
	return strings.Join(strange, ","), nil
}
