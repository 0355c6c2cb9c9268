package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func cstr(s string) uintptr {
	b := append([]byte(s), 0)
	return uintptr(unsafe.Pointer(&b[0]))
}

// kernelVerbs are system calls that the box refuses whatever their arguments are. An error that
// comes from the kernel's own code, not from the filter, counts as success; see reached.
func kernelVerbs() map[string]verb {
	return map[string]verb{
		"landlock-layers": landlockLayers,
		"mount":           simple(func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") }),
		"umount": func(a []string) (string, error) {
			return "", covered(a[0], func() error { return unix.Unmount(a[0], unix.MNT_DETACH) })
		},
		"remount": func(a []string) (string, error) {
			return "", covered(a[0], func() error { return unix.Mount("", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "") })
		},
		"fsopen": simple(func() error { return closingFD(unix.Fsopen("tmpfs", 0)) }),
		"open-tree": simple(func() error {
			return closingFD(unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE))
		}),
		"mount-setattr": simple(func() error { return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{}) }),
		"chroot":        simple(func() error { return unix.Chroot("/tmp") }),
		"pivot-root":    simple(pivot),
		"unshare":       func(a []string) (string, error) { return "", unix.Unshare(atoi(a[0])) },
		"setns":         simple(setns),
		"clone":         func(a []string) (string, error) { return "", clone(uintptr(atoi(a[0]))) },
		"clone3":        simple(clone3),
		"bpf":           simple(bpf),
		"keyctl":        simple(keys),
		"userfaultfd":   simple(func() error { return closingNR(unix.SYS_USERFAULTFD, 1) }),
		"io-uring":      simple(uring),
		"perf":          simple(perf),
		"openat2":       simple(openat2),
		"reboot":        simple(func() error { return reached(sys(unix.SYS_REBOOT, 0xfee1dead, 672274793, 0x12345, 0), syscall.EINVAL) }),
		"module":        simple(func() error { return reached(sys(unix.SYS_INIT_MODULE, cstr("x"), 1, cstr("")), syscall.ENOEXEC) }),
		"kexec":         simple(func() error { return reached(sys(unix.SYS_KEXEC_LOAD, 0, 0, 0, 8), syscall.EINVAL) }),
		"swapon":        simple(func() error { return reached(sys(unix.SYS_SWAPON, cstr("/nothing"), 0), syscall.ENOENT) }),
		"acct":          simple(func() error { return reached(sys(unix.SYS_ACCT, cstr("/nothing")), syscall.ENOENT) }),
		"syslog":        simple(func() error { return sys(unix.SYS_SYSLOG, 10, 0, 0) }),
		"clock":         simple(func() error { return reached(sys(unix.SYS_CLOCK_SETTIME, 1, timespec()), syscall.EINVAL) }),
		"hostname":      simple(func() error { return unix.Sethostname([]byte("escaped")) }),
		"fanotify":      simple(func() error { return closingNR(unix.SYS_FANOTIFY_INIT, 0x200, 0) }),
		"quotactl": simple(func() error {
			return reached(sys(unix.SYS_QUOTACTL, 0x800001<<8, 0, 0, 0), syscall.ESRCH, syscall.EINVAL)
		}),
		"filter-off":    simple(filterOff),
		"new-privs-off": newPrivsOff,
		"capset":        simple(capset),
		"tiocsti":       simple(tiocsti),
		"x32":           simple(x32),
		"int80":         simple(int80),
		"setuid":        simple(func() error { return sys(unix.SYS_SETUID, 0) }),
		"setgroups":     simple(func() error { return sys(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&[1]uint32{0}))) }),
		"score":         simple(score),
	}
}

func timespec() uintptr { return uintptr(unsafe.Pointer(&[2]int64{1, 1})) }

// closingNR makes a system call that returns a descriptor, and closes the descriptor.
func closingNR(nr uintptr, args ...uintptr) error {
	fd, err := sysr(nr, args...)
	return closingFD(int(fd), err)
}

// covered does something to a mount. One of its own lies there where that is
// possible: the others of a new namespace are locked.
func covered(path string, do func() error) error {
	_ = unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "")
	return do()
}

// pivot makes another directory the root with pivot_root.
func pivot() error {
	for _, err := range []error{
		reached(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), syscall.EPERM),
		reached(unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""), syscall.EPERM),
		os.MkdirAll("/tmp/old", 0o700),
	} {
		if err != nil {
			return err
		}
	}
	return unix.PivotRoot("/tmp", "/tmp/old")
}

