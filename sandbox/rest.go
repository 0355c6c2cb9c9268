package sandbox

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// vitals is what a connection knows of the processes in its box; the link's lock guards it.
type vitals struct {
	// issued is how many requests were sent that may change something: see wire.Op.Changes.
	issued uint64
	// said is boxd's latest count of processes; it is not valid before known is true.
	said  wire.Alive
	known bool
	// at is the time at which said arrived.
	at time.Time
}

// issue counts a request that is about to be sent, if the request may change something.
func (l *link) issue(op wire.Op) {
	if !op.Changes() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life.issued++
}

// heard records a count of processes from boxd. It ignores a count that is older than the recorded one, by the
// number of requests that had ended.
func (l *link) heard(a wire.Alive) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.known && a.Ended < l.life.said.Ended {
		return
	}
	l.life.said, l.life.known, l.life.at = a, true, time.Now()
}

// aged marks the count of processes as old, so that it is not taken for the present one: some processes were
// killed since.
func (l *link) aged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life.at = time.Time{}
}

// Alive returns how many processes live in the box, boxd excluded: see wire.Alive. boxd counts them
// at the end of each call that may change something, so Alive asks nothing. known is false while
// a call that may change something runs in any session, or its end was not seen, and if boxd cannot count.
func (b *Box) Alive() (processes int, known bool) {
	v, known := b.link.living()
	return v.said.Processes, known
}

// living returns what the connection knows of the processes. If their count is not known, known is false and the
// count is 0.
func (l *link) living() (v vitals, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v = l.life
	if known = v.known && v.said.Ended == v.issued && v.said.Processes >= 0; !known {
		v.said.Processes = 0
	}
	return v, known
}

// freshCount is how old a count of processes may be to be used without asking boxd again, for example after a turn
// that just ran a command.
const freshCount = time.Second

// Rest identifies a state of a box in which no process lives and no call runs. If a box is found in
// equal states at two times, nothing has run in it between them, and no operation has changed its
// files. The zero Rest is that of a box that does not run.
type Rest struct {
	conn   <-chan struct{}
	issued uint64
}

// Of reports whether r was found through the connection of b, whichever session used it.
func (r Rest) Of(b *Box) bool { return r.conn == b.Done() }

// Rest returns the state of a box in which no process lives and no call runs. ok is false if the box is in another
// state, or if its state cannot be found out. Rest asks boxd only if the count of processes is not known, or is above
// zero and older than freshCount. So for that time ok may still be false after the last process has ended.
func (b *Box) Rest(ctx context.Context) (r Rest, ok bool) {
	v, known := b.link.living()
	if !known || v.said.Processes > 0 && time.Since(v.at) >= freshCount {
		if _, err := b.Stats(ctx); err != nil {
			return Rest{}, false
		}
		v, known = b.link.living()
	}
	if !known || v.said.Processes > 0 {
		return Rest{}, false
	}
	return Rest{b.Done(), v.issued}, true
}
