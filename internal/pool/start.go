package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Start adopts (or with stop true ends) the boxes the driver lists, sweeps what
// is orphaned, and starts the idle timer. known says which boxes still have a
// scope; others are removed. An adopted box is thawed before its hello. A box
// that does not answer is kept for the next Acquire to deal with; a conflict
// (a newer server owns the boxes) fails the start.
func (p *Pool) Start(ctx context.Context, stop bool, known func(holdfast.BoxID) bool) error {
	if p.cfg.Token == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "pool.start", "token 0 fences nothing")
	}
	p.mu.Lock()
	if p.phase != poolNew {
		p.mu.Unlock()
		return holdfast.Errorf(holdfast.KindInternal, "pool.start", "started twice")
	}
	p.phase = poolOpen
	// The pool outlives the call that starts it; Close ends it.
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.mu.Unlock()

	infos, err := p.cfg.Driver.List(ctx)
	if err == nil {
		var g errgroup.Group
		g.SetLimit(adoptParallel)
		for _, info := range infos {
			g.Go(func() error { return p.settle(ctx, info, stop, known(info.Box)) })
		}
		err = g.Wait()
	}
	if err != nil {
		// The failure is what the caller wants to know; nothing is stopped here.
		_ = p.Close(ctx, false)
		return err
	}
	p.spawn(p.janitor)
	if p.cfg.Disk != nil {
		p.spawn(p.watchDisk)
	}
	p.warm()
	return nil
}

// settle decides about one box that a former server left.
func (p *Pool) settle(ctx context.Context, info sandbox.Info, stop, known bool) error {
	switch {
	case !known:
		return p.Remove(ctx, info.Box)
	case !info.Running:
		return nil
	}
	return p.with(ctx, info.Box, func(e *entry) error {
		p.mu.Lock()
		e.running, e.adopted, e.slot = true, true, true
		e.frozen, e.walls = info.Frozen, info.Walls
		e.usedAt = time.Now()
		p.used++
		p.mu.Unlock()
		if stop {
			return p.stop(ctx, e, "the server started with on_start: stop", idleGrace)
		}
		// The start does not wait for a box that makes no progress.
		soon, cancel := context.WithTimeout(ctx, courtesy)
		defer cancel()
		err := p.reconnect(soon, e, 1)
		if err == nil || holdfast.IsKind(err, holdfast.KindNotFound) {
			return nil
		}
		if holdfast.IsKind(err, holdfast.KindConflict) || ctx.Err() != nil {
			return err
		}
		return nil
	})
}

// bring makes the box ready: op is held.
func (p *Pool) bring(ctx context.Context, e *entry, spec sandbox.Spec) error {
	p.mu.Lock()
	b, connected, frozen, running := e.box, e.connected(), e.frozen, e.running
	p.mu.Unlock()
	if connected && frozen {
		err := p.thaw(ctx, e, b)
		p.mu.Lock()
		connected = e.connected()
		p.mu.Unlock()
		switch {
		case connected && (!errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil):
			return err
		case connected:
			p.doubt(e)
		}
	}
	if running {
		err := p.reconnect(ctx, e, 2)
		if !holdfast.IsKind(err, holdfast.KindNotFound) {
			return err
		}
	}
	if err := p.room(); err != nil {
		return err
	}
	if err := p.waits(e.id); err != nil {
		return err
	}
	if err := p.admit(ctx, e); err != nil {
		return err
	}
	return p.boot(ctx, e, spec)
}

// reconnect makes a new pipe to a box that is believed to run. not_found means
// that the box is gone and that this was told. With more than one try a box
// that does not answer the last is ended.
func (p *Pool) reconnect(ctx context.Context, e *entry, tries int) error {
	p.detach(e)
	p.mu.Lock()
	old, adopted, hung := e.boot, e.adopted, e.hung
	p.mu.Unlock()
	if hung {
		return p.replace(ctx, e, "boxd does not answer")
	}
	began := time.Now()
	var err error
	for range tries {
		var b *sandbox.Box
		b, err = p.connect(ctx, e.id, true)
		switch {
		case err == nil:
			if old != "" && b.Boot() != old {
				p.lost(e, "the box was replaced")
				adopted = false
			}
			if b.Boot() != old && !adopted {
				p.started(b, sandbox.Info{}, began)
			}
			return p.attach(ctx, e, b)
		case holdfast.IsKind(err, holdfast.KindNotFound):
			p.lost(e, "the box is gone")
			// If the removal fails, the next start of the box or of the server repeats it.
			_ = p.cfg.Driver.Remove(ctx, e.id)
			return err
		case holdfast.IsKind(err, holdfast.KindConflict), ctx.Err() != nil:
			return err
		}
	}
	if tries < 2 {
		return err
	}
	return p.replace(ctx, e, "boxd does not answer: "+err.Error())
}

