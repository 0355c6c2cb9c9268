package boxproc

import (
	"context"
	"encoding/json"
	"io"
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

// Handover is what boxd receives at its start: the configuration, and the open files that the
// configuration refers to.
type Handover struct {
	Config wire.Config
	files  []*os.File
	// message is the encoded configuration, once it is complete.
	message []byte
}

// Give adds a file and returns its number, by which fields of the configuration refer to it.
// Close closes the file.
func (h *Handover) Give(f *os.File) int {
	h.files = append(h.files, f)
	return len(h.files)
}

// Close closes the server's copies of the files; boxd has its own descriptors. It may be called again.
func (h *Handover) Close() {
	for _, f := range h.files {
		_ = f.Close()
	}
	h.files = nil
}

// seal encodes the configuration. After that the Handover must not change.
func (h *Handover) seal() (err error) {
	if h.message == nil {
		h.message, err = wire.AppendConfig(nil, h.Config)
	}
	return err
}

// Boot is a boxd that is being started. It ends by itself if Control is closed before it has
// learned its box id.
type Boot struct {
	*Proc
	// Control is the server's end of boxd's control socket.
	Control *net.UnixConn
	start   uint64
	kernel  string
}

// Spawn starts the process of a boxd, which then waits for its configuration: see Hand. The
// process writes stdout and stderr to log, and its last argument is "dir=" and the directory's Mark. On
// error no process is left. Spawn ignores l.Prepare, l.Placed and l.Now, which only Dir.Start uses.
func (d *Dir) Spawn(ctx context.Context, l Launch, log *os.File) (*Boot, error) {
	fail := func(err error) (*Boot, error) {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.spawn", "cannot start boxd: %w", err)
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
	if err := l.start(cmd); err != nil {
		_ = ours.Close()
		return fail(err)
	}
	// If hold succeeds, Proc reaps the process, and cmd.Wait must not be called.
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
		// ExtraFiles begin at descriptor 3: the control socket has 3, the program 4.
		cmd.Path, cmd.ExtraFiles = "/proc/self/fd/4", append(cmd.ExtraFiles, l.Program)
	}
	if cmd.Env == nil {
		// If Env were nil, boxd would inherit the server's environment.
		cmd.Env = []string{}
	}
	return cmd
}

// timerSlack is how late the kernel may wake boxd, so that it wakes boxd less often. The Go
// runtime checks its threads every 20 µs while something runs; with thirty busy boxes that was a
// third of all context switches.
const timerSlack = 2 * time.Millisecond

func (l Launch) start(cmd *exec.Cmd) error {
	if l.Thread == nil {
		return startPatient(cmd)
	}
	return OnOwnThread(func() error {
		if err := l.Thread(); err != nil {
			return err
		}
		return startPatient(cmd)
	})
}

// startPatient starts boxd with timerSlack, which a process inherits from the thread that starts
// it. boxd resets the slack for its own children.
func startPatient(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// If the timer slack cannot be set, boxd works all the same but costs more CPU time.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0)
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
	return cmd.Start()
}

// Close closes the handle of the process and the control socket, but does not kill the process. It may be called again.
func (b *Boot) Close() {
	_ = b.Control.Close()
	b.Proc.Close()
}

// abandon kills the process and closes the Boot.
func (b *Boot) abandon(ctx context.Context) {
	_ = b.Kill(context.WithoutCancel(ctx))
	b.Close()
}

// Named returns rec with the fields that identify the boxd process: PID, Start and Kernel.
func (b *Boot) Named(rec Record) Record {
	rec.PID, rec.Start, rec.Kernel = b.pid, b.start, b.kernel
	return rec
}

// Hand sends boxd its configuration and closes h's files. If boxd does not read it, Hand fails
// when ctx ends.
func (b *Boot) Hand(ctx context.Context, h *Handover) error {
	defer h.Close()
	err := h.seal()
	if err == nil {
		err = b.send(ctx, h.message, h.files)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.hand", "cannot send boxd its configuration: %w", err)
	}
	return nil
}

// Claim tells a ready boot which box it is. The record of the box must be on disk before.
func (b *Boot) Claim(ctx context.Context, c wire.Claim) error {
	message, err := wire.AppendJSON(nil, wire.FrameRequest, c)
	if err == nil {
		err = b.send(ctx, message, nil)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.claim", "cannot tell a boxd that was started in advance which box it serves: %w", err)
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

// Status reads the next status report of boxd. The error has io.EOF in its chain if boxd ended without a
// report. If boxd reports a failure, Status returns that failure as its error.
func (b *Boot) Status(ctx context.Context) (wire.JailStatus, error) {
	return b.status(ctx, b.Control)
}

// status reads one status report from in, which is the control socket or a reader of it.
func (b *Boot) status(ctx context.Context, in io.Reader) (st wire.JailStatus, err error) {
	const op = "boxproc.status"
	stop := context.AfterFunc(ctx, func() { _ = b.Control.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, text, err := wire.ReadFrame(in)
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err == nil && st.Err != nil {
		return st, st.Err.Err(op)
	}
	if err != nil {
		return st, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot read the status of boxd: %w", err)
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

// WriteOver does the same as Write, using an existing file of the directory as the record: making
// a new file may have to wait for the disk's journal.
func (d *Dir) WriteOver(file *os.File, r Record) error {
	return d.write(r, func(record []byte) (string, error) {
		_, err := file.Write(record)
		return file.Name(), err
	}, os.Rename)
}
