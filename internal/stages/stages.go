// Package stages delays the next turns of a scope (the sessions that share a box) while work that
// follows a turn, such as a snapshot of its files, is under way.
//
// The engine owns one Stages. It imports the journal. Invariant: the stages of a scope run for one
// turn after the other, in the order in which the turns ended; a session that tried to start a turn
// meanwhile is returned by End once the last of them has ended.
package stages

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Stage is work that follows each turn. When it begins, the turn's end is durable; until it ends,
// no new turn of the scope starts. Other turns of the scope that already run continue, so the box
// may be at work. A stage may be slow, for example copy the files.
//
// After is called in the order in which turns of the scope ended, for one turn of a scope at a
// time. An error becomes a notice in the session's log and delays nothing. The engine does not
// repeat a stage that a crash cut off: the stage must recover from its own state at the next start.
type Stage interface {
	// Name returns the stage's name for notices.
	Name() string
	After(ctx context.Context, s Settled) error
}

// Settled is a turn whose end is recorded in the log.
type Settled struct {
	Row    journal.Row
	Turn   holdfast.TurnID
	Status holdfast.TurnStatus
	// Box is the id of the scope's box, Dir the host directory with the scope's trees.
	Box holdfast.BoxID
	Dir string
}

// Stages tracks the scopes in which stages run. The zero value is ready.
type Stages struct {
	mu sync.Mutex
	at map[holdfast.BoxID]*Staged
}

// Staged is a scope in which stages of ended turns still run; n is the number of these turns.
type Staged struct {
	n int
	// last is closed when the stages of the most recently ended turn have run.
	last chan struct{}
	// waiting lists the sessions that tried to start a turn meanwhile.
	waiting []holdfast.SessionID
}

// Begin registers the stages of a turn that ended, and thereby delays the scope's next turns. The
// caller waits for before (nil if nothing runs), runs the stages and closes own.
func (s *Stages) Begin(box holdfast.BoxID) (at *Staged, before, own chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at = s.at[box]; at == nil {
		if s.at == nil {
			s.at = map[holdfast.BoxID]*Staged{}
		}
		at = &Staged{}
		s.at[box] = at
	}
	at.n++
	before, own = at.last, make(chan struct{})
	at.last = own
	return at, before, own
}

// End removes the stages of a turn. After the scope's last ones it returns the sessions whose turns
// may start now.
func (s *Stages) End(box holdfast.BoxID, at *Staged) []holdfast.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.n--; at.n > 0 {
		return nil
	}
	delete(s.at, box)
	return at.waiting
}

// Holds reports whether the turns of a scope must wait for stages. If so, End will return the
// session; first is true if the session was not waiting before.
func (s *Stages) Holds(box holdfast.BoxID, id holdfast.SessionID) (held, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.at[box]
	if at == nil {
		return false, false
	}
	if first = !slices.Contains(at.waiting, id); first {
		at.waiting = append(at.waiting, id)
	}
	return true, first
}