// setns enters its own namespace: the attempt is to be allowed to enter any.
func setns() error {
	fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// clone starts a process with the given clone flags, which ends at once.
func clone(flags uintptr) error {
	pid, err := sysr(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0)
	if err != nil {
		return err
	}
	if pid == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err = unix.Wait4(int(pid), nil, 0, nil)
	return err
}

func clone3() error {
	args := [11]uint64{0: unix.CLONE_NEWUSER, 4: uint64(unix.SIGCHLD)}
	pid, err := sysr(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args))
	if err != nil {
		return err
	}
	if pid == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err = unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// bpf creates a BPF map with one entry.
func bpf() error {
	attr := [18]uint32{2, 4, 4, 1}
	return closingNR(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
}

// keys adds a key to the process' own ring and reads it back.
func keys() error {
	id, err := unix.AddKey("user", "escape", []byte("secret"), unix.KEY_SPEC_PROCESS_KEYRING)
	if err != nil {
		return err
	}
	_, err = unix.KeyctlBuffer(unix.KEYCTL_READ, id, make([]byte, 16), 0)
	return err
}

func uring() error {
	params := [30]uint32{}
	return closingNR(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)))
}

func perf() error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	attr.Size = uint32(unsafe.Sizeof(attr))
	return closingFD(unix.PerfEventOpen(&attr, 0, -1, -1, 0))
}

// openat2 makes a setuid file in a way that no filter can look into.
func openat2() error {
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755}
	return closingFD(unix.Openat2(unix.AT_FDCWD, "openat2-suid", &how))
}

// score makes this process a better victim of the kernel's memory killer, and
// then what it was before.
func score() error {
	const file = "/proc/self/oom_score_adj"
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	was := atoi(strings.TrimSpace(string(b)))
	_ = os.WriteFile(file, []byte(strconv.Itoa(min(was+100, 1000))), 0)
	return os.WriteFile(file, []byte(strconv.Itoa(was)), 0)
}

// capset asks for every capability.
func capset() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
	return unix.Capset(&hdr, &data[0])
}

// tiocsti types into a terminal of its own making.
func tiocsti() error {
	signal.Ignore(syscall.SIGHUP) // the end of the terminal is not ours
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	if err != nil {
		return err
	}
	if _, err := unix.Setsid(); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	s, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer s.Close()
	return sys(unix.SYS_IOCTL, s.Fd(), unix.TIOCSTI, cstr("x"))
}

// filterOff asks for the filter to be taken off, lays one over it that allows
// everything, and makes a call that the one of the box refuses.
func filterOff() error {
	_ = unix.Prctl(unix.PR_SET_SECCOMP, 0, 0, 0, 0)
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	prog := unix.SockFprog{Len: 1, Filter: &allow}
	_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	_ = sys(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	return keys()
}

// newPrivsOff asks for no_new_privs to be taken off and runs a setuid program: the
// kernel tells who it was, also when it has ended.
func newPrivsOff(a []string) (string, error) {
	_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)
	c := exec.Command(a[0], "--version")
	if err := c.Start(); err != nil {
		return "", err
	}
	err := unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	status, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	_ = c.Wait()
	if err := errors.Join(err, rerr); err != nil {
		return "", err
	}
	field := func(name string, n int) string {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		return strings.Fields(rest)[n]
	}
	uid, none := field("Uid", 1), "NoNewPrivs "+field("NoNewPrivs", 0)
	if uid != "0" || os.Getuid() == 0 {
		return "", errors.New("no gain, " + none)
	}
	return "uid 0, " + none, nil
}

// x32 calls getpid by its number in the third ABI of this processor.
func x32() error { return sys(0x40000000 | unix.SYS_GETPID) }

// landlockLayers tells how many Landlock domains this thread was put into: the
// kernel stacks a fixed number of them, and what is left can be counted.
func landlockLayers([]string) (string, error) {
	const most = 16
	attr := struct{ fs uint64 }{unix.LANDLOCK_ACCESS_FS_MAKE_SOCK}
	fd, err := sysr(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if err != nil {
		return "", err
	}
	for free := 0; free <= most; free++ {
		switch err := sys(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0); {
		case errors.Is(err, syscall.E2BIG):
			return strconv.Itoa(most - free), nil
		case err != nil:
			return "", err
		}
	}
	return "", errors.New("the kernel stacks without end")
}
