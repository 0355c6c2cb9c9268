package boxproc

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Handover is what makes a boxd a box: its configuration and the open files that
// go with it.
type Handover struct {
	Config wire.Config
	files  []*os.File
	// message is the configuration once it is complete.
	message []byte
}

// Give adds a file and returns its place, which is what a field of the
// configuration holds. The file is closed with the Handover.
func (h *Handover) Give(f *os.File) int {
	h.files = append(h.files, f)
	return len(h.files)
}

// Close closes the files, which boxd has its own descriptors of. Idempotent.
func (h *Handover) Close() {
	for _, f := range h.files {
		_ = f.Close()
	}
	h.files = nil
}

// seal makes the message: nothing of the Handover may change from here on.
func (h *Handover) seal() (err error) {
	if h.message == nil {
		h.message, err = wire.AppendConfig(nil, h.Config)
	}
	return err
}

// Boot is a boxd that is being started. It ends by itself when Control is closed
// before it knows whose box it is.
type Boot struct {
	*Proc
	// Control is the server's end of its socket.
	Control *net.UnixConn
	start   uint64
	kernel  string
}

// Spawn makes the process of a boxd, which waits for its configuration: see Hand. log
// takes its stdout and stderr, and its last argument is the directory's Mark. On error
// nothing is left. It ignores l.Prepare and the fields that only Dir.Start uses.
func (d *Dir) Spawn(ctx context.Context, l Launch, log *os.File) (*Boot, error) {
	fail := func(err error) (*Boot, error) {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.spawn", "boxd: %w", err)
	}
	mark, err := d.Mark()
	if err != nil {
		return fail(err)
	}
	l.Argv = append(slices.Clone(l.Argv), "dir="+mark)
	kernel, err := KernelBoot()
	if err != nil {
		return fail(err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return fail(err)
	}
	defer theirs.Close()
	cmd := l.command(log, theirs)
	if err := startPatient(cmd); err != nil {
		_ = ours.Close()
		return fail(err)
	}
	// From here on the process is ours to reap; cmd.Wait is never called.
	p, err := hold(cmd.Process.Pid)
	if err != nil {
		_ = ours.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fail(err)
	}
	_ = cmd.Process.Release()
	p.watch()
	b := &Boot{Proc: p, Control: ours, kernel: kernel}
	if b.start, err = StartTime(p.pid); err != nil {
		b.abandon(ctx)
		return fail(err)
	}
	return b, nil
}

func (l Launch) command(log, control *os.File) *exec.Cmd {
	var attr syscall.SysProcAttr
	if l.Attr != nil {
		attr = *l.Attr
	}
	attr.Setsid = true
	cmd := &exec.Cmd{
		Path: l.Path, Args: l.Argv, Env: l.Env, Dir: l.Dir, Stdout: log, Stderr: log,
		ExtraFiles: []*os.File{control}, SysProcAttr: &attr,
	}
	if l.Program != nil {
		// Behind the control socket.
		cmd.Path, cmd.ExtraFiles = "/proc/self/fd/4", append(cmd.ExtraFiles, l.Program)
	}
	if cmd.Env == nil {
		// nil would be our own environment.
		cmd.Env = []string{}
	}
	return cmd
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

// Close lets go of the process and its socket. Idempotent.
func (b *Boot) Close() {
	_ = b.Control.Close()
	b.Proc.Close()
}

// abandon ends the process.
func (b *Boot) abandon(ctx context.Context) {
	_ = b.Kill(context.WithoutCancel(ctx))
	b.Close()
}

// Named is the record with the process filled in.
func (b *Boot) Named(rec Record) Record {
	rec.PID, rec.Start, rec.Kernel, rec.Frozen = b.pid, b.start, b.kernel, false
	return rec
}

// Hand gives boxd its configuration and closes h's files here. A boxd that does not
// read it fails with ctx.
func (b *Boot) Hand(ctx context.Context, h *Handover) error {
	defer h.Close()
	err := h.seal()
	if err == nil {
		err = b.send(ctx, h.message, h.files)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.hand", "boxd: %w", err)
	}
	return nil
}

// Claim gives a ready boot its box. The record of the box must be on disk by now.
func (b *Boot) Claim(ctx context.Context, c wire.Claim) error {
	message, err := wire.AppendJSON(nil, wire.FrameRequest, c)
	if err == nil {
		err = b.send(ctx, message, nil)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.claim", "ready boxd: %w", err)
	}
	return nil
}

func (b *Boot) send(ctx context.Context, message []byte, files []*os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = b.Control.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	defer runtime.KeepAlive(files)
	return wire.SendFiles(message, fds, func(p, rights []byte) (int, error) {
		n, _, err := b.Control.WriteMsgUnix(p, rights, nil)
		return n, err
	})
}

// Status reads what boxd says of itself next. io.EOF in the error says that it
// ended without a word; a status that tells of a failure is that failure.
func (b *Boot) Status(ctx context.Context) (wire.JailStatus, error) {
	const op = "boxproc.status"
	var st wire.JailStatus
	stop := context.AfterFunc(ctx, func() { _ = b.Control.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, text, err := wire.ReadFrame(b.Control)
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err == nil && st.Err != nil {
		return st, st.Err.Err(op)
	}
	if err != nil {
		return st, holdfast.Errorf(holdfast.KindUnavailable, op, "boxd: %w", err)
	}
	return st, nil
}

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "control")
	theirs = os.NewFile(uintptr(fds[1]), "control")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return c.(*net.UnixConn), theirs, nil
}

// WriteOver is Write through an existing file of the directory, which becomes
// the record: making a file may have to wait for the disk's journal.
func (d *Dir) WriteOver(file *os.File, r Record) error {
	r.Owner = d.owner
	b, err := json.Marshal(r)
	if err == nil {
		_, err = file.Write(b)
	}
	if err == nil {
		err = unix.Rename(file.Name(), d.file(r.Box, ".json"))
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.write", "record of box %s: %w", holdfast.Quote(string(r.Box)), err)
	}
	return nil
}
