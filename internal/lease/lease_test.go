package lease_test

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/lease"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guarded is a driver whose box can lose a wall; a new start has all walls.
type guarded struct {
	sandbox.Driver
	lost atomic.Bool
}

func (g *guarded) WallsHold(holdfast.BoxID) bool { return !g.lost.Load() }

func (g *guarded) Ensure(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	g.lost.Store(false)
	return g.Driver.Ensure(ctx, s)
}

// rig is a lease of a box of a pool.
type rig struct {
	*testing.T
	*lease.Lease
	cfg    lease.Config
	driver *guarded
	pool   *pool.Pool
	spec   sandbox.Spec
	claims atomic.Int64
	// claimed, if set, runs in a claim that has the box.
	claimed func()

	mu sync.Mutex
	// masks are the walls that a policy asks for; now is the policy that decided last.
	masks   map[*policy.Engine]string
	now     *policy.Engine
	over    error
	idle    bool
	notices []any
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, driver: &guarded{Driver: mem.New(mem.Config{})}, masks: map[*policy.Engine]string{}}
	r.spec = sandbox.Spec{Box: "w-a", Dir: filepath.Join(t.TempDir(), "a")}
	r.pool = pool.New(pool.Config{Driver: r.driver, Token: 1, FreezeAfter: -1, StopAfter: -1, OnEvent: func(pool.Event) {}})
	if err := r.pool.Start(t.Context(), false, func(holdfast.BoxID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.pool.Close(context.Background(), true); err != nil {
			t.Error(err)
		}
		if err := r.driver.Remove(context.Background(), r.spec.Box); err != nil {
			t.Error(err)
		}
	})
	r.ask("/first")
	r.cfg = lease.Config{
		Session: holdfast.Session{ID: "s", Trust: holdfast.Untrusted},
		Usable:  func() error { r.mu.Lock(); defer r.mu.Unlock(); return r.over },
		Rules:   func(context.Context) (*policy.Engine, error) { return r.current(), nil },
		Current: r.current,
		Walls:   r.walls,
		Claim: func(ctx context.Context, rules func(context.Context) (*policy.Engine, error), queued func(int)) (*pool.Hold, error) {
			r.claims.Add(1)
			p, err := rules(ctx)
			if err != nil {
				return nil, err
			}
			hold, err := r.claim(r.walls(p))
			if r.claimed != nil {
				r.claimed()
			}
			return hold, err
		},
		Idle: func(context.Context, *sandbox.Box, bool) bool { r.mu.Lock(); defer r.mu.Unlock(); return r.idle },
		Stop: func(ctx context.Context, reason string) error { return r.pool.Stop(ctx, r.spec.Box, reason, 0) },
		Notice: func(_ context.Context, _ holdfast.EventType, data any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notices = append(r.notices, data)
		},
	}
	r.Lease = lease.New(r.cfg)
	return r
}

func (r *rig) current() *policy.Engine { r.mu.Lock(); defer r.mu.Unlock(); return r.now }

func (r *rig) walls(p *policy.Engine) sandbox.Walls {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sandbox.Walls{Masked: []string{r.masks[p]}}
}

