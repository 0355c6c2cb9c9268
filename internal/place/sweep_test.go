package place_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

// named are the sessions of the test.
var named = map[string]holdfast.SessionID{
	"live": "01890a5d-ac96-774b-bcce-000000000001", "stopped": "01890a5d-ac96-774b-bcce-000000000002",
	"ended": "01890a5d-ac96-774b-bcce-000000000003", "unknown": "01890a5d-ac96-774b-bcce-000000000004",
	"claimed": "01890a5d-ac96-774b-bcce-000000000005",
}

// rows knows which sessions exist.
type rows struct {
	place.Sessions
	mu   sync.Mutex
	live map[holdfast.SessionID]holdfast.Status
}

func (r *rows) Row(_ context.Context, id holdfast.SessionID) (row journal.Row, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status, ok := r.live[id]
	if !ok {
		return row, journal.NoSession(id)
	}
	row.ID, row.Status, row.Trust = id, status, holdfast.Untrusted
	return row, nil
}

func (r *rows) set(id holdfast.SessionID, status holdfast.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[id] = status
}

// sweeper is a driver that has left something over.
type sweeper struct {
	sandbox.Driver
	swept int
}

func (s *sweeper) Leftovers(context.Context) ([]sandbox.Leftover, error) {
	return []sandbox.Leftover{{Name: "a cgroup", Reason: "a test"}}, nil
}

func (s *sweeper) Sweep(ctx context.Context) ([]sandbox.Leftover, error) {
	s.swept++
	return s.Leftovers(ctx)
}

// boxesOf names the sessions whose boxes a driver lists, in parentheses where the box does not run.
func boxesOf(t *testing.T, d sandbox.Driver) string {
	t.Helper()
	list, err := d.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range []string{"live", "stopped", "ended", "unknown", "claimed"} {
		for _, i := range list {
			switch {
			case i.Box != named[name].Box():
			case i.Running:
				out = append(out, name)
			default:
				out = append(out, "("+name+")")
			}
		}
	}
	return strings.Join(out, " ")
}

// TestWSR67_SweepEveryThirtyMinutes: every half an hour the boxes of sessions that ended or are unknown are removed, with
// what the driver has left over. Boxes of live sessions stay, with their records when they do not run, and so does a box
// that somebody has claimed.
func TestWSR67_SweepEveryThirtyMinutes(t *testing.T) {
	// yamux keeps timers in a sync.Pool, and one made in a bubble may not be used outside.
	empty := func() { runtime.GC(); runtime.GC() }
	empty()
	defer empty()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		var log bytes.Buffer
		r := &rows{live: map[holdfast.SessionID]holdfast.Status{}}
		d := &sweeper{Driver: mem.New(mem.Config{})}
		p := pool.New(pool.Config{Driver: d, Token: 1, FreezeAfter: -1, StopAfter: -1, OnEvent: func(pool.Event) {}})
		b := place.New(place.Config{
			Dir: t.TempDir(), Drivers: []place.Driver{{Pool: p, Serves: []holdfast.Trust{holdfast.Untrusted}}},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		}, r)
		if err := b.Start(ctx, false); err != nil {
			t.Fatal(err)
		}
		defer b.Close(ctx, true)
		held := map[string]*pool.Hold{}
		for _, name := range []string{"live", "stopped", "ended", "unknown", "claimed"} {
			id := named[name]
			r.set(id, holdfast.StatusActive)
			h, err := p.Acquire(ctx, sandbox.Spec{Box: id.Box(), Dir: filepath.Join(t.TempDir(), name)}, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			if held[name] = h; name != "claimed" {
				h.Release()
			}
		}
		if err := p.Stop(ctx, named["stopped"].Box(), "test", 0); err != nil {
			t.Fatal(err)
		}
		left := func() string { return boxesOf(t, d) }
		r.set(named["ended"], holdfast.StatusEnded)
		r.mu.Lock()
		delete(r.live, named["unknown"])
		delete(r.live, named["claimed"])
		r.mu.Unlock()
		for _, c := range []struct {
			after time.Duration
			want  string
			swept int
		}{
			{29 * time.Minute, "live (stopped) ended unknown claimed", 0},
			{2 * time.Minute, "live (stopped) claimed", 1},
			{30 * time.Minute, "live (stopped) claimed", 2},
		} {
			<-time.After(c.after)
			synctest.Wait()
			if got := left(); got != c.want || d.swept != c.swept {
				t.Errorf("after %v more: %s, swept %d times; want %s, %d", c.after, got, d.swept, c.want, c.swept)
			}
		}
		held["claimed"].Release()
		<-time.After(30 * time.Minute)
		synctest.Wait()
		if got := left(); got != "live (stopped)" {
			t.Errorf("after the claim was released: %s", got)
		}
		for _, want := range []string{`msg="removed what no session uses" name=` + string(named["ended"].Box()), `name="a cgroup"`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %s: %s", want, &log)
			}
		}
		if err := b.Close(ctx, true); err != nil {
			t.Fatal(err)
		}
		swept := d.swept
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if d.swept != swept {
			t.Error("a closed server sweeps")
		}
	})
}
