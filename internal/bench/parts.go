package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// store measures a single durable commit and the rate of appends.
func (p *pass) store(ctx context.Context) error {
	const sessions = 100
	c, err := p.commits(ctx, "store", sessions)
	if err != nil {
		return err
	}
	defer c.close()
	commits, err := times(500, func(i int) error { return c.one(ctx, i%sessions) })
	if err != nil {
		return err
	}
	f := Figure{Name: "one durable commit (measured first)", Unit: "ms", Samples: commits, Judge: "p50"}
	p.commit = f.Value()
	p.add(f)
	appends, err := rate(sessions, 4*time.Second, func(w, _ int) error { return c.one(ctx, w) })
	if err != nil {
		return err
	}
	p.add(Figure{Name: "durable appends per second, 100 sessions", Unit: "/s", Samples: []float64{appends}, Judge: "rate", Gate: 10_000, More: true, Rule: "10,000"})
	return nil
}

// commits makes durable commits in a database that no server has open.
type commits struct {
	store   *sqlite.Store
	journal *journal.Journal
	ids     []holdfast.SessionID
}

// commits makes a database in a new directory, with n sessions. The caller closes it.
func (p *pass) commits(ctx context.Context, name string, n int) (*commits, error) {
	dir := filepath.Join(p.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	st, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "holdfast.db")})
	if err != nil {
		return nil, err
	}
	c := &commits{store: st, journal: journal.New(journal.Config{Store: st.Sessions, Leases: st.Leases}), ids: make([]holdfast.SessionID, n)}
	for i := range c.ids {
		if c.ids[i], err = bareSession(ctx, c.journal, p.cfg.Clock()); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *commits) close() { _ = c.store.Close() }

// one adds an event to a session in the database.
func (c *commits) one(ctx context.Context, session int) error {
	ch := journal.NewChange(c.ids[session])
	ch.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "bench", Text: "one durable event of about a hundred bytes, as they come"}}}
	_, err := c.journal.Commit(ctx, ch)
	return err
}

// bareSession adds a session to the database without an engine.
func bareSession(ctx context.Context, j *journal.Journal, now time.Time) (holdfast.SessionID, error) {
	id, err := holdfast.NewUUID(now, rand.Reader)
	if err != nil {
		return "", err
	}
	c := journal.NewChange(holdfast.SessionID(id))
	c.Create = &journal.Row{Session: holdfast.Session{
		ID: holdfast.SessionID(id), Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, Trust: holdfast.Untrusted,
		Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions, Tags: []string{}, CreatedAt: now, LastActiveAt: now,
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionCreated, Data: holdfast.SessionCreated{Agent: holdfast.DefaultAgent}}}
	_, err = j.Commit(ctx, c)
	return holdfast.SessionID(id), err
}

// The gates of the local driver.
var (
	gateBox    = Figure{Name: "box ready for the first command, local, no pool", Unit: "ms", Judge: "p50", Gate: 15, Rule: "15 ms", Baseline: "5.9 ms spawn (prototype)"}
	gatePooled = Figure{Name: "box ready, from the pool", Unit: "ms", Judge: "p50", Gate: 2, Rule: "2 ms"}
	gateExec   = Figure{Name: "exec of `true` in a live box, hardened", Unit: "ms", Judge: "p50", Gate: 1.5, Rule: "1.5 ms", Baseline: "1.0 ms (prototype), 45 ms (Docker API)"}
	gateFreeze = Figure{Name: "freeze", Unit: "ms", Judge: "p50", Gate: 1, Rule: "1 ms", Baseline: "0.12 ms"}
	gateThaw   = Figure{Name: "thaw", Unit: "ms", Judge: "p50", Gate: 1, Rule: "1 ms", Baseline: "0.10 ms"}
	gatePSS    = Figure{Name: "boxd of an idle box, PSS", Unit: "MB", Judge: "p50", Gate: 5, Rule: "5 MB", Baseline: "49 MB RSS, 3 processes"}
)

// driver measures boxes without a server.
func (p *pass) driver(ctx context.Context) error {
	home := filepath.Join(p.dir, "driver")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	d, err := local.New(local.Config{Home: home, Boxd: boxd.Local, Now: p.cfg.Clock, Rand: rand.Reader, Owner: fmt.Sprintf("%016x", mathrand.Uint64()), LimitsMode: sandbox.LimitsBestEffort})
	if err != nil {
		return err
	}
	if pr := d.Probe(ctx); !pr.Usable {
		for _, f := range []Figure{gateBox, gatePooled, gateExec, gateFreeze, gateThaw, gatePSS} {
			p.missing(f, errors.New(pr.Reason))
		}
		return nil
	}
	b := &boxes{p: p, home: home, driver: d}
	defer b.close(context.WithoutCancel(ctx))
	if err := b.cold(ctx); err != nil {
		return err
	}
	if err := b.live(ctx); err != nil {
		return err
	}
	return b.pooled(ctx)
}

// boxes drives the local driver through pools.
type boxes struct {
	p      *pass
	home   string
	driver *local.Driver
	pools  []*pool.Pool
	n      atomic.Uint32
}

func (b *boxes) pool(ctx context.Context, prewarm int) (*pool.Pool, error) {
	pool := pool.New(pool.Config{
		Driver: b.driver, Token: uint64(len(b.pools) + 1), MaxBoxes: 200, FreezeAfter: -1, StopAfter: -1, Prewarm: prewarm,
		OnEvent: func(pool.Event) {},
	})
	b.pools = append(b.pools, pool)
	return pool, pool.Start(ctx, false, func(holdfast.BoxID) bool { return true })
}

func (b *boxes) close(ctx context.Context) {
	for _, p := range b.pools {
		_ = p.Close(ctx, true)
	}
	_ = b.driver.Close()
}

