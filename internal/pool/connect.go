package pool

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/sandbox"
)

// reconnect makes a new connection to a box that is assumed to be running. If the box is gone, it emits box.lost and
// returns not_found. It stops a hung box, and one that does not answer in two or more tries: then too it returns
// not_found. After an error of the kind busy the box goes on: the driver could not try to connect.
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
			// If the removal fails, the next start of the box or of the server tries it again.
			_ = l.backend.driver.Remove(ctx, l.id)
			return err
		case holdfast.IsKind(err, holdfast.KindConflict), holdfast.IsKind(err, holdfast.KindBusy), ctx.Err() != nil:
			return err
		}
	}
	if tries < 2 {
		return err
	}
	return l.replace(ctx, "boxd does not answer: "+err.Error())
}

// connect opens a connection, sends the hello and opens boxd's gate. If thaw is true, it thaws
// the box first.
func (l *life) connect(ctx context.Context, thaw bool) (*sandbox.Box, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	// Thaw before the hello: a server that was killed while it froze the box left it frozen (HZ-10).
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

// attach records conn as the connection of the box.
func (l *life) attach(ctx context.Context, conn *sandbox.Box) {
	l.mu.Lock()
	fresh, adopted := l.boot != conn.Boot(), l.adopted
	l.mu.Unlock()
	var before hits
	if fresh && adopted {
		// Do not report limits again that the box hit under a former server.
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

// detach closes the connection, if the box has one.
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

// replace stops a box that does not answer. If that succeeds it returns not_found, so that the
// caller starts the box again.
func (l *life) replace(ctx context.Context, reason string) error {
	l.lost(reason)
	if err := l.backend.driver.Stop(ctx, l.id); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool", "box %s does not answer and cannot be stopped: %w", holdfast.Quote(string(l.id)), err)
	}
	return holdfast.Errorf(holdfast.KindNotFound, "pool", "the server stopped box %s for this reason: %s", holdfast.Quote(string(l.id)), reason)
}

// doubt records that boxd does not answer, so that the box is stopped before its next use.
func (l *life) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = true
}

// unanswered implements sandbox.Dialer.Unanswered: it reports whether an unanswered connection is
// to be broken. op need not be held. A box that is frozen or being stopped need not answer.
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

// lost records that the box no longer runs, and emits box.lost with the reason.
func (l *life) lost(reason string) {
	l.mu.Lock()
	boot := l.boot
	l.ended()
	l.mu.Unlock()
	l.backend.emit(Event{Type: holdfast.EventBoxLost, Box: l.id, Ended: holdfast.BoxEnded{Box: l.id, Boot: boot, Reason: reason}})
}

// ended resets the fields of a running box, because it no longer runs; mu is held.
func (l *life) ended() {
	l.running, l.boot, l.frozen, l.adopted, l.hung = false, "", false, false, false
}

// started emits box.started with the limits and protections that are in force and those that are missing.
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
		DurationMS: clock.Milliseconds(time.Since(began)),
	}})
}
