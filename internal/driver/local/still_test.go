//go:build linux

package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// busy is a script that leaves a process which appends to the file beat without a pause.
const busy = "while true; do echo x >> beat; done >/dev/null 2>&1 &"

// pause waits between two looks at the file.
func pause(d time.Duration) { <-time.After(d) }

// pooled starts a pool over a driver.
func pooled(t *testing.T, d *local.Driver, token uint64) *pool.Pool {
	t.Helper()
	p := pool.New(pool.Config{Driver: d, Token: token, FreezeAfter: -1, StopAfter: -1})
	if err := p.Start(t.Context(), false, func(holdfast.BoxID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
	return p
}

// beatSize returns the size of the file that busy appends to.
func beatSize(s sandbox.Spec) int64 {
	st, err := os.Stat(filepath.Join(s.Dir, "workspace", "beat"))
	if err != nil {
		return 0
	}
	return st.Size()
}

// TestHZ10_StillBox: a busy process appends nothing during Still and goes on afterwards. While a
// second turn has the box, nothing is frozen.
func TestHZ10_StillBox(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	if !capable(t, d, "freeze") {
		t.Skip("no freezer here")
	}
	p, s := pooled(t, d, 1), spec(dir, "still")
	t.Cleanup(func() { _ = d.Remove(context.Background(), s.Box) })
	turn := func() *pool.Hold {
		h, err := p.Acquire(t.Context(), s, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := turn()
	sh(t, h.Box, busy)
	grows := func(what string) {
		before := beatSize(s)
		testkit.Eventually(t, what, func() bool { return beatSize(s) > before })
	}
	grows("a heartbeat")
	second := turn()
	h.Release()
	frozen, err := p.Still(t.Context(), s.Box, 10*time.Second, nil, func(context.Context) error {
		grows("a heartbeat beside a second turn")
		return nil
	})
	if frozen || err != nil {
		t.Errorf("with a second turn: frozen %v, %v", frozen, err)
	}
	second.Release()
	for range 20 {
		frozen, err = p.Still(t.Context(), s.Box, 10*time.Second, nil, func(context.Context) error {
			before := beatSize(s)
			pause(5 * time.Millisecond)
			if now := beatSize(s); now != before {
				t.Errorf("a process wrote during Still: %d to %d", before, now)
			}
			return nil
		})
		if !frozen || err != nil {
			t.Errorf("frozen %v, %v", frozen, err)
		}
		grows("a heartbeat after Still")
	}
	again := turn()
	defer again.Release()
	sh(t, again.Box, "true")
}

// playStill is a server that is killed within Still.
func playStill(ctx context.Context, d *local.Driver, s sandbox.Spec) int {
	p := pool.New(pool.Config{Driver: d, Token: 1, FreezeAfter: -1, StopAfter: -1})
	if err := p.Start(ctx, false, func(holdfast.BoxID) bool { return true }); err != nil {
		fmt.Println(err)
		return 9
	}
	h, err := p.Acquire(ctx, s, true, nil)
	if err != nil {
		fmt.Println(err)
		return 10
	}
	res, err := h.Box.Exec(ctx, sandbox.Call{ID: "01890a5d-ac96-774b-bcce-b302099a8057"}, wire.ExecRequest{Shell: busy}, sandbox.ExecOptions{})
	if err != nil || res.Class != holdfast.ExitOK {
		fmt.Println(res, err)
		return 11
	}
	h.Release()
	_, err = p.Still(ctx, s.Box, time.Hour, nil, func(ctx context.Context) error {
		fmt.Println("still")
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	return 12
}

// TestHZ10_KilledWithinStill: a server that is killed within Still leaves a frozen box; the next
// one thaws it at its start.
func TestHZ10_KilledWithinStill(t *testing.T) {
	dir := home(t)
	d := open(t, dir, bestEffort)
	if !capable(t, d, "freeze") {
		t.Skip("no freezer here")
	}
	s := spec(dir, "killed")
	t.Cleanup(func() { _ = d.Remove(context.Background(), s.Box) })
	cmd, lines := serve(t, dir, s, "LOCAL_TEST_STILL=1")
	for lines.Scan() && lines.Text() != "still" {
		if line := lines.Text(); line != "starting" {
			t.Fatal(line)
		}
	}
	kill(t, cmd)
	before := beatSize(s)
	pause(20 * time.Millisecond)
	if infos, err := d.List(t.Context()); err != nil || len(infos) != 1 || !infos[0].Frozen || beatSize(s) != before {
		t.Fatalf("the killed server left %+v, %v, and a file of %d bytes with %d before", infos, err, beatSize(s), before)
	}
	p := pooled(t, d, 2)
	testkit.Eventually(t, "a heartbeat under the next server", func() bool { return beatSize(s) > before })
	h, err := p.Acquire(t.Context(), s, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	sh(t, h.Box, "true")
}
