package boxproc

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

// The descriptors boxd inherits: its configuration, its listening socket, then
// those of Launch.Files.
const (
	ConfigFD = 3
	ListenFD = 4
	FilesFD  = 5
)

// Launch says how to start a boxd.
type Launch struct {
	// Path is the static boxd binary; Argv what it is called with.
	Path string
	Argv []string
	// Env is boxd's own environment, not that of tools.
	Env []string
	Dir string
	// Attr is copied; Setsid is always set. Pdeathsig must be unset: a box
	// outlives its server.
	Attr *syscall.SysProcAttr
	// Files are inherited from FilesFD on; the caller closes its copies.
	Files []*os.File
	// Placed is called with the pid after the record is written and before boxd
	// gets its configuration: for cgroups. It may fill in the record, which is
	// then written again. Optional.
	Placed func(pid int, r *Record) error
	// Config is handed over last. ListenFD is set here.
	Config wire.Config
	// Now is the time of the start.
	Now time.Time
}

// Start starts the boxd of r.Box and records it. The caller must hold the box's
// lock and have made sure that it does not run. On error nothing is left: no
// process, socket or record of one.
func (d *Dir) Start(ctx context.Context, r Record, l Launch) (*Proc, Record, error) {
	p, r, err := d.start(ctx, r, l)
	if err != nil {
		_ = d.Ended(r.Box)
		return nil, r, err
	}
	return p, r, nil
}

func (d *Dir) start(ctx context.Context, r Record, l Launch) (*Proc, Record, error) {
	const op = "boxproc.start"
	fail := func(err error) (*Proc, Record, error) {
		return nil, r, holdfast.Errorf(holdfast.KindUnavailable, op, "boxd of box %s: %w", holdfast.Quote(string(r.Box)), err)
	}
	kernel, err := KernelBoot()
	if err != nil {
		return fail(err)
	}
	listener, err := d.Listen(r.Box)
	if err != nil {
		return fail(err)
	}
	defer listener.Close()
	lf, err := listener.File()
	if err != nil {
		return fail(err)
	}
	defer lf.Close()
	cr, cw, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer cw.Close()
	defer cr.Close()
	log, err := os.OpenFile(d.Log(r.Box), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fail(err)
	}
	defer log.Close()
	cmd := l.command(log, cr, lf)
	if err := startPatient(cmd); err != nil {
		return fail(err)
	}
	// From here on the process is ours to reap; cmd.Wait is never called.
	p, err := hold(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fail(err)
	}
	_ = cmd.Process.Release()
	p.watch()
	undo := func(err error) (*Proc, Record, error) {
		_ = p.Kill(context.WithoutCancel(ctx))
		p.Close()
		if said := tail(log); said != "" {
			return nil, r, holdfast.Errorf(holdfast.KindUnavailable, op, "boxd of box %s: %w: it said %s", holdfast.Quote(string(r.Box)), err, holdfast.Quote(said))
		}
		return fail(err)
	}
	_ = cr.Close()
	start, err := StartTime(p.pid)
	if err != nil {
		return undo(err)
	}
	r.PID, r.Start, r.Kernel, r.StartedAt, r.Frozen = p.pid, start, kernel, l.Now, false
	if err := d.Write(r); err != nil {
		return undo(err)
	}
	if l.Placed != nil {
		if err := l.Placed(p.pid, &r); err != nil {
			return undo(err)
		}
		if err := d.Write(r); err != nil {
			return undo(err)
		}
	}
	if err := hand(ctx, cw, l.Config); err != nil {
		return undo(err)
	}
	return p, r, nil
}

func (l Launch) command(log, config, listener *os.File) *exec.Cmd {
	var attr syscall.SysProcAttr
	if l.Attr != nil {
		attr = *l.Attr
	}
	attr.Setsid = true
	cmd := &exec.Cmd{
		Path: l.Path, Args: l.Argv, Env: l.Env, Dir: l.Dir, Stdout: log, Stderr: log,
		ExtraFiles: append([]*os.File{config, listener}, l.Files...), SysProcAttr: &attr,
	}
	if cmd.Env == nil {
		// nil would be our own environment.
		cmd.Env = []string{}
	}
	return cmd
}

// hand gives boxd its configuration; a boxd that does not read it fails with ctx.
func hand(ctx context.Context, w *os.File, c wire.Config) error {
	c.ListenFD = ListenFD
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Close()
}

// tail is the end of what boxd said.
func tail(log *os.File) string {
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	b := make([]byte, min(size, 400))
	if _, err := log.ReadAt(b, size-int64(len(b))); err != nil && err != io.EOF {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// timerSlack is how late the kernel may wake boxd, so that it wakes it seldom. The
// Go runtime looks after its threads every 20 µs while something runs; with thirty
// boxes at work that was a third of all context switches.
const timerSlack = 2 * time.Millisecond

// startPatient starts boxd with timerSlack, which a process takes over from the
// thread that makes it. boxd gives its own children the usual slack again.
func startPatient(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Without it boxd works as well, and costs more.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0)
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	return cmd.Start()
}
