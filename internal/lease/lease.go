// Package lease claims a session's box for a turn.
//
// The engine makes a Lease for each turn. It imports pool, policy and sandbox. Invariant: a call gets a box only if its
// walls (mounts for path rules) are intact; walls older than the session's rules are accepted only in a box in use.
package lease

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Config configures a Lease. All fields must be set.
type Config struct {
	// Session is the session at the start of the turn. InServer is true if its agent runs in the
	// server, and so calls Box before each call of a tool.
	Session  holdfast.Session
	InServer bool
	// Usable returns an error once the turn is over.
	Usable func() error
	// Rules returns the turn's policy. Current returns the policy of the latest decision; nil before the first.
	Rules   func(ctx context.Context) (*policy.Engine, error)
	Current func() *policy.Engine
	// Walls returns the walls that a policy requires.
	Walls func(p *policy.Engine) sandbox.Walls
	// Claim claims the box; rules returns the policy for its walls. queued is called with the
	// position if the claim has to wait in the queue for boxes.
	Claim func(ctx context.Context, rules func(context.Context) (*policy.Engine, error), queued func(position int)) (*pool.Hold, error)
	// Shared is true if other sessions use the box, too. A turn uses a shared box whose walls differ from the session's
	// rules only if Works reports that a call of the session runs in the box: then they are older walls of this session,
	// because the box has not started again since that call began.
	Shared bool
	Works  func(ctx context.Context, box *sandbox.Box) bool
	// Idle reports whether the only calls that run in the box are idle agents; if alone is true, it
	// also requires that every process in the box belongs to them. Stop stops the box.
	Idle func(ctx context.Context, box *sandbox.Box, alone bool) bool
	Stop func(ctx context.Context, reason string) error
	// Notice records an event of the turn; failures are only logged.
	Notice func(ctx context.Context, typ holdfast.EventType, data any)
}

// Lease holds the session's box for a turn. The turn claims the box at the first call that needs
// one. It gives the box back when the turn ends, waits for a person or its provider, or when the
// box's walls no longer match the rules. Safe for concurrent use.
type Lease struct {
	cfg Config

	// asking is held by the goroutine that claims the box. mu guards the fields and is held only
	// briefly, so that a turn can be ended at any time.
	asking sync.Mutex
	mu     sync.Mutex
	hold   *pool.Hold
	err    error
	// by is the policy for which the turn last claimed the box, or a newer one with the same walls; hash is the hash of
	// its walls. A box in which something still runs may have older walls.
	by   *policy.Engine
	hash string
	// told is true once the turn has recorded a notice that the box has older walls. claimed is true once the turn has
	// claimed the box, so that an agent may be working in it.
	told, claimed bool
	// away is true from GiveBack until the next call of Box.
	away bool
}

// New returns a Lease that holds no box yet.
func New(cfg Config) *Lease { return &Lease{cfg: cfg} }

// Box returns the session's box; if the turn does not hold it, Box claims it and starts it if necessary.
func (l *Lease) Box(ctx context.Context) (*sandbox.Box, error) {
	if box := l.walled(); box != nil {
		return box, nil
	}
	l.asking.Lock()
	defer l.asking.Unlock()
	l.mu.Lock()
	l.away = false
	l.mu.Unlock()
	if box := l.walled(); box != nil {
		return box, nil
	}
	if err := l.cfg.Usable(); err != nil {
		return nil, err
	}
	hold, err := l.claim(ctx)
	if err == nil {
		hold, err = l.restarted(ctx, hold)
	}
	if err == nil {
		hold, err = Intact(hold, l.cfg.Session.ID, !l.cfg.Shared || hold.Stale() && l.cfg.Works(ctx, hold.Box))
	}
	if err == nil && hold.Stale() {
		l.stale(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			l.err = err
		}
		return nil, err
	}
	if err := l.cfg.Usable(); err != nil {
		hold.Release()
		return nil, err
	}
	l.hold = hold
	return hold.Box, nil
}

func (l *Lease) claim(ctx context.Context) (*pool.Hold, error) {
	queued := func(position int) { l.cfg.Notice(ctx, holdfast.EventBoxQueued, holdfast.BoxQueued{Position: position}) }
	return l.cfg.Claim(ctx, l.rules, queued)
}

// rules returns the turn's policy, and stores it as the one that the box's walls are made from.
func (l *Lease) rules(ctx context.Context) (*policy.Engine, error) {
	var err error
	// The policy of the latest decision, if there is one, is up to date.
	p := l.cfg.Current()
	if p == nil {
		p, err = l.cfg.Rules(ctx)
	}
	if err == nil {
		hash := l.cfg.Walls(p).Hash()
		l.mu.Lock()
		l.by, l.hash = p, hash
		l.mu.Unlock()
	}
	return p, err
}

