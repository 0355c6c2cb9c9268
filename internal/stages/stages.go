// Package stages delays the next turns of a scope (the sessions that share files) while work that
// follows a turn, such as a snapshot of its files, is under way.
//
// The engine owns one Stages. It imports the journal. Invariant: the stages of a scope run for one
// turn after the other, in the order in which the turns ended; a session that tried to start a turn
// meanwhile is returned once the last of them has ended.
package stages

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Stage is work that follows each turn. When it begins, the turn's end is durable; until it ends,
// no new turn of the scope starts. Other turns of the scope that already run continue, so the files
// may change. A stage may be slow, for example copy the files.
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
	// Number is the number of the turn, Seq that of the event of its end.
	Number, Seq int64
	// Box is the id of the session's box, Dir the host directory with the box's trees.
	Box holdfast.BoxID
	Dir string
	// Idle reports that nothing in the scope's boxes can have changed its files since the stages of
	// the scope's turn before began, whether those succeeded or not.
	Idle bool
}

// Stages tracks the scopes in which stages run. The zero value is ready.
type Stages struct {
	mu sync.Mutex
	at map[holdfast.BoxID]*staged
}

// staged is a scope in which stages still run, or wait for others; n is their number.
type staged struct {
	n int
	// last is the newest place of the scope, whose work runs after all other work.
	last *Place
	// waiting lists the sessions that tried to start a turn meanwhile.
	waiting []holdfast.SessionID
}

// Begin reserves a place for work in the order of the scope's stages, and thereby delays the scope's
// next turns until Run of the returned Place has returned.
func (s *Stages) Begin(box holdfast.BoxID) *Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.at[box]
	if at == nil {
		if s.at == nil {
			s.at = map[holdfast.BoxID]*staged{}
		}
		at = &staged{}
		s.at[box] = at
	}
	at.n++
	p := &Place{of: s, box: box, at: at, before: at.last, own: make(chan struct{})}
	at.last = p
	return p
}

// Place is a place in the order of a scope's stages.
type Place struct {
	of  *Stages
	box holdfast.BoxID
	at  *staged
	// before is the previous place of the scope. It is nil if there is none, and once the work of this place has ended.
	before *Place
	// own is closed when this place was given up.
	own chan struct{}
}

// wait waits until the work of p and of all places before p has ended, or until done is closed. A place that was given
// up without work may have earlier ones whose work still runs.
func (p *Place) wait(done <-chan struct{}) {
	for ; p != nil; p = p.before {
		select {
		case <-p.own:
		case <-done:
			return
		}
	}
}

// Run waits for the work before it, does the work, and gives the place up; nil only gives it up,
// without waiting. If no other work of the scope is left, Run returns the sessions whose turns may
// start now. It must be called once.
func (p *Place) Run(work func()) []holdfast.SessionID {
	if work != nil {
		p.before.wait(nil)
		work()
		p.before = nil
	}
	defer close(p.own)
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.at.n--; p.at.n > 0 {
		return nil
	}
	delete(p.of.at, p.box)
	return p.at.waiting
}

// Wait waits, for at most most, until the work of a scope that began before has ended.
func (s *Stages) Wait(ctx context.Context, box holdfast.BoxID, most time.Duration) {
	last := s.last(box)
	if last == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	last.wait(ctx.Done())
}

// last returns the newest place of a scope; nil if the scope has none.
func (s *Stages) last(box holdfast.BoxID) *Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.at[box]; at != nil {
		return at.last
	}
	return nil
}

// Holds reports whether the turns of a scope must wait for stages. If so, Place.Run returns the
// session later; first is true if the session was not waiting before.
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