// replace ends a box that does not answer: not_found, so that the caller starts another.
func (p *Pool) replace(ctx context.Context, e *entry, reason string) error {
	p.lost(e, reason)
	if err := p.cfg.Driver.Stop(ctx, e.id); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s does not answer and cannot be stopped: %w", holdfast.Quote(string(e.id)), err)
	}
	return holdfast.Errorf(holdfast.KindNotFound, "pool", "the server stopped box %s: %s", holdfast.Quote(string(e.id)), reason)
}

// doubt notes that boxd does not answer: the box is stopped before its next use.
func (p *Pool) doubt(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.hung = true
}

// hung marks the box of a connection as hung. It returns false for a box that may stand
// still: one that is frozen or being stopped.
func (p *Pool) hung(b *sandbox.Box) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.boxes[b.ID()]
	if e == nil || e.box != b {
		return true
	}
	if e.frozen || e.moving {
		return false
	}
	e.hung = true
	return true
}

// connect is one pipe with its hello and with an open gate. thaw is for boxes
// that may be frozen.
func (p *Pool) connect(ctx context.Context, id holdfast.BoxID, thaw bool) (*sandbox.Box, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	// Before the hello: what a server that was killed in a freeze left (HZ-10).
	if thaw && p.freezer != nil {
		if err := p.freezer.Thaw(ctx, id); err != nil && !holdfast.IsKind(err, holdfast.KindUnavailable) {
			return nil, err
		}
	}
	conn, err := p.cfg.Driver.Connect(ctx, id)
	if err != nil {
		return nil, err
	}
	b, err := sandbox.Dialer{
		Token: p.cfg.Token, Accepted: p.cfg.Accepted, Patience: p.cfg.Patience, Unanswered: p.hung,
	}.Dial(ctx, id, conn)
	if err != nil {
		return nil, err
	}
	if b.Welcome().Gated {
		if err := b.Gate(ctx, false); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	return b, nil
}

// boot starts the box. Nothing ran in it yet, so a pipe that breaks before the
// hello is tried once more with a new box.
func (p *Pool) boot(ctx context.Context, e *entry, spec sandbox.Spec) error {
	for try := 1; ; try++ {
		began := time.Now()
		info, err := p.cfg.Driver.Ensure(ctx, spec)
		if err != nil {
			return err
		}
		p.mu.Lock()
		e.running, e.usedAt, e.walls = true, time.Now(), info.Walls
		p.mu.Unlock()
		b, err := p.connect(ctx, e.id, false)
		if err == nil {
			p.started(b, info, began)
			p.warm()
			return p.attach(ctx, e, b)
		}
		// The box of a caller who gave up, or of another server, is not ended: the
		// next Acquire finds it, or the idle timer.
		if ctx.Err() != nil || holdfast.IsKind(err, holdfast.KindConflict) {
			return err
		}
		if serr := p.cfg.Driver.Stop(ctx, e.id); serr != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s did not answer (%v) and cannot be stopped: %w", holdfast.Quote(string(e.id)), err, serr)
		}
		p.mu.Lock()
		e.running = false
		p.mu.Unlock()
		if try == 2 {
			return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s does not come up: %w", holdfast.Quote(string(e.id)), err).
				WithHint("holdfast doctor shows what is missing on this machine")
		}
	}
}

