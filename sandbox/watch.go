package sandbox

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
)

// Patience is how long operations wait for a box that gives no sign of life. Zero
// fields take the defaults.
type Patience struct {
	// Silence is how long a box may send nothing about an operation under way (default
	// 1 min); Grace is how long after the timeout of a process its end may stay unknown
	// (default 10 s). Then the box is asked whether it is alive.
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

// probeTime is how long a box may take to answer whether it is alive. agentProbeTime is the same
// during a process without a timeout: such a box is asked as a matter of routine.
const (
	probeTime      = 3 * time.Second
	agentProbeTime = 10 * time.Second
)

// ErrUnsent is in the chain of the error of an operation whose request never reached the box.
var ErrUnsent error = &holdfast.Error{
	Op: "box", Kind: holdfast.KindUnavailable, Msg: "the pipe to the box broke before the call was sent",
	Hint: "nothing was done: try again", Err: ErrLost,
}

// giveUp breaks the pipe of a box that gives no sign of life, unless it is known to stand still.
func (l *link) giveUp() (broken bool) {
	if !l.unanswered() {
		return false
	}
	_ = l.streams.Close()
	return true
}

// alive asks the box something and reports whether it answered in time. It returns in time even
// if the pipe takes no byte.
func (l *link) alive(session holdfast.SessionID, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(linkContext{l}, within)
	defer cancel()
	answered := make(chan bool, 1)
	go func() {
		_, err := (&Box{l, session}).Calls(ctx)
		// A refusal is an answer.
		answered <- err == nil || ctx.Err() == nil && !holdfast.IsKind(err, holdfast.KindUnavailable)
	}()
	select {
	case ok := <-answered:
		return ok
	case <-ctx.Done():
		return false
	}
}

// owed says how long a box may be silent about an operation: the first sign of life is due
// within until+first, each next one within quiet. An endless operation may take as long as the
// box is alive.
type owed struct {
	until, first, quiet time.Duration
	endless             bool
}

// operation returns what a box owes to any operation but a process.
func (p Patience) operation() owed { return owed{first: p.Silence, quiet: p.Silence} }

// process returns what a box owes to a process with a timeout in milliseconds, 0 being none.
func (p Patience) process(timeoutMS int64) owed {
	if timeoutMS <= 0 {
		return owed{first: p.Grace, quiet: p.Silence, endless: true}
	}
	return owed{until: time.Duration(timeoutMS) * time.Millisecond, first: p.Grace, quiet: p.Grace}
}

// watch ends an operation when its box does not answer any more.
type watch struct {
	link    *link
	session holdfast.SessionID
	owed    owed
	began   time.Time

	mu     sync.Mutex
	timer  *time.Timer
	stream *yamux.Stream
	// last is the time of the last sign of life. busy: the operation waits for its caller, not
	// for the box.
	last time.Time
	busy bool
	over bool
	// verdict is why the operation was ended; nil while it was not.
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

// opened sets the stream that is interrupted when the operation is ended.
func (w *watch) opened(s *yamux.Stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stream = s
	if w.verdict != nil {
		interrupt(s)
	}
}

// sign notes a sign of life; busy: until the next one the operation waits for its caller.
func (w *watch) sign(busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.busy = time.Now(), busy
}

// end ends the watch and returns its verdict: nil if the operation ended by itself.
func (w *watch) end() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	return w.verdict
}

// look asks the box whether it is alive, once a sign of life is due.
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
			Msg:  "the box did not answer within " + limit.String() + " and was stopped",
			Hint: "whether the call had an effect is unknown: look at the files, then try again; the next call starts a new box",
		}
	case w.owed.endless:
		w.last = time.Now()
		w.again(w.owed.quiet)
		return
	default:
		w.verdict = holdfast.Errorf(holdfast.KindUnavailable, "box", "the box did not answer within %s; it is alive or frozen", limit).
			WithHint("try again; the first request may still be carried out")
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

// again looks again after a while. w.mu is held.
func (w *watch) again(after time.Duration) {
	if !w.over {
		w.timer.Reset(after)
	}
}

func interrupt(s *yamux.Stream) {
	_ = s.SetReadDeadline(past)
	_ = s.SetWriteDeadline(past)
}