// ask makes a policy with a wall the one that decided last.
func (r *rig) ask(mask string) {
	r.Helper()
	p, err := policy.New(policy.Config{})
	if err != nil {
		r.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.masks[p], r.now = mask, p
}

func (r *rig) end(err error) { r.mu.Lock(); defer r.mu.Unlock(); r.over = err }

func (r *rig) claim(walls sandbox.Walls) (*pool.Hold, error) {
	spec := r.spec
	spec.Walls = walls
	return r.pool.Acquire(context.Background(), spec, false, nil)
}

func (r *rig) box() *sandbox.Box {
	r.Helper()
	box, err := r.Box(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return box
}

// released asserts that nobody has the box: only then one with other walls can be had.
func (r *rig) released() {
	r.Helper()
	hold, err := r.claim(sandbox.Walls{Masked: []string{"/other"}})
	if err != nil {
		r.Fatal(err)
	}
	if hold.Stale() {
		r.Error("somebody still has the box")
	}
	hold.Release()
}

// runs starts a process in a box that has no end.
func (r *rig) runs(box *sandbox.Box) {
	r.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		r.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		// It is ended with its box.
		_, _ = box.Exec(ctx, sandbox.Call{ID: holdfast.CallID(id)}, wire.ExecRequest{Shell: "sleep 3600"},
			sandbox.ExecOptions{Started: func(wire.Started) { close(started) }})
	}()
	<-started
	r.Cleanup(func() { cancel(); <-ended })
}

// TestOneClaimAtATime: many calls that need the box at once make one claim, and the next ones none.
func TestOneClaimAtATime(t *testing.T) {
	r := newRig(t)
	boxes := make(chan *sandbox.Box, 16)
	var calls sync.WaitGroup
	for range cap(boxes) {
		calls.Go(func() { boxes <- r.box() })
	}
	calls.Wait()
	close(boxes)
	for box := range boxes {
		if box != r.Held() {
			t.Error("two calls of a turn have different boxes")
		}
	}
	if n := r.claims.Load(); n != 1 {
		t.Errorf("%d claims", n)
	}
	r.End()
	r.released()
}

// TestWallsFollowTheRules: rules that ask for other walls make the turn give its box back and claim
// it again, and rules that ask for the same walls do not.
func TestWallsFollowTheRules(t *testing.T) {
	r := newRig(t)
	boot := r.box().Boot()
	r.ask("/first")
	if r.box().Boot() != boot || r.claims.Load() != 1 {
		t.Error("new rules with the same walls started the box again")
	}
	r.ask("/second")
	if r.box().Boot() == boot || r.claims.Load() != 2 {
		t.Error("a call got a box with older walls than its rules ask for")
	}
	r.End()
	r.released()
}

// TestAStaleBoxIsClaimedAgain: as long as something else keeps the older walls, each call asks for the
// box again, and one notice says so; once nothing does, the box has the walls that were asked for.
func TestAStaleBoxIsClaimedAgain(t *testing.T) {
	r := newRig(t)
	other, err := r.claim(sandbox.Walls{Masked: []string{"/older"}})
	if err != nil {
		t.Fatal(err)
	}
	boot := other.Box.Boot()
	for range 3 {
		if r.box().Boot() != boot {
			t.Fatal("a box that is in use was started again")
		}
	}
	if r.claims.Load() != 3 || len(r.notices) != 1 {
		t.Errorf("%d claims of a stale box, and notices %v", r.claims.Load(), r.notices)
	}
	other.Release()
	for range 2 {
		if r.box().Boot() == boot {
			t.Error("a call got a stale box when nothing used it")
		}
	}
	if r.claims.Load() != 4 {
		t.Errorf("%d claims", r.claims.Load())
	}
	r.End()
	r.released()
}

// TestASharedBoxWithOtherWalls: a box that other sessions use may have their walls. A call gets it only if a call of its own
// session runs there, because the walls are then older ones of the session.
func TestASharedBoxWithOtherWalls(t *testing.T) {
	r := newRig(t)
	own := false
	r.cfg.Shared, r.cfg.Works = true, func(context.Context, *sandbox.Box) bool { return own }
	r.Lease = lease.New(r.cfg)
	boot := r.left(sandbox.Walls{Masked: []string{"/anothers"}})
	r.idle = false
	if _, err := r.Box(t.Context()); !holdfast.IsKind(err, holdfast.KindBusy) || holdfast.HintOf(err) == "" || r.InForce() != nil {
		t.Errorf("a call got a box with the walls of another session: %v", err)
	}
	own = true
	if r.box().Boot() != boot || len(r.notices) != 1 {
		t.Errorf("a box in which the session works was started again, or notices %v", r.notices)
	}
	if by, err := r.InForce()(t.Context()); by != r.current() || err != nil {
		t.Errorf("the walls were made from %p, %v; want %p", by, err, r.current())
	}
	r.End()
	if r.InForce() != nil {
		t.Error("a turn without a box has a policy of its walls")
	}
}

// left has a box with walls in which only an idle agent runs, and returns its boot id.
func (r *rig) left(walls sandbox.Walls) (boot string) {
	r.Helper()
	hold, err := r.claim(walls)
	if err != nil {
		r.Fatal(err)
	}
	r.runs(hold.Box)
	hold.Release()
	r.idle = true
	return hold.Box.Boot()
}

// TestIdleAgentsDoNotKeepOlderWalls: the first claim of a turn ends a stale box in which only idle
// agents run; a later one leaves the box alone, because the agent may work in it.
func TestIdleAgentsDoNotKeepOlderWalls(t *testing.T) {
	r := newRig(t)
	boot := r.left(sandbox.Walls{Masked: []string{"/older"}})
	box := r.box()
	if box.Boot() == boot || len(r.notices) != 0 || r.claims.Load() != 2 {
		t.Errorf("the first claim left the older walls: %d claims, notices %v", r.claims.Load(), r.notices)
	}
	r.runs(box)
	r.ask("/second")
	if r.box().Boot() != box.Boot() || len(r.notices) != 1 {
		t.Error("a later claim of the turn stopped the box in which its agent works")
	}
	r.End()
}

// TestIdleAgentsDoNotKeepOlderSettings: the same holds for a box whose settings changed, but without a notice, because its
// walls are right, and a turn that has the box keeps it.
//
// WS-P12.
func TestIdleAgentsDoNotKeepOlderSettings(t *testing.T) {
	r := newRig(t)
	boot := r.left(sandbox.Walls{Masked: []string{"/first"}})
	r.spec.Limits.Pids = 64
	box := r.box()
	if box.Boot() == boot || len(r.notices) != 0 || r.claims.Load() != 2 {
		t.Errorf("the first claim left the older settings: %d claims, notices %v", r.claims.Load(), r.notices)
	}
	r.spec.Limits.Pids = 32
	if r.box().Boot() != box.Boot() || len(r.notices) != 0 {
		t.Error("a turn lost its box because its settings changed")
	}
	r.End()
	r.runs(box)
	r.idle = false
	if r.box().Boot() != box.Boot() {
		t.Error("a box in which something runs was started again")
	}
	r.End()
}

// TestAMissingWall: a call is denied while a wall is gone; the box is not given to a call then, and
// the turn keeps no claim on it, so that it can start again.
func TestAMissingWall(t *testing.T) {
	r := newRig(t)
	box := r.box()
	if d, gone := r.WallGone(); gone {
		t.Errorf("no wall is gone: %+v", d)
	}
	other, err := r.claim(sandbox.Walls{Masked: []string{"/first"}})
	if err != nil {
		t.Fatal(err)
	}
	r.driver.lost.Store(true)
	if d, gone := r.WallGone(); !gone || d.Verdict != policy.Denied {
		t.Errorf("a call without a wall: %+v, %t", d, gone)
	}
	if _, err := r.Box(t.Context()); !holdfast.IsKind(err, holdfast.KindUnavailable) || !errors.Is(r.Failed(), err) {
		t.Errorf("a box without a wall: %v, failed %v", err, r.Failed())
	}
	other.Release()
	if again := r.box(); again.Boot() == box.Boot() {
		t.Error("the box without a wall goes on")
	}
	r.End()
	r.released()
}

// TestEndDuringAClaim: a turn that ends while it claims its box keeps no claim.
func TestEndDuringAClaim(t *testing.T) {
	r := newRig(t)
	over := errors.New("the turn is over")
	r.claimed = func() {
		r.end(over)
		r.End()
	}
	if box, err := r.Box(t.Context()); !errors.Is(err, over) {
		t.Errorf("%v, %v", box, err)
	}
	r.released()
	r.claimed = nil
	if _, err := r.Box(t.Context()); !errors.Is(err, over) || r.claims.Load() != 1 {
		t.Errorf("a turn that is over claims a box: %v", err)
	}
}

// TestGiveBack: the box is free until the next call needs it, also where a claim was under way.
func TestGiveBack(t *testing.T) {
	r := newRig(t)
	if r.box(); r.Away() {
		t.Error("a turn with its box is away")
	}
	r.GiveBack()
	if r.Held() != nil || !r.Away() {
		t.Error("the turn has the box that it gave back")
	}
	r.released()
	if r.box(); r.Away() {
		t.Error("a turn that asked for its box again is away")
	}
	r.GiveBack()
	given := make(chan struct{})
	r.claimed = func() {
		waits := make(chan struct{})
		go func() {
			defer close(given)
			close(waits)
			r.GiveBack()
		}()
		<-waits
		for range 100 {
			runtime.Gosched()
		}
	}
	r.box()
	<-given
	if r.Held() != nil {
		t.Error("the claim that was under way was not given back")
	}
	r.released()
}

// TestABoxThatEnded: the turn does not keep a box whose pipe broke, and claims another one.
func TestABoxThatEnded(t *testing.T) {
	r := newRig(t)
	box := r.box()
	if err := r.pool.Stop(t.Context(), r.spec.Box, "test", 0); err != nil {
		t.Fatal(err)
	}
	<-box.Done()
	if r.Held() != nil {
		t.Error("the turn has a box that ended")
	}
	if again := r.box(); again.Boot() == box.Boot() {
		t.Error("a call got a box that ended")
	}
	r.End()
	r.released()
}
