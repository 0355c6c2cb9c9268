package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// unit is a session in use: the lock under which every decision about it is
// taken, and what runs. It exists while somebody uses it.
type unit struct {
	id holdfast.SessionID
	// refs is guarded by Engine.mu.
	refs int

	mu      sync.Mutex
	running *turnRun
	// queued counts the turns that wait. It is right unless ask is set: then none
	// runs, some may wait, and the store knows.
	queued int
	ask    bool
	// arrived counts the messages that were queued.
	arrived int
	// retrying: somebody tries to start the next turn until it works.
	retrying bool
	// importing: somebody gives the session its first files.
	importing bool
	// parked counts those who are about to take the session away from its turns:
	// while it is not 0 no turn starts.
	parked int
	// busy mirrors running != nil for readers without the lock.
	busy atomic.Bool
	// host is that of running, for readers without the lock.
	host atomic.Pointer[host]

	// requests are the ids of the requests that started what is queued; guarded by mu.
	requests map[holdfast.TurnID]string

	// warming is closed when the agent that is started ahead of a turn is there, or is
	// not; nil while nobody is at it.
	warming chan struct{}

	// rules counts the changes of the session's permission rules, so that a running
	// turn reads them anew. Whoever commits one raises it afterwards.
	rules atomic.Int64
}

// turnRun is a turn under way.
type turnRun struct {
	turn
	ctx    context.Context
	cancel context.CancelCauseFunc
	// done is closed after the terminal event's commit, or when the turn was let go.
	done chan struct{}
	once sync.Once
	host *host
	// begun is how often the turn was begun anew because the store refused a
	// record; guarded by unit.mu.
	begun int
	// recounted: the account of a turn from before a crash is filled.
	recounted bool
	// returned: the runtime is done, only the record of the turn's end is due.
	returned atomic.Bool
	// warming is that of the unit when the turn was launched.
	warming <-chan struct{}
	// steerSeq is the newest steering message; guarded by unit.mu.
	steerSeq int64
}

// finish lets everybody who waits for the turn go on.
func (r *turnRun) finish() { r.once.Do(func() { close(r.done) }) }

// turn is a turn's identity.
type turn struct {
	id         holdfast.TurnID
	number     int64
	messageSeq int64
	startedAt  time.Time
	again      bool
	// request is the id of the request that started it, in this life of the server.
	request string
}

// lock claims a session's unit and its lock.
func (e *Engine) lock(id holdfast.SessionID) *unit {
	u := e.claim(id)
	u.mu.Lock()
	return u
}

func (e *Engine) unlock(u *unit) {
	u.mu.Unlock()
	e.disclaim(u)
}

// claim keeps a unit alive without locking it.
func (e *Engine) claim(id holdfast.SessionID) *unit {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := e.units[id]
	if u == nil {
		u = &unit{id: id}
		e.units[id] = u
	}
	u.refs++
	return u
}

func (e *Engine) disclaim(u *unit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if u.refs--; u.refs == 0 {
		delete(e.units, u.id)
	}
}
