// Package later takes snapshots of sessions outside of turns: some time after people worked in a box, and after its end.
//
// Package snapshot uses it. Invariant: at most one snapshot of a session is due. A caller that takes another snapshot cancels
// the due one first (Disarm), and so learns whether people made the changes.
package later

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Snapshots are the snapshots that are due. Make one with New. Safe for concurrent use.
type Snapshots struct {
	between func(holdfast.SessionID, func(context.Context, journal.Row)) <-chan struct{}
	take    func(context.Context, journal.Row, holdfast.CheckpointReason)

	mu  sync.Mutex
	due map[holdfast.SessionID]*due
	// work counts, for each session, the commands and file operations of people that are under way in its box.
	work map[holdfast.SessionID]int
}

type due struct {
	*time.Timer
	reason holdfast.CheckpointReason
}

// New returns a Snapshots. between runs a function in the background while no turn of the session's scope runs (see
// branch.Sessions); take takes a snapshot.
func New(
	between func(holdfast.SessionID, func(context.Context, journal.Row)) <-chan struct{},
	take func(context.Context, journal.Row, holdfast.CheckpointReason),
) *Snapshots {
	return &Snapshots{between: between, take: take, due: map[holdfast.SessionID]*due{}, work: map[holdfast.SessionID]int{}}
}

// Arm makes a snapshot of a session due after a time, and cancels one that is due already. If that one was of people's
// work (CheckpointDirect), the new one keeps this reason. If a turn of the session runs when the time has passed, the
// snapshot stays due until Disarm: before a turn begins, or at its end, another snapshot is taken.
func (s *Snapshots) Arm(id holdfast.SessionID, reason holdfast.CheckpointReason, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.due[id]; d != nil {
		if d.Stop(); d.reason == holdfast.CheckpointDirect {
			reason = d.reason
		}
	}
	d := &due{reason: reason}
	d.Timer = time.AfterFunc(after, func() {
		taken := s.between(id, func(ctx context.Context, row journal.Row) {
			if s.begin(id, d) {
				s.take(ctx, row, reason)
			}
		})
		if taken == nil {
			return
		}
		<-taken
		s.begin(id, d) // remove it from the snapshots that are due, if take did not
	})
	s.due[id] = d
}

// begin removes a snapshot from the due ones, and reports whether it was one of them.
func (s *Snapshots) begin(id holdfast.SessionID, d *due) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.due[id] == d
	if is {
		delete(s.due, id)
	}
	return is
}

// Disarm cancels the due snapshot of a session. It returns CheckpointDirect if people's work is under way, else the
// reason of the canceled snapshot; "" if none was due.
func (s *Snapshots) Disarm(id holdfast.SessionID) (reason holdfast.CheckpointReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.due[id]; d != nil {
		d.Stop()
		delete(s.due, id)
		reason = d.reason
	}
	if s.work[id] > 0 {
		reason = holdfast.CheckpointDirect
	}
	return reason
}

// Now calls work while no turn of the session's scope runs, and returns when work has returned. If a turn runs, or if
// work has not begun within the time most or before ctx ends, Now returns without calling work.
func (s *Snapshots) Now(ctx context.Context, id holdfast.SessionID, most time.Duration, work func(context.Context, journal.Row)) {
	decided := make(chan struct{}, 1) // holds the first decision: work begins, or the caller of Now has given up waiting
	done := s.between(id, func(ctx context.Context, row journal.Row) {
		select {
		case decided <- struct{}{}:
			work(ctx, row)
		default:
		}
	})
	if done == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case decided <- struct{}{}:
		default:
			<-done
		}
	}
}

// Working is called before each command or file operation of a person in a session's box, and Worked after it. first
// reports that no other such work is under way, and that no snapshot is due.
func (s *Snapshots) Working(id holdfast.SessionID) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work[id]++
	return s.work[id] == 1 && s.due[id] == nil
}

// Worked is called at the end of each command or file operation for which Working was called.
func (s *Snapshots) Worked(id holdfast.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work[id]--; s.work[id] == 0 {
		delete(s.work, id)
	}
}
