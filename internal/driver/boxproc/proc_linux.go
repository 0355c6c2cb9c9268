package boxproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// KernelBoot returns the kernel's boot id, which changes when the machine boots. Only together with it do a pid and a
// start time identify one process.
func KernelBoot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", holdfast.Errorf(failure(err), "boxproc", "cannot read the kernel's boot id: %w", err).WithHint("mount /proc")
	}
	return strings.TrimSpace(string(b)), nil
}

// failure returns the kind of the error err of a system call: busy if the server, or the machine, has no file
// descriptors or no memory left, so that the error says nothing about any box; otherwise unavailable.
func failure(err error) holdfast.Kind {
	for _, short := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS} {
		if errors.Is(err, short) {
			return holdfast.KindBusy
		}
	}
	return holdfast.KindUnavailable
}

// StartTime returns the start of a process in clock ticks since the boot; not_found if the
// process does not exist or is a zombie; busy or unavailable if that cannot be found out.
func StartTime(pid int) (uint64, error) {
	gone := func() (uint64, error) {
		return 0, holdfast.Errorf(holdfast.KindNotFound, "boxproc", "process %d does not exist", pid)
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		return 0, holdfast.Errorf(failure(err), "boxproc", "cannot find out whether process %d exists: %w", pid, err)
	}
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
// box. A process that got the same pid later does not count. It returns an error if it cannot find that out.
func (r Record) runs() (bool, error) {
	if r.PID <= 0 {
		return false, nil
	}
	kernel, err := KernelBoot()
	if err != nil || kernel != r.Kernel {
		return false, err
	}
	start, err := StartTime(r.PID)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return false, nil
	}
	return err == nil && start == r.Start, err
}

// Alive reports whether the process that the record describes still runs and uses this directory. It returns
// busy or unavailable if it cannot find that out: then the box must not be treated as ended.
func (d *Dir) Alive(r Record) (bool, error) {
	if runs, err := r.runs(); err != nil || !runs {
		return false, err
	}
	return d.holds(r)
}

// Foreign reports whether the record's process runs and belongs to a box of another directory, of which this one is a
// copy: the process and its cgroup must not be touched (HZ-20). Its errors are those of Alive.
func (d *Dir) Foreign(r Record) (bool, error) {
	if runs, err := r.runs(); err != nil || !runs {
		return false, err
	}
	own, err := d.holds(r)
	return err == nil && !own, err
}

// holds reports whether the process of a record uses this directory: its standard output is this directory's log of
// the box, as for every boxd from its start. If the server may not look into the process, the process's last argument
// decides (see Mark). Both are compared by inode on the running kernel, because a copy of the directory, and an image
// of it mounted elsewhere, have other inodes. A process that is ending has closed its files; it counts as one of this
// directory, since signals have no effect on it any more.
func (d *Dir) holds(r Record) (bool, error) {
	proc := filepath.Join("/proc", strconv.Itoa(r.PID))
	var own, its unix.Stat_t
	var args []byte
	err := unix.Stat(filepath.Join(proc, "fd/1"), &its)
	switch err {
	case nil:
		if err = unix.Stat(d.Log(r.Box), &own); err == nil {
			return own.Dev == its.Dev && own.Ino == its.Ino, nil
		}
		if err == unix.ENOENT {
			return false, nil
		}
	case unix.EACCES, unix.EPERM:
		var mark string
		if mark, err = d.Mark(); err == nil {
			args, err = os.ReadFile(filepath.Join(proc, "cmdline"))
		}
		if err == nil {
			return len(args) == 0 || bytes.HasSuffix(args, []byte("\x00dir="+mark+"\x00")), nil
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	return false, holdfast.Errorf(failure(err), "boxproc", "cannot find out whether process %d belongs to box %s: %w", r.PID, holdfast.Quote(string(r.Box)), err)
}

// Mark returns a text that identifies this directory: its device and inode on the running kernel. The last argument of
// each boxd is "dir=" and this text.
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

// Find opens the record's process; not_found if it has ended or belongs to a box of another directory, busy or
// unavailable if that cannot be found out. The Proc never refers to another process that got the same pid.
func (d *Dir) Find(r Record) (*Proc, error) {
	if r.PID <= 0 {
		return nil, NotRunning(r.Box)
	}
	p, err := hold(r.PID)
	// Compare the start time only now that the pidfd is open: before, the pid could have been reused.
	alive, aerr := d.Alive(r)
	if err == nil && alive {
		p.watch()
		return p, nil
	}
	if err == nil {
		_ = p.pidfd.Close()
	}
	switch {
	case aerr != nil:
		return nil, aerr
	case alive:
		return nil, err
	}
	return nil, NotRunning(r.Box)
}

func hold(pid int) (*Proc, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, holdfast.Errorf(failure(err), "boxproc", "cannot open process %d (pidfd_open): %w", pid, err)
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

// Done returns a channel that is closed when the process has ended. If Close is called before that, the channel stays
// open.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the process, never to another one that got the same pid. It returns no error if the
// process has ended.
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
