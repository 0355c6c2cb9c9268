package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// admit gives the box a slot, and evicts an idle box when there is none: cold
// ones (not connected) first, then those idle longest. op is held.
func (p *Pool) admit(ctx context.Context, e *entry) error {
	tried := map[*entry]bool{}
	for {
		p.mu.Lock()
		if !e.slot && p.used < p.cfg.MaxBoxes && p.mayHave(e) {
			p.used++
			e.slot = true
		}
		if e.slot {
			p.mu.Unlock()
			return nil
		}
		v := p.victim(tried)
		if v == nil || !p.mayHave(e) {
			p.mu.Unlock()
			return p.full()
		}
		tried[v] = true
		v.refs++
		p.mu.Unlock()
		err := p.evict(ctx, v, e)
		p.mu.Lock()
		v.refs--
		p.tidy(v)
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (p *Pool) victim(tried map[*entry]bool) *entry {
	var best *entry
	for _, v := range p.boxes {
		if !v.slot || !v.unused() || tried[v] {
			continue
		}
		if best == nil || (v.box == nil) != (best.box == nil) && v.box == nil ||
			(v.box == nil) == (best.box == nil) && v.usedAt.Before(best.usedAt) {
			best = v
		}
	}
	return best
}

// evict stops v for e, if it is still unused. Only the end of ctx is an error:
// with anything else the next victim is tried.
func (p *Pool) evict(ctx context.Context, v, e *entry) error {
	if err := v.lock(ctx); err != nil {
		return err
	}
	defer v.unlock()
	b, ok := p.reserve(v)
	if !ok {
		return nil
	}
	defer p.unreserve(v)
	if p.working(ctx, v.id, b) {
		return nil
	}
	if err := p.stop(ctx, v, "evicted: another box needed its place", idleGrace); err != nil {
		if ctx.Err() != nil {
			return gaveUp(ctx)
		}
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.slot && !v.running {
		v.slot = false
		p.used--
		// At once, or somebody else takes the place that we made.
		if p.used < p.cfg.MaxBoxes {
			p.used++
			e.slot = true
		}
	}
	return nil
}

// reserve makes an unused box unclaimable until unreserve; op is held. The box
// is nil when it is not connected.
func (p *Pool) reserve(e *entry) (b *sandbox.Box, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !e.unused() {
		return nil, false
	}
	e.moving = true
	if e.connected() {
		b = e.box
	}
	return b, true
}

func (p *Pool) unreserve(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.moving = false
}

// working reports whether a call runs in the box that nobody holds: one that a
// reader left, or that a former server began. What is resting does not count.
func (p *Pool) working(ctx context.Context, id holdfast.BoxID, b *sandbox.Box) bool {
	if b == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	calls, err := b.Calls(ctx)
	if err != nil {
		return false
	}
	calls = slices.DeleteFunc(calls, func(c wire.CallState) bool { return c.Status != wire.CallRunning })
	if len(calls) == 0 {
		return false
	}
	resting := p.resting(ctx, id)
	return slices.ContainsFunc(calls, func(c wire.CallState) bool { return !slices.Contains(resting, c.Call) })
}

func (p *Pool) resting(ctx context.Context, id holdfast.BoxID) []holdfast.CallID {
	if p.cfg.Resting == nil {
		return nil
	}
	return p.cfg.Resting(ctx, id)
}

// freeze is record, gate, freeze, in this order (HZ-10); op is held.
func (p *Pool) freeze(ctx context.Context, e *entry) error {
	const op = "pool.freeze"
	p.mu.Lock()
	connected, frozen, boot := e.connected(), e.frozen, e.boot
	p.mu.Unlock()
	if !connected {
		return holdfast.Errorf(holdfast.KindNotFound, op, "box %s does not run", holdfast.Quote(string(e.id)))
	}
	if frozen {
		return nil
	}
	busy := holdfast.Errorf(holdfast.KindBusy, op, "box %s is in use", holdfast.Quote(string(e.id))).
		WithHint("retry when its calls have ended")
	b, ok := p.reserve(e)
	if !ok {
		return busy
	}
	defer p.unreserve(e)
	if b == nil || p.working(ctx, e.id, b) {
		return busy
	}
	if !p.canFreeze(ctx) {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "driver %s cannot freeze here", holdfast.Quote(p.cfg.Driver.Name())).
			WithHint("holdfast doctor says why")
	}
	p.emit(Event{Type: holdfast.EventBoxFrozen, Box: e.id, Ended: holdfast.BoxEnded{Box: e.id, Boot: boot, Reason: "idle"}})
	p.mu.Lock()
	e.frozen = true
	p.mu.Unlock()
	gctx, cancel := context.WithTimeout(ctx, helloTimeout)
	err := b.Gate(gctx, true)
	cancel()
	switch {
	case err == nil:
		err = p.freezer.Freeze(ctx, e.id)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		p.doubt(e)
		p.detach(e)
		return holdfast.Errorf(holdfast.KindUnavailable, op, "box %s does not answer", holdfast.Quote(string(e.id))).
			WithHint("its next use starts another one")
	}
	if err != nil {
		// Undo what may have been done. If that fails too the box stays marked as
		// frozen and the next Acquire thaws it.
		_ = p.thaw(context.WithoutCancel(ctx), e, b)
	}
	return err
}

// canFreeze asks the driver's probe, once: what cannot be done is not announced.
func (p *Pool) canFreeze(ctx context.Context) bool {
	p.mu.Lock()
	known := p.freezes
	p.mu.Unlock()
	if known != nil {
		return *known
	}
	can := true
	for _, c := range p.cfg.Driver.Probe(ctx).Capabilities {
		if c.Name == "freeze" {
			can = c.OK
		}
	}
	if ctx.Err() == nil {
		p.mu.Lock()
		p.freezes = &can
		p.mu.Unlock()
	}
	return can
}

// thaw is thaw, then gate; op is held.
func (p *Pool) thaw(ctx context.Context, e *entry, b *sandbox.Box) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := p.freezer.Thaw(ctx, e.id); err != nil {
		return err
	}
	if err := b.Gate(ctx, false); err != nil {
		return err
	}
	p.grows()
	p.mu.Lock()
	defer p.mu.Unlock()
	e.frozen = false
	return nil
}

func (p *Pool) stop(ctx context.Context, e *entry, reason string, grace time.Duration) error {
	return p.stopFor(ctx, e, holdfast.BoxEnded{Reason: reason}, grace)
}

// stopFor tells, asks boxd, and makes sure with the driver; op is held.
func (p *Pool) stopFor(ctx context.Context, e *entry, ended holdfast.BoxEnded, grace time.Duration) error {
	p.mu.Lock()
	b, connected, running, frozen, boot := e.box, e.connected(), e.running, e.frozen, e.boot
	wasMoving := e.moving
	e.moving = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		e.moving = wasMoving
	}()
	if running {
		ended.Box, ended.Boot = e.id, boot
		// A boxd that does not answer the first question gets no further ones.
		if connected {
			if connected = p.checkCounters(ctx, e, b); connected {
				ended.Processes = p.processNames(ctx, e.id, b)
			}
		}
		p.emit(Event{Type: holdfast.EventBoxStopped, Box: e.id, Ended: ended})
	}
	if connected {
		// Only what runs can answer to SIGTERM. All of this is courtesy: the
		// driver's Stop is what ends the box.
		if !frozen || p.thaw(ctx, e, b) == nil {
			sctx, cancel := context.WithTimeout(ctx, grace+courtesy)
			_, _ = b.Stop(sctx, wire.StopRequest{GraceMS: grace.Milliseconds(), Reason: ended.Reason})
			cancel()
		}
	}
	p.detach(e)
	if err := p.cfg.Driver.Stop(ctx, e.id); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.running, e.boot, e.frozen, e.adopted, e.hung = false, "", false, false, false
	return nil
}

