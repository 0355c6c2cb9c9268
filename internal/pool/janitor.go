package pool

import (
	"context"
	"time"
)

// counterEvery is the shortest time between two reads of a box's counters. They are read after a claim was released.
const counterEvery = time.Second

// unclaimedAfter is how long a box runs that was started but never claimed, because its caller went away. Then it is
// stopped, even if idle boxes are never stopped.
const unclaimedAfter = 5 * time.Minute

// janitor decides when an idle box is frozen and stopped, and when the counters of a box are
// read. It only decides: the pool asks it which jobs are due and does them.
type janitor struct {
	// freezeAfter and stopAfter are the idle times after which a box is frozen or stopped; 0 or less means never.
	freezeAfter, stopAfter time.Duration
	// kick wakes the pool's cleaning goroutine before the time wake.
	kick chan struct{}
	// wake is when the cleaning goroutine looks next; zero when it is about to look. The pool's
	// lock guards wake, and is held for every method.
	wake time.Time
}

// job is something that the pool does to a box.
type job int

const (
	jobNone job = iota
	jobCounters
	jobFreeze
	jobStop
)

// next returns the next job of a box and the time when it is due.
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
	if !e.box.claimed {
		offer(jobStop, e.box.usedAt.Add(unclaimedAfter))
	}
	if j.stopAfter > 0 {
		offer(jobStop, e.box.usedAt.Add(j.stopAfter))
	}
	if j.freezeAfter > 0 && awake && !e.box.noFreeze {
		offer(jobFreeze, e.box.usedAt.Add(j.freezeAfter))
	}
	return next, at
}

// still reports whether the started job what is still due now that the goroutine of the job holds the box's lock op.
func (j *janitor) still(e *entry, what job) bool {
	e.acting = false
	next, due := j.next(e)
	e.acting = true
	return next == what && !due.After(time.Now())
}

// schedule wakes the cleaning goroutine if a job of the box is due before that goroutine looks next.
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

// look returns the next job of a box if it is due at now. If it is due later, look sets wake, so
// that the cleaning goroutine looks by then.
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

// clean starts the jobs that the janitor finds due, until the pool closes.
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

// look starts the jobs that are due, each in a goroutine, and returns how long until it must look again.
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
