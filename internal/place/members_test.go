package place_test

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// members are sessions that share one box, with a place for each.
type members struct {
	place.Private
	ids []holdfast.SessionID
}

func (m members) Of(id holdfast.SessionID) place.Scope {
	return place.Scope{
		Box: "w-x", Files: "w-x", Dir: filepath.Join(m.Dir, "box"), Home: filepath.Join(m.Dir, string(id)), Owner: id, Shared: true,
		Tree: filepath.Join(m.Dir, "tree"),
	}
}

func (m members) Members(context.Context, holdfast.BoxID) ([]holdfast.SessionID, error) {
	return m.ids, nil
}

// settledRows are rows of sessions whose files exist.
type settledRows struct{ *rows }

func (r settledRows) Row(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	row, err := r.rows.Row(ctx, id)
	row.FilesSeeded, row.HadFiles = true, true
	return row, err
}

func (r settledRows) Live(ctx context.Context, id holdfast.SessionID) (journal.Row, error) {
	return r.Row(ctx, id)
}

func (settledRows) Plugin(_ context.Context, row journal.Row) (string, error) {
	return "/agents/" + string(row.ID), nil
}

func (settledRows) Prepare(journal.Row) (func(context.Context, *sandbox.Box) error, error) {
	return func(context.Context, *sandbox.Box) error { return nil }, nil
}

// present are files of which every tree exists.
type present struct{ place.Files }

func (present) Tree(string) place.Tree { return presentTree{} }

type presentTree struct{ place.Tree }

func (presentTree) Exists(context.Context) bool { return true }

// joined is a driver whose boxes sessions join.
type joined struct {
	*mem.Driver
	join func(sandbox.Member)
}

func (d joined) Ensure(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	asked := spec.Hash()
	spec.Shared = false
	info, err := d.Driver.Ensure(ctx, spec)
	info.Spec = asked
	return info, err
}

func (d joined) Join(_ context.Context, _ holdfast.BoxID, m sandbox.Member) error {
	d.join(m)
	return nil
}

// TestASessionThatJoinsDoesNotLeaveMeanwhile: a session whose place ends while it joins the box joins again. It brings its
// own home and the directory of its own agent.
func TestASessionThatJoinsDoesNotLeaveMeanwhile(t *testing.T) {
	// yamux keeps timers in a sync.Pool, and one made in a bubble may not be used outside.
	empty := func() { runtime.GC(); runtime.GC() }
	empty()
	defer empty()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		joins, goOn := 0, make(chan struct{})
		var got sandbox.Member
		d := joined{mem.New(mem.Config{}), func(m sandbox.Member) { joins++; got = m; <-goOn }}
		p := pool.New(pool.Config{Driver: d, Token: 1, FreezeAfter: -1, StopAfter: -1, OnEvent: func(pool.Event) {}})
		one, other := named["live"], named["claimed"]
		r := settledRows{&rows{live: map[holdfast.SessionID]holdfast.Status{one: holdfast.StatusActive, other: holdfast.StatusActive}}}
		dir := t.TempDir()
		b := place.New(place.Config{
			Dir: dir, Files: present{}, Scopes: members{place.Private{Dir: dir}, []holdfast.SessionID{one, other}},
			Drivers: []place.Driver{{Pool: p, Serves: []holdfast.Trust{holdfast.Untrusted}}},
		}, r)
		if err := b.Start(ctx, false); err != nil {
			t.Fatal(err)
		}
		defer b.Close(ctx, true)
		claim := func() {
			hold, err := b.Acquire(ctx, place.Claim{Session: one, Walls: func(context.Context, journal.Row) (w wire.Walls, err error) { return }})
			if err != nil {
				t.Error(err)
				return
			}
			hold.Release()
		}
		go claim()
		synctest.Wait()
		row, err := r.Row(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := b.Stop(ctx, row, "test"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		claim()
		if joins != 2 {
			t.Errorf("the session joined %d times, want 2: it has no place", joins)
		}
		want := sandbox.Member{Session: one, Home: filepath.Join(dir, string(one), "home"), Agent: "/agents/" + string(one), Token: 1}
		if got != want {
			t.Errorf("joined with %+v, want %+v", got, want)
		}
	})
}

// sized are files that measure each directory by its name.
type sized struct {
	place.Files
	bytes map[string]int64
}

func (s sized) Usage(_ context.Context, dir string) (rooted.Usage, error) {
	return rooted.Usage{Bytes: s.bytes[filepath.Base(dir)], Entries: 1}, nil
}

// TestDiskOfLiveSessions: what a shared box uses of the disk is its directory, its tree and the homes of the sessions that
// may use it, without those of sessions that have ended.
func TestDiskOfLiveSessions(t *testing.T) {
	one, two := named["live"], named["ended"]
	r := &rows{live: map[holdfast.SessionID]holdfast.Status{one: holdfast.StatusActive, two: holdfast.StatusActive}}
	b := place.New(place.Config{
		Dir: "/data", Scopes: members{place.Private{Dir: "/data"}, []holdfast.SessionID{one, two}},
		Files: sized{bytes: map[string]int64{"box": 1, "tree": 10, string(one): 100, string(two): 1000}},
	}, r)
	want := func(when string, bytes, files int64) {
		t.Helper()
		if got, err := b.Disk(t.Context(), "w-x"); err != nil || got.Bytes != bytes || got.Files != files {
			t.Errorf("%s: %+v, %v; want %d bytes in %d files", when, got, err, bytes, files)
		}
	}
	want("both live", 1111, 4)
	r.set(two, holdfast.StatusEnded)
	want("one has ended", 111, 3)
	r.set(one, holdfast.StatusEnded)
	want("both have ended", 11, 2)
}

// TestFirstSessionOfABox: what is asked of a box's sessions in common is asked of one whose row can be read.
func TestFirstSessionOfABox(t *testing.T) {
	one, two := named["live"], named["claimed"]
	r := &rows{live: map[holdfast.SessionID]holdfast.Status{one: holdfast.StatusEnded, two: holdfast.StatusActive}}
	b := place.New(place.Config{Dir: t.TempDir(), Scopes: members{ids: []holdfast.SessionID{named["unknown"], one, two}}}, r)
	if row, ok := place.First(t.Context(), b, "w-x"); !ok || row.ID != one {
		t.Errorf("%q, %t; want %s", row.ID, ok, one)
	}
	r.live = nil
	if row, ok := place.First(t.Context(), b, "w-x"); ok {
		t.Errorf("without a row: %q", row.ID)
	}
}
