package boxproc

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

// Ready is a boxd that has no box yet. It ends by itself when Control is closed
// before the claim was sent. Close it and Control when it is of no interest.
type Ready struct {
	*Proc
	// Control is the server's end of its socket.
	Control *net.UnixConn
	start   uint64
	kernel  string
}

// Spawn starts a ready boot. l.Config is what it prepares for; it says in Status
// when it has. log takes its stdout and stderr, listener is where it will serve.
// On error nothing is left.
func Spawn(ctx context.Context, l Launch, log, listener *os.File) (*Ready, error) {
	fail := func(err error) (*Ready, error) {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.spawn", "ready boxd: %w", err)
	}
	kernel, err := KernelBoot()
	if err != nil {
		return fail(err)
	}
	l.Config.ListenFD = ListenFD
	message, err := wire.AppendJSON(nil, wire.FrameRequest, l.Config)
	if err != nil {
		return fail(err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return fail(err)
	}
	defer theirs.Close()
	cmd := l.command(log, theirs, listener)
	if err := startPatient(cmd); err != nil {
		_ = ours.Close()
		return fail(err)
	}
	p, err := hold(cmd.Process.Pid)
	if err != nil {
		_ = ours.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fail(err)
	}
	_ = cmd.Process.Release()
	p.watch()
	r := &Ready{Proc: p, Control: ours, kernel: kernel}
	if r.start, err = StartTime(p.pid); err == nil {
		err = r.send(ctx, message)
	}
	if err != nil {
		_ = ours.Close()
		_ = p.Kill(context.WithoutCancel(ctx))
		p.Close()
		return fail(err)
	}
	return r, nil
}

// Named is the record with the process filled in.
func (r *Ready) Named(rec Record) Record {
	rec.PID, rec.Start, rec.Kernel, rec.Frozen = r.pid, r.start, r.kernel, false
	return rec
}

// Status reads the answer to Spawn.
func (r *Ready) Status(ctx context.Context) (wire.JailStatus, error) {
	var st wire.JailStatus
	stop := context.AfterFunc(ctx, func() { _ = r.Control.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, b, err := wire.ReadFrame(r.Control)
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err == nil && st.Err != nil {
		err = st.Err.Err("boxproc.spawn")
	}
	if err != nil {
		return st, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.spawn", "ready boxd: %w", err)
	}
	return st, nil
}

// Claim gives it its box. The record of the box must be on disk by now.
func (r *Ready) Claim(ctx context.Context, c wire.Claim) error {
	message, err := wire.AppendJSON(nil, wire.FrameRequest, c)
	if err == nil {
		err = r.send(ctx, message)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.claim", "ready boxd: %w", err)
	}
	return nil
}

func (r *Ready) send(ctx context.Context, message []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = r.Control.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := r.Control.Write(message)
	return err
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

// ListenAt makes a socket at a path of the directory for Dir.Dial to find once
// it was renamed to a box's Socket. It is a listener for boxd alone.
func ListenAt(path string) (*os.File, error) {
	l, err := listenAt(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.listen", "%w", err)
	}
	return f, nil
}
