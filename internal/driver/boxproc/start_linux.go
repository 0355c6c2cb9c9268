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

// Launch says how to start a boxd.
type Launch struct {
	// Path is the static boxd binary, or Program the same, opened: for a boxd that
	// could not reach it by a path. Argv is what it is called with.
	Path    string
	Program *os.File
	Argv    []string
	// Env is boxd's own environment, not that of tools.
	Env []string
	Dir string
	// Attr is copied; Setsid is always set. Pdeathsig must be unset: a box
	// outlives its server.
	Attr *syscall.SysProcAttr
	// Prepare makes what boxd is handed but for its listener, while the kernel makes
	// the process. What it fills in of the record is on disk before boxd has it.
	Prepare func(r *Record, h *Handover) error
	// Placed is called when the process is on record and before boxd gets its
	// configuration. Optional.
	Placed func(pid int) error
	// Now is the time of the start.
	Now time.Time
}

// Start starts the boxd of r.Box and records it. The caller must hold the box's
// lock and have made sure that it does not run. It returns when boxd has its
// configuration; what becomes of it the Boot's Status tells. On error nothing is
// left: no process, socket or record of one.
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
		return nil, r, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.start", "boxd of box %s: %w", holdfast.Quote(string(r.Box)), err)
	}
	log, err := os.OpenFile(d.Log(r.Box), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fail(err)
	}
	defer log.Close()
	// A boxd that ended said why, also one that was faster than who started it.
	quote := func(err error) error {
		if said := tail(log); said != "" {
			return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.start", "%w: it said %s", err, holdfast.Quote(said))
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
	// The record is on disk before boxd learns what it is: a server that is killed
	// here leaves a boxd that ends, one that is killed later a box that is known.
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

// prepare is l.Prepare and the box's socket.
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
