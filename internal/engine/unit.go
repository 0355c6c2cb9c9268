package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// units holds a unit for each session in use. The zero value is ready.
type units struct {
	mu sync.Mutex
	at map[holdfast.SessionID]*unit
}

// lock claims a session's unit and locks it.
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

// host returns the host of a session's running turn, or nil if none runs.
func (s *units) host(id holdfast.SessionID) *host {
	s.mu.Lock()
	u := s.at[id]
	s.mu.Unlock()
	if u == nil {
		return nil
	}
	return u.host.Load()
}

// turnOf returns the id of a session's running turn, or "" if none runs.
func (s *units) turnOf(id holdfast.SessionID) holdfast.TurnID {
	if h := s.host(id); h != nil && !h.closed.Load() {
		return h.r.id
	}
	return ""
}

// busy returns the units with a turn that runs, or may be about to.
func (s *units) busy() (out []*unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.at {
		if u.host.Load() != nil || u.starts.Load() {
			out = append(out, u)
		}
	}
	return out
}

// unit is the state of a session in use: the lock under which every decision about the session is
// made, and its running turn. It exists as long as a claim on it does.
type unit struct {
	id holdfast.SessionID
	// refs is the number of claims on the unit; guarded by units.mu.
	refs int

	mu      sync.Mutex
	running *turnRun
	// queued is the number of queued turns. If ask is true, the number may be wrong: then no turn
	// runs, and the next start reads the queued turns from the store.
	queued int
	ask    bool
	// arrived is the number of messages that were queued since the unit was created.
	arrived int
	// retrying is true while a goroutine retries the start of the next turn.
	retrying bool
	// parked is the number of callers that keep turns from starting; none starts while it is above 0.
	parked int
	// host is the host of running, readable without the lock.
	host atomic.Pointer[host]
	// starts is true while a turn may be about to start, so that busy lists the unit; readable without the lock.
	starts atomic.Bool
	// requests are the API request ids behind the queued turns, by turn; guarded by mu.
	requests map[holdfast.TurnID]string
	// warming is closed when the start of an agent ahead of its turn has ended, successfully or not;
	// nil if no such start is under way.
	warming chan struct{}
}

// turnRun is a turn that runs in this server.
type turnRun struct {
	turn
	ctx    context.Context
	cancel context.CancelCauseFunc
	// done is closed after the terminal event is committed, or when the engine closes without it.
	done chan struct{}
	once sync.Once
	host *host
	// begun is how many times the turn's runtime was run again because the store refused a record; guarded by unit.mu.
	begun int
	// recounted is true once the usage from before a crash is loaded into the host's account.
	recounted bool
	// returned is true when the runtime has returned and only the turn's end remains to be recorded.
	returned atomic.Bool
	// warming is the unit's warming channel at the time of the launch.
	warming <-chan struct{}
	// steerSeq is the sequence number of the newest steering message; guarded by unit.mu.
	steerSeq int64
}

// finish closes done, which releases everyone who waits for the turn.
func (r *turnRun) finish() { r.once.Do(func() { close(r.done) }) }

// warmedUp waits for the end of an agent start that was under way when the turn was launched.
func (r *turnRun) warmedUp() {
	if r.warming == nil {
		return
	}
	select {
	case <-r.warming:
	case <-r.ctx.Done():
	}
}

// turn identifies a turn. again is true if it continues after a restart of the server.
type turn struct {
	id         holdfast.TurnID
	number     int64
	messageSeq int64
	startedAt  time.Time
	again      bool
	// request is the id of the API request that started the turn; empty after a restart.
	request string
}

// begins returns the sequence number before the turn's first event: the turn's events come after it.
func (t turn) begins() int64 { return max(t.messageSeq-1, 0) }
