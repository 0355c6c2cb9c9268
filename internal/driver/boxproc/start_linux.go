package boxproc

import (
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Launch describes how to start a boxd.
type Launch struct {
	// Path is the path of the static boxd binary. Program is instead the open binary, for a boxd
	// that cannot reach it by a path. Argv are its arguments.
	Path    string
	Program *os.File
	Argv    []string
	// Env is boxd's own environment, not that of the tools.
	Env []string
	Dir string
	// Attr is copied; Setsid is always set. Pdeathsig must not be set, because a box outlives its server.
	Attr *syscall.SysProcAttr
	// Thread is called on the thread that then makes the process. The process inherits what Thread changes of that
	// thread, such as its namespaces, and the thread ends afterwards. Optional.
	Thread func() error
	// Prepare fills in what boxd receives, except its listener, while the kernel makes the process. It
	// may set fields of the record, which is on disk before boxd receives its configuration.
	Prepare func(r *Record, h *Handover) error
	// Placed is called with the id of the process once it is recorded, before boxd receives its configuration. Optional.
	Placed func(pid int) error
	// Now is the time of the start, for Record.StartedAt.
	Now time.Time
}

// Start starts the boxd of r.Box and records it. The caller must hold the box's lock and have checked that the box
// does not run. Start returns when boxd has received its configuration; the Boot's Status reports whether boxd
// accepted it. On error no process, no socket and no record of a process are left, but boxd's log is.
func (d *Dir) Start(ctx context.Context, r Record, l Launch) (*Boot, Record, error) {
	b, r, err := d.start(ctx, r, l)
	if err != nil {
		_ = d.Ended(r.Box)
		return nil, r, err
	}
	return b, r, nil
}

func (d *Dir) start(ctx context.Context, r Record, l Launch) (*Boot, Record, error) {
	fail := func(err error) (*Boot, Record, error) {
		return nil, r, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.start", "cannot start boxd for box %s: %w", holdfast.Quote(string(r.Box)), err)
	}
	log, err := os.OpenFile(d.Log(r.Box), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fail(err)
	}
	defer log.Close()
	// quote adds what boxd wrote to the log: a boxd that ended wrote its reason there, even if it ended before
	// this server noticed.
	quote := func(err error) error {
		if said := tail(log); said != "" {
			return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.start", "%w; boxd wrote to its log: %s", err, holdfast.Quote(said))
		}
		return err
	}
	var h Handover
	defer h.Close()
	prepared := make(chan error, 1)
	go func() { prepared <- d.prepare(&r, &h, l) }()
	b, err := d.Spawn(ctx, l, log)
	perr := <-prepared
	if err != nil {
		return fail(quote(err))
	}
	if perr != nil {
		b.abandon(ctx)
		return nil, r, perr
	}
	r = b.Named(r)
	r.StartedAt = l.Now
	// Write the record before boxd learns its box: a server that is killed before leaves a boxd
	// that ends, one that is killed later leaves a recorded box.
	err = d.Write(r)
	if err == nil && l.Placed != nil {
		err = l.Placed(b.pid)
	}
	if err == nil {
		err = b.Hand(ctx, &h)
	}
	if err != nil {
		b.abandon(ctx)
		return fail(quote(err))
	}
	return b, r, nil
}

// prepare calls l.Prepare, makes the socket on which boxd will listen, and encodes the configuration.
func (d *Dir) prepare(r *Record, h *Handover, l Launch) error {
	if err := l.Prepare(r, h); err != nil {
		return err
	}
	listener, err := ListenAt(d.Socket(r.Box))
	if err != nil {
		return err
	}
	h.Config.Listener = h.Give(listener)
	return h.seal()
}

// tail returns the last 400 bytes that boxd wrote to its log, without space around them; empty if the log is
// unreadable.
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
