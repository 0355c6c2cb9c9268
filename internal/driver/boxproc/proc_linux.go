package boxproc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// KernelBoot returns the kernel's boot id. A process's start time is unique only together with
// it.
func KernelBoot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, "boxproc", "cannot read the kernel's boot id: %w", err).WithHint("mount /proc")
	}
	return strings.TrimSpace(string(b)), nil
}

// StartTime returns the start of a process in clock ticks since the boot; not_found if the
// process does not exist or is a zombie.
func StartTime(pid int) (uint64, error) {
	gone := func() (uint64, error) {
		return 0, holdfast.Errorf(holdfast.KindNotFound, "boxproc", "process %d does not exist", pid)
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return gone()
	}
	// The name may contain spaces and parentheses: count the fields after the last parenthesis.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return gone()
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return gone()
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return gone()
	}
	return start, nil
}

// runs reports whether the process that the record describes still runs, in whichever directory's
// box. A process that got the same pid later does not count.
func (r Record) runs() bool {
	if r.PID <= 0 {
		return false
	}
	kernel, err := KernelBoot()
	if err != nil || kernel != r.Kernel {
		return false
	}
	start, err := StartTime(r.PID)
	return err == nil && start == r.Start
}

// Alive reports whether the process that the record describes still runs and uses this directory.
func (d *Dir) Alive(r Record) bool { return r.runs() && d.holds(r) }

// Foreign reports whether the record's process runs and belongs to a box of another
// directory, of which this one is a copy: the process and its cgroup must not be
// touched (HZ-20).
func (d *Dir) Foreign(r Record) bool { return r.runs() && !d.holds(r) }

// holds reports whether the process of a record uses this directory: its standard output is this
// directory's log of the box, as for every boxd from its start. If the server may not look into
// the process, the process's last argument decides (see Mark). Both are compared by inode on the
// running kernel, because a copy of the directory, and an image of it mounted elsewhere, have
// other inodes. A process that is ending has closed its files; it counts as one of this
// directory, since signals have no effect on it any more.
func (d *Dir) holds(r Record) bool {
	proc := filepath.Join("/proc", strconv.Itoa(r.PID))
	var own, its unix.Stat_t
	switch err := unix.Stat(filepath.Join(proc, "fd/1"), &its); err {
	case nil:
		return unix.Stat(d.Log(r.Box), &own) == nil && own.Dev == its.Dev && own.Ino == its.Ino
	case unix.EACCES, unix.EPERM:
		mark, merr := d.Mark()
		args, aerr := os.ReadFile(filepath.Join(proc, "cmdline"))
		return merr == nil && aerr == nil && (len(args) == 0 || bytes.HasSuffix(args, []byte("\x00dir="+mark+"\x00")))
	default:
		return err == unix.ENOENT || err == unix.ESRCH
	}
}

// Mark returns a text that identifies this directory: its device and inode on the running kernel.
// The last argument of each boxd is this text.
func (d *Dir) Mark() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(d.path, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino), nil
}

// Proc is a handle of a boxd that was started or found. Close it when it is no longer needed;
// that does not end the process. Safe for concurrent use.
type Proc struct {
	pid   int
	pidfd *os.File
	done  chan struct{}
	once  sync.Once
	wait  sync.WaitGroup
}

// Find opens the record's process; not_found if it has ended or belongs to a box of another
// directory. The Proc never refers to another process that got the same pid.
func (d *Dir) Find(r Record) (*Proc, error) {
	if r.PID > 0 {
		p, err := hold(r.PID)
		// Compare the start time only now that the pidfd is open: before, the pid could have been
		// reused.
		if err == nil && d.Alive(r) {
			p.watch()
			return p, nil
		}
		if err == nil {
			_ = p.pidfd.Close()
		}
	}
	return nil, holdfast.Errorf(holdfast.KindNotFound, "boxproc.find", "box %s is not running", holdfast.Quote(string(r.Box)))
}

func hold(pid int) (*Proc, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "boxproc", "cannot open process %d (pidfd_open): %w", pid, err)
	}
	return &Proc{pid: pid, pidfd: os.NewFile(uintptr(fd), "pidfd"), done: make(chan struct{})}, nil
}

// watch starts a goroutine that closes done when the process ends. The goroutine also ends after Close.
func (p *Proc) watch() {
	rc, err := p.pidfd.SyscallConn()
	if err != nil {
		return
	}
	p.wait.Add(1)
	go func() {
		defer p.wait.Done()
		err := rc.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return err == nil && n > 0
		})
		if err == nil {
			// Reap the process if it is a child of this server; if not, waitid returns ECHILD.
			var info unix.Siginfo
			_ = p.control(func(fd int) error { return unix.Waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOHANG, nil) })
			close(p.done)
		}
	}()
}

// PID returns the process id.
func (p *Proc) PID() int { return p.pid }

// Done is closed when the process has ended. It stays open after Close.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Signal sends a signal to this very process. It returns no error if the process has ended.
func (p *Proc) Signal(sig syscall.Signal) error {
	err := p.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	if err != nil && err != unix.ESRCH {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.signal", "cannot send a signal to process %d: %w", p.pid, err)
	}
	return nil
}

// Kill sends SIGKILL and waits until the process has ended, or until ctx ends.
func (p *Proc) Kill(ctx context.Context) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return p.Wait(ctx)
}

// Wait waits until the process has ended; it fails with unavailable when ctx ends before.
func (p *Proc) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.wait", "gave up waiting for process %d to end: %w", p.pid, ctx.Err())
	}
}

// Close closes the handle, not the process. It may be called again.
func (p *Proc) Close() {
	p.once.Do(func() { _ = p.pidfd.Close() })
	p.wait.Wait()
}

func (p *Proc) control(fn func(fd int) error) error {
	rc, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := rc.Control(func(fd uintptr) { ferr = fn(int(fd)) }); err != nil {
		return err
	}
	return ferr
}
