// Command probe runs inside a box and tries what a tool must not be able to do.
// It prints one line for each attempt: its name and what came of it, an error
// name or ok. With arguments it does one thing: hog BYTES takes that much memory
// and keeps it, forks starts processes until none can be started.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	runtime.LockOSThread()
	if len(os.Args) > 2 && os.Args[1] == "hog" {
		hog(os.Args[2])
	}
	if len(os.Args) > 1 && os.Args[1] == "forks" {
		forks()
	}
	for _, a := range attempts() {
		fmt.Printf("%s %s\n", a.name, outcome(a.do()))
	}
	fds()
}

type attempt struct {
	name string
	do   func() error
}

func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// sys makes a raw call: nothing in between may refuse or retry it.
func sys(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

func cstr(s string) uintptr {
	b := append([]byte(s), 0)
	return uintptr(unsafe.Pointer(&b[0]))
}

func attempts() []attempt {
	list := []attempt{
		{"mount", func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") }},
		{"umount", func() error { return unix.Unmount("/tmp", unix.MNT_DETACH) }},
		{"fsopen", func() error { _, err := unix.Fsopen("tmpfs", 0); return err }},
		{"open_tree", func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err }},
		{"chroot", func() error { return unix.Chroot("/tmp") }},
		{"unshare-user", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"unshare-net", func() error { return unix.Unshare(unix.CLONE_NEWNET) }},
		{"setns", func() error { return unix.Setns(0, 0) }},
		{"clone-newuser", func() error { return sys(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)) }},
		{"clone3", func() error { return sys(unix.SYS_CLONE3, 0, 0) }},
		{"bpf", func() error { return sys(unix.SYS_BPF, 0, 0, 0) }},
		{"keyctl", func() error { return sys(unix.SYS_KEYCTL, 0, 0) }},
		{"io_uring", func() error { return sys(unix.SYS_IO_URING_SETUP, 1, 0) }},
		{"userfaultfd", func() error { return sys(unix.SYS_USERFAULTFD, 0) }},
		{"perf", func() error { return sys(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0) }},
		{"openat2", func() error { return sys(unix.SYS_OPENAT2, 0, 0, 0, 0) }},
		{"ptrace-boxd", func() error { return unix.PtraceAttach(1) }},
		{"read-boxd", func() error { _, err := os.ReadFile("/proc/1/mem"); return err }},
		{"boxd-environ", func() error { _, err := os.ReadFile("/proc/1/environ"); return err }},
		{"boxd-fds", func() error { _, err := os.ReadDir("/proc/1/fd"); return err }},
		{"boxd-root", func() error { _, err := os.ReadDir("/proc/1/root/"); return err }},
		{"prlimit-boxd", func() error { return sys(unix.SYS_PRLIMIT64, 1, unix.RLIMIT_NOFILE, 0, 0) }},
		{"pidfd-boxd", func() error { _, err := unix.PidfdOpen(1, 0); return err }},
		{"af-packet", func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err }},
		{"af-vsock", func() error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err }},
		{"mptcp", func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 262); return err }},
		{"tiocsti", func() error { return sys(unix.SYS_IOCTL, 0, unix.TIOCSTI, cstr("x")) }},
		{"network", network},
		{"score", func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) }},
		{"sysctl", func() error { return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("9"), 0) }},
		{"setuid-0", func() error { return sys(unix.SYS_SETUID, 0) }},
		{"mknod", func() error { return unix.Mknod("/workspace/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) }},
		{"suid-open", func() error {
			return sys(unix.SYS_OPENAT, ^uintptr(99), cstr("/workspace/suid-open"), unix.O_CREAT|unix.O_WRONLY, 0o4755)
		}},
		{"suid-mkdir", func() error { return sys(unix.SYS_MKDIRAT, ^uintptr(99), cstr("/workspace/suid-dir"), 0o2755) }},
		{"control-socket", sockets},
	}
	return append(append(list, chmods()...), signals()...)
}

// chmods tries every call that can set the setuid bit on a file of one's own.
func chmods() []attempt {
	const path = "/workspace/suid"
	make := func(fn func(fd uintptr) error) func() error {
		return func() error {
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return fn(f.Fd())
		}
	}
	list := []attempt{
		{"suid-fchmod", make(func(fd uintptr) error { return sys(unix.SYS_FCHMOD, fd, 0o4755) })},
		{"suid-fchmodat", make(func(uintptr) error { return sys(unix.SYS_FCHMODAT, ^uintptr(99), cstr(path), 0o4755) })},
		{"suid-fchmodat2", make(func(uintptr) error { return sys(452, ^uintptr(99), cstr(path), 0o4755, 0) })},
		{"sgid-fchmodat", make(func(uintptr) error { return sys(unix.SYS_FCHMODAT, ^uintptr(99), cstr(path), 0o2755) })},
		{"plain-chmod", make(func(uintptr) error { return os.Chmod(path, 0o755) })},
	}
	return list
}

// signals tries to reach every thread of boxd, each in every way there is.
func signals() []attempt {
	var list []attempt
	tasks, _ := filepath.Glob("/proc/1/task/*")
	for _, t := range tasks {
		tid, err := strconv.Atoi(filepath.Base(t))
		if err != nil {
			continue
		}
		n := uintptr(tid)
		list = append(
			list,
			attempt{"kill-boxd", func() error { return sys(unix.SYS_KILL, n, 15) }},
			attempt{"kill-boxd", func() error { return sys(unix.SYS_TKILL, n, 15) }},
			attempt{"kill-boxd", func() error { return sys(unix.SYS_TGKILL, 1, n, 15) }},
		)
	}
	if len(list) < 12 {
		list = append(list, attempt{"kill-boxd", func() error { return errors.New("too few threads were seen") }})
	}
	return list
}

func network() error {
	c, err := net.DialTimeout("udp", "192.0.2.1:9", time.Second)
	if err == nil {
		c.Close()
	}
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		if i.Name != "lo" && i.Flags&net.FlagUp != 0 {
			return errors.New("interface " + i.Name)
		}
	}
	return err
}

// sockets looks for any listening Unix socket it can connect to.
func sockets() error {
	found := errors.New("none")
	_ = filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, "/proc") || strings.HasPrefix(path, "/usr") {
			if d != nil && d.IsDir() && path != "/" {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type()&os.ModeSocket != 0 {
			if c, err := net.Dial("unix", path); err == nil {
				c.Close()
				found = errors.New("connected to " + path)
			}
		}
		return nil
	})
	b, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 8 && strings.HasPrefix(f[7], "@") {
			if c, err := net.Dial("unix", f[7]); err == nil {
				c.Close()
				found = errors.New("connected to " + f[7])
			}
		}
	}
	return found
}

// fds prints what was inherited beyond stdio and what this program has itself.
func fds() {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		fmt.Println("fds", err)
		return
	}
	for _, d := range dir {
		n, _ := strconv.Atoi(d.Name())
		to, err := os.Readlink("/proc/self/fd/" + d.Name())
		// Go's poller, its own open directory, and files made above are ours.
		if err == nil && n > 2 && !strings.HasPrefix(to, "anon_inode:[event") && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/workspace/") {
			fmt.Println("fd", n, to)
		}
	}
}

func hog(size string) {
	n, err := strconv.Atoi(size)
	if err != nil {
		panic(err)
	}
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = 1
	}
	time.Sleep(time.Hour)
}

func forks() {
	for i := 0; ; i++ {
		cmd := exec.Command("/bin/sleep", "3600")
		if err := cmd.Start(); err != nil {
			fmt.Println("full after", i, outcome(err))
			os.Exit(0)
		}
	}
}