// InForce returns a function that returns the policy that the walls of the turn's box were made from; nil if the turn
// holds no box.
func (l *Lease) InForce() func(context.Context) (*policy.Engine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return nil
	}
	by := l.by
	return func(context.Context) (*policy.Engine, error) { return by, nil }
}

// Held returns the box that the turn holds; nil if it holds none or the connection to it broke.
func (l *Lease) Held() *sandbox.Box {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil || l.cfg.Usable() != nil {
		return nil
	}
	select {
	case <-l.hold.Box.Done():
		l.hold.Release()
		l.hold = nil
		return nil
	default:
		return l.hold.Box
	}
}

// walled returns the turn's box if its walls are intact and match the session's current rules, and the box of a trusted
// session in any case. Otherwise it releases the box and returns nil: the next claim restarts it, unless something runs
// in it.
func (l *Lease) walled() *sandbox.Box {
	box := l.Held()
	if box == nil || l.cfg.Session.Trust != holdfast.Untrusted {
		return box
	}
	now := l.cfg.Current()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return nil
	}
	if now != nil && now != l.by && l.cfg.Walls(now).Hash() == l.hash {
		l.by = now
	}
	if (now == nil || now == l.by) && !l.hold.Stale() && l.hold.WallsHold() {
		return box
	}
	l.hold.Release()
	l.hold = nil
	return nil
}

// restarted handles a claim whose box has older walls or settings: if only idle agents run in the box, it stops
// the box and claims it again, with the current ones. It does so only for the first claim of a
// turn, because afterwards the agent is at work. Other claims are returned unchanged.
func (l *Lease) restarted(ctx context.Context, hold *pool.Hold) (*pool.Hold, error) {
	l.mu.Lock()
	first := !l.claimed
	l.claimed = true
	l.mu.Unlock()
	if !first || !hold.Stale() && !hold.Drifted() || !l.cfg.Idle(ctx, hold.Box, !hold.Stale()) {
		return hold, nil
	}
	reason := pool.SpecChanged
	if hold.Stale() {
		reason = pool.WallsChanged
	}
	hold.Release()
	if err := l.cfg.Stop(ctx, reason); err != nil {
		return nil, err
	}
	return l.claim(ctx)
}

// stale records a notice, at most one in a turn, that the box has older walls than the session's rules require.
func (l *Lease) stale(ctx context.Context) {
	l.mu.Lock()
	told := l.told
	l.told = true
	l.mu.Unlock()
	if !told {
		l.cfg.Notice(ctx, holdfast.EventNotice, holdfast.Notice{Code: noticeWalls, Text: wallsLater})
	}
}

// WallGone returns a denial, for an agent outside of the server, while a wall of the turn's box is missing because its
// file was renamed on the host. Once nothing runs in the box, the next call restarts it with all walls.
func (l *Lease) WallGone() (policy.Decision, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil || l.cfg.InServer || l.hold.WallsHold() {
		return policy.Decision{}, false
	}
	return policy.Decision{Verdict: policy.Denied, By: "walls", Reason: errWallGone(l.cfg.Session.ID).Error()}, true
}

// Failed returns the last error with which the box could not be claimed; nil if there was none.
func (l *Lease) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// GiveBack releases the box until the next call of Box. It waits for a claim that is under way.
func (l *Lease) GiveBack() {
	l.asking.Lock()
	defer l.asking.Unlock()
	l.End()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
}

// Away reports whether the turn has given the box back and not asked for it since.
func (l *Lease) Away() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

// End releases the box at the end of the turn. A call of Box that is still claiming the box releases it itself, because
// Config.Usable then fails.
func (l *Lease) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold != nil {
		l.hold.Release()
		l.hold = nil
	}
}

// The code and text of the notice that a box still has older walls.
const (
	noticeWalls = "walls.pending"
	wallsLater  = "the path rules changed while something runs in the box: calls and file tools follow the new rules at once; processes in the box follow them when the box starts again, after the turn has ended or nothing runs in it"
)

func errWallGone(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "box", "a file or directory was renamed on the host, so a path rule no longer protects its path in the box of session %s", id).
		WithHint("let the turn end, or: holdfast session interrupt %s; the box then starts again with all path rules", id)
}

// Intact returns hold, a claim of a box. If a wall of the box is missing, it releases the claim and returns an error.
// It does the same if the box has older walls than the session's rules require and others is false.
func Intact(hold *pool.Hold, id holdfast.SessionID, others bool) (*pool.Hold, error) {
	var err error
	switch {
	case !hold.WallsHold():
		err = errWallGone(id)
	case hold.Stale() && !others:
		err = holdfast.Errorf(holdfast.KindBusy, "box", "the box of session %s still runs with older path rules than the session has now", id).
			WithHint("let the turn end, or: holdfast session interrupt %s", id)
	default:
		return hold, nil
	}
	hold.Release()
	return nil, err
}