// processNames are the processes that end with the box, but for agents at rest: their
// end is nobody's loss.
func (p *Pool) processNames(ctx context.Context, id holdfast.BoxID, b *sandbox.Box) []string {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	list, err := b.Processes(ctx)
	if err != nil {
		return nil
	}
	resting := p.resting(ctx, id)
	var out []string
	for _, pr := range list {
		agent := pr.Leader && slices.Contains(resting, pr.Call)
		if pr.State != "Z" && !agent {
			out = append(out, fmt.Sprintf("%d %s", pr.PID, pr.Name))
		}
	}
	return out
}

// hits counts how often a box met a limit of its kernel since it started.
type hits struct{ memory, processes int64 }

// checkCounters reports processes of the box that were killed for memory, or not
// started because there were too many, and returns whether boxd answered; op is held.
func (p *Pool) checkCounters(ctx context.Context, e *entry, b *sandbox.Box) bool {
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	s, err := b.Stats(ctx)
	if err != nil {
		return false
	}
	p.mu.Lock()
	was, boot := e.hits, e.boot
	now := hits{max(s.OOMKills, was.memory), max(s.PidsRefused, was.processes)}
	e.hits = now
	p.mu.Unlock()
	tell := func(typ holdfast.EventType, more int64, reason string) {
		if more > 0 {
			p.emit(Event{Type: typ, Box: e.id, Ended: holdfast.BoxEnded{Box: e.id, Boot: boot, Reason: fmt.Sprintf(reason, more)}})
		}
	}
	tell(holdfast.EventBoxOOM, now.memory-was.memory, "%d processes were killed: the box was out of memory")
	tell(holdfast.EventBoxPids, now.processes-was.processes, "%d processes were not started: the box had as many as it may")
	return true
}

