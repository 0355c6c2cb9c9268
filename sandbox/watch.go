package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
)

// Patience says how long operations wait for a box that gives no sign of life. A zero field
// means the default.
type Patience struct {
	// Silence is how long a box may send nothing during an operation (default 1 min). Grace is
	// how long after the timeout of a process its result may be missing (default 10 s). After
	// that the server asks the box whether it is alive.
	Silence, Grace time.Duration
}

func (p Patience) orDefaults() Patience {
	if p.Silence == 0 {
		p.Silence = time.Minute
	}
	if p.Grace == 0 {
		p.Grace = 10 * time.Second
	}
	return p
}

// probeTime is how long a box may take to answer the question whether it is alive. agentProbeTime is used instead
// during an operation that may take any time, because then the box is asked regularly, also without any suspicion.
const (
	probeTime      = 3 * time.Second
	agentProbeTime = 10 * time.Second
)

// ErrUnsent is in the chain of the error of an operation whose request never reached the box.
var ErrUnsent error = &holdfast.Error{
	Op: "box", Kind: holdfast.KindUnavailable, Msg: "the connection to the box broke before the call was sent",
	Hint: "the call had no effect: try again", Err: ErrLost,
}

// giveUp breaks the connection to a box that gives no sign of life, unless Dialer.Unanswered says
// that the box is frozen or being stopped. It reports whether it broke the connection.
func (l *link) giveUp() (broken bool) {
	if !l.unanswered() {
		return false
	}
	_ = l.streams.Close()
	return true
}

// alive sends the box a query and reports whether it answered within the given time. It returns
// after that time even if the write to the connection is blocked.
func (l *link) alive(session holdfast.SessionID, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(linkContext{l}, within)
	defer cancel()
	answered := make(chan bool, 1)
	go func() {
		_, err := (&Box{l, session}).Calls(ctx)
		// An answer that refuses the query is a sign of life too.
		answered <- err == nil || ctx.Err() == nil && !holdfast.IsKind(err, holdfast.KindUnavailable)
	}()
	select {
	case ok := <-answered:
		return ok
	case <-ctx.Done():
		return false
	}
}

// owed says how long a box may be silent during an operation. The first sign of life is due after
// until+first, each further one quiet after the one before. An endless operation may take any
// time while the box answers probes.
type owed struct {
	until, first, quiet time.Duration
	endless             bool
}

// operation returns how long a box may be silent during any operation except Exec and Unpack.
func (p Patience) operation() owed { return owed{first: p.Silence, quiet: p.Silence} }

// process returns how long a box may be silent during an Exec with that timeout in milliseconds; 0 means no timeout, as
// for an Unpack.
func (p Patience) process(timeoutMS int64) owed {
	if timeoutMS <= 0 {
		return owed{first: p.Grace, quiet: p.Silence, endless: true}
	}
	return owed{until: time.Duration(timeoutMS) * time.Millisecond, first: p.Grace, quiet: p.Grace}
}

// watch ends an operation if its box no longer answers.
type watch struct {
	link    *link
	session holdfast.SessionID
	owed    owed
	began   time.Time

	mu     sync.Mutex
	timer  *time.Timer
	stream *yamux.Stream
	// last is the time of the last sign of life. busy is true while the operation waits for its
	// caller, not for the box. over is true once the operation has ended.
	last time.Time
	busy bool
	over bool
	// verdict is the error with which the watch ended the operation; nil if it did not.
	verdict error
}

func (l *link) watch(session holdfast.SessionID, o owed) *watch {
	now := time.Now()
	w := &watch{link: l, session: session, owed: o, began: now, last: now}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(o.until+o.first, w.look)
	return w
}

// opened sets the operation's stream, which the watch interrupts to end the operation.
func (w *watch) opened(s *yamux.Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stream = s
	if w.verdict != nil {
		interrupt(s)
	}
}

// sign records a sign of life. busy is true if the operation now waits for its caller, so that
// the box need not send anything before the next call of sign.
func (w *watch) sign(busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.busy = time.Now(), busy
}

// end stops the watch. It returns the error with which the watch had ended the operation, or nil
// if the operation ended by itself.
func (w *watch) end() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	return w.verdict
}

// look runs when a sign of life is due. If none has come, it asks the box whether it is alive,
// and ends the operation if the box does not answer or the operation takes too long.
func (w *watch) look() {
	w.mu.Lock()
	wait, seen := w.wait(), w.last
	if w.over || wait > 0 {
		w.again(wait)
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	within := probeTime
	if w.owed.endless {
		within = agentProbeTime
	}
	alive := w.link.alive(w.session, within)

	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over || w.busy || !w.last.Equal(seen):
		w.again(w.owed.quiet)
		return
	case !alive:
		alive = !w.link.giveUp()
	}
	limit := w.owed.until + w.owed.first
	if !seen.Equal(w.began) {
		limit = w.owed.until + w.owed.quiet
	}
	switch {
	case !alive:
		w.verdict = &holdfast.Error{
			Op: "box", Kind: holdfast.KindUnavailable, Err: ErrLost,
			Msg:  "the box did not answer the call within " + limit.String() + " and was stopped",
			Hint: "whether the call had an effect is unknown: look at the files, then try again; the next call starts a new box",
		}
	case w.owed.endless:
		w.last = time.Now()
		w.again(w.owed.quiet)
		return
	default:
		w.verdict = holdfast.Errorf(holdfast.KindUnavailable, "box", "the box is alive or frozen, but did not answer the call within %s", limit).
			WithHint("try the call again; the first call may still be carried out")
	}
	if w.stream != nil {
		interrupt(w.stream)
	}
}

// wait returns how long it takes until the next sign of life is due. w.mu is held.
func (w *watch) wait() time.Duration {
	if w.busy {
		return w.owed.quiet
	}
	due := w.began.Add(w.owed.until + w.owed.first)
	if at := w.last.Add(w.owed.quiet); at.After(due) && !w.last.Equal(w.began) {
		due = at
	}
	return time.Until(due)
}

// again sets the timer that calls look. w.mu is held.
func (w *watch) again(after time.Duration) {
	if !w.over {
		w.timer.Reset(after)
	}
}

func interrupt(s *yamux.Stream) {
	_ = s.SetReadDeadline(past)
	_ = s.SetWriteDeadline(past)
}