func (b *boxes) spec() (sandbox.Spec, error) {
	id, err := holdfast.NewUUID(b.p.cfg.Clock(), rand.Reader)
	if err != nil {
		return sandbox.Spec{}, err
	}
	n := b.n.Add(1)
	return sandbox.Spec{
		Box: holdfast.SessionID(id).Box(), Dir: filepath.Join(b.home, "sessions", id),
		BoxdUID: 1_900_000_000 + 2*n, ToolUID: 1_900_000_001 + 2*n,
		Limits: sandbox.DefaultLimits(), LimitsMode: sandbox.LimitsBestEffort,
	}, nil
}

// acquire takes a new box, a prepared one if warm is set, and returns the milliseconds that this took.
func (b *boxes) acquire(ctx context.Context, pool *pool.Pool, warm sandbox.Prewarmer) (*pool.Hold, float64, error) {
	spec, err := b.spec()
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	if warm != nil {
		var ok bool
		if spec, ok = warm.Reserve(spec); !ok {
			return nil, 0, errors.New("no prepared box was available")
		}
	}
	hold, err := pool.Acquire(ctx, spec, false, func(int) {})
	return hold, clock.Milliseconds(time.Since(began)), err
}

func (b *boxes) cold(ctx context.Context) error {
	pool, err := b.pool(ctx, 0)
	if err != nil {
		return err
	}
	f := gateBox
	for range 40 {
		hold, took, err := b.acquire(ctx, pool, nil)
		if err != nil {
			return err
		}
		f.Samples = append(f.Samples, took)
		hold.Release()
		if err := pool.Remove(ctx, hold.Box.ID()); err != nil {
			return err
		}
	}
	b.p.add(f)
	return nil
}

func (b *boxes) pooled(ctx context.Context) error {
	const ready = 20
	// The pool must not prepare boxes meanwhile: on two cores that would be measured, too, though
	// in practice no boxes start every few milliseconds.
	pool, err := b.pool(ctx, 0)
	if err != nil {
		return err
	}
	warm, ok := any(b.driver).(sandbox.Prewarmer)
	if !ok {
		b.p.missing(gatePooled, errors.New("the driver cannot prepare boxes"))
		return nil
	}
	if err := warm.Prewarm(ctx, ready); err != nil {
		return err
	}
	f := gatePooled
	for range ready {
		hold, took, err := b.acquire(ctx, pool, warm)
		if err != nil {
			return err
		}
		f.Samples = append(f.Samples, took)
		hold.Release()
	}
	// This fails if one of the boxes was not a prepared one.
	if err := warm.Prewarm(ctx, 0); err != nil {
		return err
	}
	b.p.add(f)
	return nil
}

// live measures calls in a running box.
func (b *boxes) live(ctx context.Context) error {
	pool := b.pools[0]
	hold, _, err := b.acquire(ctx, pool, nil)
	if err != nil {
		return err
	}
	id := hold.Box.ID()
	f := gateExec
	if f.Samples, err = times(500, func(int) error { return execTrue(ctx, b.p.cfg.Clock(), hold.Box) }); err != nil {
		return err
	}
	b.p.add(f)
	defer hold.Release()
	if err := b.freezes(ctx, hold.Box); err != nil {
		return err
	}
	return b.weight(ctx, id)
}

// settle is how long a box is left alone until it counts as idle.
const settle = 8 * time.Second

// weight measures the memory that the boxd of an idle box takes.
func (b *boxes) weight(ctx context.Context, id holdfast.BoxID) error {
	if err := clock.Pause(ctx, settle); err != nil {
		return err
	}
	info, err := b.driver.List(ctx)
	if err != nil {
		return err
	}
	for _, i := range info {
		if i.Box == id {
			f := gatePSS
			f.Samples = []float64{memoryOf(i.PID, "Pss:")}
			b.p.add(f)
		}
	}
	return nil
}

// freezes measures freezing and thawing, if the driver can freeze.
func (b *boxes) freezes(ctx context.Context, box *sandbox.Box) error {
	freeze, thaw := gateFreeze, gateThaw
	freezer, ok := any(b.driver).(sandbox.Freezer)
	if !ok {
		b.p.missing(freeze, errors.New("the driver cannot freeze boxes"))
		b.p.missing(thaw, errors.New("the driver cannot freeze boxes"))
		return nil
	}
	for range 100 {
		if err := box.Gate(ctx, true); err != nil {
			return err
		}
		began := time.Now()
		err := freezer.Freeze(ctx, box.ID())
		freeze.Samples = append(freeze.Samples, clock.Milliseconds(time.Since(began)))
		if err != nil {
			b.p.missing(gateFreeze, err)
			b.p.missing(gateThaw, err)
			return nil
		}
		began = time.Now()
		if err := freezer.Thaw(ctx, box.ID()); err != nil {
			return err
		}
		thaw.Samples = append(thaw.Samples, clock.Milliseconds(time.Since(began)))
		if err := box.Gate(ctx, false); err != nil {
			return err
		}
	}
	b.p.add(freeze)
	b.p.add(thaw)
	return nil
}

func execTrue(ctx context.Context, now time.Time, box *sandbox.Box) error {
	id, err := holdfast.NewUUID(now, rand.Reader)
	if err != nil {
		return err
	}
	call := sandbox.Call{ID: holdfast.CallID(id)}
	res, err := box.Exec(ctx, call, wire.ExecRequest{Argv: []string{"true"}}, sandbox.ExecOptions{})
	box.Release(call.ID)
	if err == nil && res.Class != holdfast.ExitOK {
		err = fmt.Errorf("the command `true` in the box ended with %s: %s", res.Class, res.Message)
	}
	return err
}
