// Package lease gives a turn its session's box.
//
// The engine makes a Lease for each turn. It imports the sandbox and policy. Invariant: a call gets a
// box only while the box's walls stand and are those that the session's rules ask for now.
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
	// Session is the session as it was when the turn began. InServer: its agent runs in the
	// server, and claims its box again before each call.
	Session  holdfast.Session
	InServer bool
	// Usable returns an error once the turn is over.
	Usable func() error
	// Rules returns the turn's policy, Current the one that decided last; nil for none.
	Rules   func(ctx context.Context) (*policy.Engine, error)
	Current func() *policy.Engine
	// Walls returns the walls that a policy asks for.
	Walls func(p *policy.Engine) sandbox.Walls
	// Claim claims the box; its walls are made from the policy that rules returns. Queued is called with
	// the place in the queue where the claim has to wait.
	Claim func(ctx context.Context, rules func(context.Context) (*policy.Engine, error), queued func(position int)) (*pool.Hold, error)
	// Idle reports whether only idle agents run in the box. Stop stops the box.
	Idle func(ctx context.Context, box *sandbox.Box) bool
	Stop func(ctx context.Context, reason string) error
	// Notice records an event of the turn, as well as it can.
	Notice func(ctx context.Context, typ holdfast.EventType, data any)
}

// Lease is the session's box while a turn has it. The turn claims the box at the first call that
// needs one, and gives it back when it ends, waits for a person or its provider, or when the
// walls of the box are no longer those that its rules ask for. Safe for concurrent use.
type Lease struct {
	cfg Config

	// asking is held by the goroutine that gets the box; mu guards the fields and is held
	// for no longer than that takes, so that a turn can be ended at any time.
	asking sync.Mutex
	mu     sync.Mutex
	hold   *pool.Hold
	err    error
	// by is the policy that the walls of the box are made from, hash their hash.
	by   *policy.Engine
	hash string
	// told: the log says that the box has older walls. claimed: the turn has claimed the box
	// before, so that an agent may be working in it.
	told, claimed bool
}

// New makes a Lease without a box.
func New(cfg Config) *Lease { return &Lease{cfg: cfg} }

// Box returns the session's box, claimed and started if need be.
func (l *Lease) Box(ctx context.Context) (*sandbox.Box, error) {
	if box := l.walled(); box != nil {
		return box, nil
	}
	l.asking.Lock()
	defer l.asking.Unlock()
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
		err = Intact(hold, l.cfg.Session.ID, true)
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

// rules returns the turn's policy and remembers that the box's walls are made from it.
func (l *Lease) rules(ctx context.Context) (*policy.Engine, error) {
	var err error
	// The last decision has read the rules just now.
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

// Held returns the box that the turn has, nil for none or if its pipe broke.
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

// walled returns the box of this turn if its walls are in force and are those that the
// session's rules ask for now. Else the turn lets go of the box: the next claim starts
// it again, unless something runs in it.
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

// restarted stops the box of a stale claim if only idle agents run in it, and claims it
// again, with the present walls. Only the first claim of a turn does this, because the
// agent works after it. Any other claim is returned unchanged.
func (l *Lease) restarted(ctx context.Context, hold *pool.Hold) (*pool.Hold, error) {
	l.mu.Lock()
	first := !l.claimed
	l.claimed = true
	l.mu.Unlock()
	if !first || !hold.Stale() || !l.cfg.Idle(ctx, hold.Box) {
		return hold, nil
	}
	hold.Release()
	if err := l.cfg.Stop(ctx, pool.WallsChanged); err != nil {
		return nil, err
	}
	return l.claim(ctx)
}

// stale records, once a turn, a notice that the box has older walls than the rules
// ask for.
func (l *Lease) stale(ctx context.Context) {
	l.mu.Lock()
	told := l.told
	l.told = true
	l.mu.Unlock()
	if !told {
		l.cfg.Notice(ctx, holdfast.EventNotice, holdfast.Notice{Code: noticeWalls, Text: wallsLater})
	}
}

// WallGone denies a call while a wall of the box is missing and something runs in it.
// Once nothing runs, the next call starts the box again with all walls.
func (l *Lease) WallGone() (policy.Decision, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil || l.cfg.InServer || l.hold.WallsHold() {
		return policy.Decision{}, false
	}
	return policy.Decision{Verdict: policy.Denied, By: "walls", Reason: errWallGone(l.cfg.Session.ID).Error()}, true
}

// Failed returns why the box could not be had, nil if it was not so.
func (l *Lease) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// GiveBack releases the box until it is asked for again. It waits for a claim that is under way.
func (l *Lease) GiveBack() {
	l.asking.Lock()
	defer l.asking.Unlock()
	l.End()
}

// End releases the box. The turn is over, so that a claim that is under way releases its own.
func (l *Lease) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold != nil {
		l.hold.Release()
		l.hold = nil
	}
}

// The notice of a box with older walls.
const (
	noticeWalls = "walls.pending"
	wallsLater  = "the path rules changed while something runs in the box: the text of calls and the file tools are held to them at once, its processes from its next start, when the turn has ended or nothing runs"
)

func errWallGone(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "box", "a file or directory was renamed on the host, and a path rule's wall in the box of session %s went with it", id).
		WithHint("let the turn end, or: holdfast session interrupt %s; the box starts again with all walls", id)
}

// Intact refuses a claim whose box lacks a wall. Outside of a turn it also refuses one
// whose walls are older than the rules. It releases a claim that it refuses.
func Intact(hold *pool.Hold, id holdfast.SessionID, turn bool) error {
	var err error
	switch {
	case !hold.WallsHold():
		err = errWallGone(id)
	case hold.Stale() && !turn:
		err = holdfast.Errorf(holdfast.KindBusy, "box", "the path rules of session %s changed, and its box still runs with the older ones", id).
			WithHint("let the turn end, or: holdfast session interrupt %s", id)
	default:
		return nil
	}
	hold.Release()
	return err
}