// attach puts a connected box in place and watches its pipe.
func (p *Pool) attach(ctx context.Context, e *entry, b *sandbox.Box) error {
	p.mu.Lock()
	fresh, adopted := e.boot != b.Boot(), e.adopted
	p.mu.Unlock()
	var before hits
	if fresh && adopted {
		// What happened before our time is not news.
		if s, err := b.Stats(ctx); err == nil {
			before = hits{max(s.OOMKills, 0), max(s.PidsRefused, 0)}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.box, e.boot, e.running, e.adopted = b, b.Boot(), true, false
	e.frozen, e.usedAt = false, time.Now()
	if fresh {
		e.hits, e.noFreeze = before, false
	}
	p.spawnLocked(func() { p.watch(e, b) })
	p.schedule(e)
	p.grows()
	return nil
}

// watch waits for the end of a pipe, and makes a new one at once, so that a box
// that is gone is told without anybody asking for it.
func (p *Pool) watch(e *entry, b *sandbox.Box) {
	select {
	case <-b.Done():
	case <-p.ctx.Done():
		return
	}
	for range renewTries {
		if p.renew(e, b) {
			return
		}
		// A dying boxd may still have been listening.
		select {
		case <-time.After(renewPause):
		case <-p.ctx.Done():
			return
		}
	}
}

// renew reconnects after the end of pipe b, unless somebody did already. What
// fails shows again, and is reported, at the next Acquire.
func (p *Pool) renew(e *entry, b *sandbox.Box) (settled bool) {
	ctx, cancel := context.WithTimeout(p.ctx, actTimeout)
	defer cancel()
	err := p.with(ctx, e.id, func(now *entry) error {
		p.mu.Lock()
		ours := now == e && e.running && (e.box == b || e.box == nil)
		p.mu.Unlock()
		if !ours {
			return nil
		}
		return p.reconnect(ctx, e, 1)
	})
	return err == nil || holdfast.IsKind(err, holdfast.KindNotFound) || holdfast.IsKind(err, holdfast.KindConflict)
}

// detach closes the pipe of an entry, if there is one.
func (p *Pool) detach(e *entry) {
	p.mu.Lock()
	b := e.box
	e.box = nil
	p.mu.Unlock()
	if b != nil {
		_ = b.Close()
	}
}

// lost says that the box is gone, and what it took with it.
func (p *Pool) lost(e *entry, reason string) {
	p.mu.Lock()
	boot := e.boot
	e.running, e.boot, e.frozen, e.adopted, e.hung = false, "", false, false, false
	p.mu.Unlock()
	p.emit(Event{Type: holdfast.EventBoxLost, Box: e.id, Ended: holdfast.BoxEnded{Box: e.id, Boot: boot, Reason: reason}})
}

func (p *Pool) started(b *sandbox.Box, info sandbox.Info, began time.Time) {
	w := b.Welcome()
	missing := slices.Clone(w.Missing)
	for _, m := range info.Missing {
		if !slices.Contains(missing, m) {
			missing = append(missing, m)
		}
	}
	p.emit(Event{Type: holdfast.EventBoxStarted, Box: b.ID(), Started: holdfast.BoxStarted{
		Box: b.ID(), Boot: w.Boot, Driver: p.cfg.Driver.Name(), InForce: w.InForce, Missing: missing,
		DurationMS: float64(time.Since(began).Microseconds()) / 1000,
	}})
}

func (p *Pool) emit(ev Event) {
	if p.cfg.OnEvent != nil {
		p.cfg.OnEvent(ev)
	}
}

// Reserve gives a box that never ran a ready boot, as Prewarmer does; without one
// spec comes back as it is.
func (p *Pool) Reserve(spec sandbox.Spec) (sandbox.Spec, bool) {
	if p.warmer == nil || p.cfg.Prewarm <= 0 {
		return spec, false
	}
	return p.warmer.Reserve(spec)
}

func (p *Pool) warm() {
	if p.warmer == nil || p.cfg.Prewarm <= 0 {
		return
	}
	// Without ready boots the next start is slower and reports what is wrong.
	p.spawn(func() { _ = p.warmer.Prewarm(p.ctx, p.cfg.Prewarm) })
}

// spawn runs a goroutine that Close waits for; not once the pool is closed.
func (p *Pool) spawn(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spawnLocked(fn)
}

func (p *Pool) spawnLocked(fn func()) {
	if p.phase == poolOpen {
		p.work.Go(fn)
	}
}
