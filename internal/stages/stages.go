// Package stages holds the new turns of a scope back while work that follows a turn is under way,
// such as a snapshot of its files.
//
// The engine owns one Stages. It imports the journal. Invariant: the stages of a scope run one turn after the
// other, in the order in which the turns ended; a session that wanted to start a turn meanwhile is
// returned when the last of them has ended.
package stages

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Stage is work that follows each turn: its terminal event is durable, and no new turn of its scope
// starts before the stage has ended. Turns of the scope that run go on, so a stage may find the box
// at work. It may be slow, as a copy of the files is.
//
// After is called in the order in which turns of the scope ended, never twice at once for a scope. A
// failure becomes a notice in the session's log and holds nothing up. A stage that a crash cut off is not
// made up for by the engine: the stage finds its own state at the next start.
type Stage interface {
	// Name is the name of the stage in notices.
	Name() string
	After(ctx context.Context, s Settled) error
}

// Settled is a turn whose end is in the log.
type Settled struct {
	Row    journal.Row
	Turn   holdfast.TurnID
	Status holdfast.TurnStatus
	// Box is the box of the session's scope, Dir the host's directory with its trees.
	Box holdfast.BoxID
	Dir string
}

// Stages are the scopes in which stages run. The zero value is ready.
type Stages struct {
	mu sync.Mutex
	at map[holdfast.BoxID]*Staged
}

// Staged is a scope with turns whose stages have not ended.
type Staged struct {
	n int
	// last is closed when the stages of the turn that ended last have run.
	last chan struct{}
	// waiting are the sessions that would start a turn.
	waiting []holdfast.SessionID
}

// Begin holds the scope's new turns back. The stages of a turn wait for before, nil for nothing, and
// close own when they have run.
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

// End returns the sessions whose turns may start now.
func (s *Stages) End(box holdfast.BoxID, at *Staged) []holdfast.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.n--; at.n > 0 {
		return nil
	}
	delete(s.at, box)
	return at.waiting
}

// Holds reports whether the turns of a scope wait for stages. If so, the session is remembered for
// their end; first reports that it was not before.
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
