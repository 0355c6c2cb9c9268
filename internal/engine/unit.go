package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// units are the sessions in use. The zero value is ready.
type units struct {
	mu sync.Mutex
	at map[holdfast.SessionID]*unit
}

// lock claims a session's unit and its lock.
func (s *units) lock(id holdfast.SessionID) *unit {
	u := s.claim(id)
	u.mu.Lock()
	return u
}

func (s *units) unlock(u *unit) {
	u.mu.Unlock()
	s.disclaim(u)
}

// claim keeps a unit alive without locking it.
func (s *units) claim(id holdfast.SessionID) *unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.at[id]
	if u == nil {
		if s.at == nil {
			s.at = map[holdfast.SessionID]*unit{}
		}
		u = &unit{id: id}
		s.at[id] = u
	}
	u.refs++
	return u
}

func (s *units) disclaim(u *unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.refs--; u.refs == 0 {
		delete(s.at, u.id)
	}
}

// host returns the host of a session's running turn, nil if none runs.
func (s *units) host(id holdfast.SessionID) *host {
	s.mu.Lock()
	u := s.at[id]
	s.mu.Unlock()
	if u == nil {
		return nil
	}
	return u.host.Load()
}

// turnOf returns the turn of a session that runs now; empty for none.
func (s *units) turnOf(id holdfast.SessionID) holdfast.TurnID {
	if h := s.host(id); h != nil && !h.closed.Load() {
		return h.r.id
	}
	return ""
}

// busy returns the units with a running turn.
func (s *units) busy() []*unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*unit
	for _, u := range s.at {
		if u.host.Load() != nil {
			out = append(out, u)
		}
	}
	return out
}

// unit is a session in use: the lock under which every decision about it is
// taken, and what runs. It exists while somebody uses it.
type unit struct {
	id holdfast.SessionID
	// refs is guarded by units.mu.
	refs int

	mu      sync.Mutex
	running *turnRun
	// queued counts the turns that wait. It is right unless ask is set: then none
	// runs, some may wait, and the store knows.
	queued int
	ask    bool
	// arrived counts the messages that were queued.
	arrived int
	// retrying: a goroutine tries to start the next turn until it works.
	retrying bool
	// parked counts those who are about to take the session away from its turns:
	// while it is not 0 no turn starts.
	parked int
	// host is that of running, for readers without the lock.
	host atomic.Pointer[host]

	// requests are the ids of the requests that started the queued turns; guarded by mu.
	requests map[holdfast.TurnID]string

	// warming is closed when the start of an agent ahead of its turn has ended, well or not;
	// nil while none is under way.
	warming chan struct{}

	// rules counts the changes of the session's permission rules, so that a running
	// turn reads them again. The one who commits a change raises it afterwards.
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
	// begun is how often the turn was begun again because the store refused a
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

// warmedUp waits until the session's agent is started, if a start is under way.
func (r *turnRun) warmedUp() {
	if r.warming == nil {
		return
	}
	select {
	case <-r.warming:
	case <-r.ctx.Done():
	}
}

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

// begins returns the sequence number before the turn's first event: the turn's events come after it.
func (t turn) begins() int64 { return max(t.messageSeq-1, 0) }
