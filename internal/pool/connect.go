package pool

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// reconnect makes a new connection to a box that is believed to run. not_found means that the
// box is gone, and that this was told. With more than one try a box that does not answer the
// last one is stopped.
func (l *life) reconnect(ctx context.Context, tries int) error {
	_ = l.detach()
	l.mu.Lock()
	old, adopted, hung := l.boot, l.adopted, l.hung
	l.mu.Unlock()
	if hung {
		return l.replace(ctx, "boxd does not answer")
	}
	began := time.Now()
	var err error
	for range tries {
		var conn *sandbox.Box
		conn, err = l.connect(ctx, true)
		switch {
		case err == nil:
			if old != "" && conn.Boot() != old {
				l.lost("the box was replaced")
				adopted = false
			}
			if conn.Boot() != old && !adopted {
				l.started(conn, sandbox.Info{}, began)
			}
			l.attach(ctx, conn)
			return nil
		case holdfast.IsKind(err, holdfast.KindNotFound):
			l.lost("the box is gone")
			// If the removal fails, the next start of the box or of the server repeats it.
			_ = l.backend.driver.Remove(ctx, l.id)
			return err
		case holdfast.IsKind(err, holdfast.KindConflict), ctx.Err() != nil:
			return err
		}
	}
	if tries < 2 {
		return err
	}
	return l.replace(ctx, "boxd does not answer: "+err.Error())
}

// connect makes a connection, says the hello and opens the gate. With thaw the box may be
// frozen.
func (l *life) connect(ctx context.Context, thaw bool) (*sandbox.Box, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	// Before the hello: a server that was killed while it froze the box left it so (HZ-10).
	if thaw && l.backend.freezer != nil {
		if err := l.backend.freezer.Thaw(ctx, l.id); err != nil && !holdfast.IsKind(err, holdfast.KindUnavailable) {
			return nil, err
		}
	}
	pipe, err := l.backend.driver.Connect(ctx, l.id)
	if err != nil {
		return nil, err
	}
	dialer := l.backend.dialer
	dialer.Unanswered = l.unanswered
	conn, err := dialer.Dial(ctx, l.id, pipe)
	if err != nil {
		return nil, err
	}
	if conn.Welcome().Gated {
		if err := conn.Gate(ctx, false); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// attach makes a connection the one of the box.
func (l *life) attach(ctx context.Context, conn *sandbox.Box) {
	l.mu.Lock()
	fresh, adopted := l.boot != conn.Boot(), l.adopted
	l.mu.Unlock()
	var before hits
	if fresh && adopted {
		// Limits that were met under a former server are not told again.
		if s, err := conn.Stats(ctx); err == nil {
			before = hits{max(s.OOMKills, 0), max(s.PidsRefused, 0)}
		}
	}
	l.mu.Lock()
	l.conn, l.boot, l.running, l.adopted = conn, conn.Boot(), true, false
	l.frozen, l.usedAt = false, time.Now()
	if fresh {
		l.hits, l.noFreeze = before, false
	}
	l.mu.Unlock()
	l.backend.grows()
}

// detach closes the connection, if there is one.
func (l *life) detach() error {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// replace stops a box that does not answer. It returns not_found, so that the caller starts
// another one.
func (l *life) replace(ctx context.Context, reason string) error {
	l.lost(reason)
	if err := l.backend.driver.Stop(ctx, l.id); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s does not answer and cannot be stopped: %w", holdfast.Quote(string(l.id)), err)
	}
	return holdfast.Errorf(holdfast.KindNotFound, "pool", "the server stopped box %s: %s", holdfast.Quote(string(l.id)), reason)
}

// doubt notes that boxd does not answer: the box is stopped before its next use.
func (l *life) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = true
}

// unanswered implements sandbox.Dialer.Unanswered; op need not be held. A box that is frozen
// or being stopped may stand still.
func (l *life) unanswered(conn *sandbox.Box) (breaks bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != conn {
		return true
	}
	if l.frozen || l.moving {
		return false
	}
	l.hung = true
	return true
}

// lost notes and tells that the box does not run any more.
func (l *life) lost(reason string) {
	l.mu.Lock()
	boot := l.boot
	l.ended()
	l.mu.Unlock()
	l.backend.emit(Event{Type: holdfast.EventBoxLost, Box: l.id, Ended: holdfast.BoxEnded{Box: l.id, Boot: boot, Reason: reason}})
}

// ended notes that the box does not run; mu is held.
func (l *life) ended() {
	l.running, l.boot, l.frozen, l.adopted, l.hung = false, "", false, false, false
}

// started tells that the box was started, and which of its limits and walls are in force.
func (l *life) started(conn *sandbox.Box, info sandbox.Info, began time.Time) {
	w := conn.Welcome()
	missing := slices.Clone(w.Missing)
	for _, m := range info.Missing {
		if !slices.Contains(missing, m) {
			missing = append(missing, m)
		}
	}
	l.backend.emit(Event{Type: holdfast.EventBoxStarted, Box: l.id, Started: holdfast.BoxStarted{
		Box: l.id, Boot: w.Boot, Driver: l.backend.name(), InForce: w.InForce, Missing: missing,
		DurationMS: float64(time.Since(began).Microseconds()) / 1000,
	}})
}
