package pool

import (
	"context"
	"time"
)

// counterEvery is how often the counters of a box in use are looked at.
const counterEvery = time.Second

// janitor decides when an idle box is frozen and stopped, and when the counters of a box are
// looked at. It does none of it: the pool asks it for what is due.
type janitor struct {
	// freezeAfter and stopAfter are idle times; not positive is never.
	freezeAfter, stopAfter time.Duration
	// kick wakes the pool's goroutine before wake.
	kick chan struct{}
	// wake is when that goroutine looks next; zero when it is about to. The pool's lock
	// guards it, and is held for every method.
	wake time.Time
}

// job is what is done to a box.
type job int

const (
	jobNone job = iota
	jobCounters
	jobFreeze
	jobStop
)

// next returns the next job of a box and when it is due.
func (j *janitor) next(e *entry) (job, time.Time) {
	if !e.box.running || e.acting || e.users > 0 {
		return jobNone, time.Time{}
	}
	next, at := jobNone, time.Time{}
	offer := func(k job, due time.Time) {
		if next == jobNone || due.Before(at) {
			next, at = k, due
		}
	}
	awake := e.box.conn != nil && !e.box.frozen
	if e.dirty && awake {
		offer(jobCounters, e.checkedAt.Add(counterEvery))
	}
	if e.holds > 0 || e.turns.taken > 0 {
		return next, at
	}
	if j.stopAfter > 0 {
		offer(jobStop, e.box.usedAt.Add(j.stopAfter))
	}
	if j.freezeAfter > 0 && awake && !e.box.noFreeze {
		offer(jobFreeze, e.box.usedAt.Add(j.freezeAfter))
	}
	return next, at
}

// still reports whether a job that was begun is due, now that nobody else acts on the box.
func (j *janitor) still(e *entry, what job) bool {
	e.acting = false
	next, due := j.next(e)
	e.acting = true
	return next == what && !due.After(time.Now())
}

// schedule wakes the pool's goroutine if the box is due before it would look.
func (j *janitor) schedule(e *entry) {
	next, due := j.next(e)
	if next == jobNone || j.wake.IsZero() || !due.Before(j.wake) {
		return
	}
	j.wake = time.Time{}
	select {
	case j.kick <- struct{}{}:
	default:
	}
}

// look returns the next job of a box if it is due at now. If it is due later, the pool's
// goroutine looks again by then.
func (j *janitor) look(e *entry, now time.Time) job {
	next, due := j.next(e)
	if next != jobNone && due.After(now) {
		if due.Before(j.wake) {
			j.wake = due
		}
		return jobNone
	}
	return next
}

// clean does what the janitor finds due until the pool ends.
func (r *roster) clean() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(r.look())
		select {
		case <-r.core.ctx.Done():
			return
		case <-timer.C:
		case <-r.janitor.kick:
		}
	}
}

// look starts the jobs that are due, each in a goroutine, and returns when to look again.
func (r *roster) look() time.Duration {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	now := time.Now()
	r.janitor.wake = now.Add(time.Hour)
	for _, e := range r.boxes {
		if what := r.janitor.look(e, now); what != jobNone {
			e.acting = true
			e.refs++
			r.core.spawn(func() { r.act(e, what) })
		}
	}
	return r.janitor.wake.Sub(now)
}

func (r *roster) act(e *entry, what job) {
	ctx, cancel := context.WithTimeout(r.core.ctx, actTimeout)
	defer cancel()
	e.act(ctx, &r.janitor, what)
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	e.acting = false
	e.refs--
	r.done(e)
}