// job is what the janitor does to a box.
type job int

const (
	jobNone job = iota
	jobCounters
	jobFreeze
	jobStop
)

// next is the box's next job and when it is due; zero time for none.
func (p *Pool) next(e *entry) (job, time.Time) {
	if !e.running || e.acting || e.users > 0 {
		return jobNone, time.Time{}
	}
	j, at := jobNone, time.Time{}
	offer := func(k job, due time.Time) {
		if j == jobNone || due.Before(at) {
			j, at = k, due
		}
	}
	if e.dirty && e.box != nil && !e.frozen {
		offer(jobCounters, e.checkedAt.Add(counterEvery))
	}
	if e.holds > 0 || e.turns > 0 {
		return j, at
	}
	if p.cfg.StopAfter > 0 {
		offer(jobStop, e.usedAt.Add(p.cfg.StopAfter))
	}
	if p.freezer != nil && p.cfg.FreezeAfter > 0 && e.box != nil && !e.frozen && !e.noFreeze {
		offer(jobFreeze, e.usedAt.Add(p.cfg.FreezeAfter))
	}
	return j, at
}

// schedule wakes the janitor if the box is due before it would look.
func (p *Pool) schedule(e *entry) {
	j, due := p.next(e)
	if j == jobNone || p.wake.IsZero() || !due.Before(p.wake) {
		return
	}
	p.wake = time.Time{}
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *Pool) janitor() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(p.look())
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		case <-p.kick:
		}
	}
}

// look starts what is due and says when to look again.
func (p *Pool) look() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.wake = now.Add(time.Hour)
	for _, e := range p.boxes {
		j, due := p.next(e)
		switch {
		case j == jobNone:
		case due.After(now):
			if due.Before(p.wake) {
				p.wake = due
			}
		default:
			e.acting = true
			e.refs++
			p.spawnLocked(func() { p.act(e, j) })
		}
	}
	return p.wake.Sub(now)
}

// act does a job if it is still due once the box is ours.
func (p *Pool) act(e *entry, j job) {
	ctx, cancel := context.WithTimeout(p.ctx, actTimeout)
	defer cancel()
	if e.lock(ctx) == nil {
		p.mu.Lock()
		e.acting = false
		again, due := p.next(e)
		still := again == j && !due.After(time.Now())
		e.acting = true
		b := e.box
		if still && j == jobCounters {
			e.dirty, e.checkedAt = false, time.Now()
		}
		p.mu.Unlock()
		if still {
			p.do(ctx, e, b, j)
		}
		e.unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.acting = false
	e.refs--
	p.tidy(e)
	p.schedule(e)
}

func (p *Pool) do(ctx context.Context, e *entry, b *sandbox.Box, j job) {
	var err error
	switch j {
	case jobCounters:
		p.checkCounters(ctx, e, b)
		return
	case jobFreeze:
		err = p.freeze(ctx, e)
	case jobStop:
		err = p.stopIdle(ctx, e)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
	case j == jobFreeze && !holdfast.IsKind(err, holdfast.KindBusy):
		e.noFreeze = true
	default:
		// Busy, or it cannot be stopped now: as if it was used just now.
		e.usedAt = time.Now()
	}
}

func (p *Pool) stopIdle(ctx context.Context, e *entry) error {
	b, ok := p.reserve(e)
	if !ok {
		return nil
	}
	defer p.unreserve(e)
	if p.working(ctx, e.id, b) {
		return holdfast.Errorf(holdfast.KindBusy, "pool.stop", "a call runs")
	}
	return p.stop(ctx, e, "idle", idleGrace)
}
