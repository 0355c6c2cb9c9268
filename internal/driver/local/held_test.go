//go:build linux

package local_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// holding runs the probe, as the shell writes it, until it has taken what it takes.
// The end of the test ends it.
func holding(t *testing.T, b *sandbox.Box, script string) (end func()) {
	t.Helper()
	taken, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	call := newCall(t)
	go func() {
		defer close(done)
		res, err := b.Exec(ctx, call, wire.ExecRequest{Shell: script, Merge: true}, sandbox.ExecOptions{Stdout: w})
		_ = w.CloseWithError(fmt.Errorf("%s ended: %+v %w", script, res, err))
	}()
	go func() {
		buf := make([]byte, 64)
		text := ""
		for {
			n, err := r.Read(buf)
			if text += string(buf[:n]); strings.HasPrefix(text, "taken") {
				close(taken)
				_, _ = io.Copy(io.Discard, r)
				return
			}
			if err != nil {
				t.Errorf("%q %v", text, err)
				return
			}
		}
	}()
	end = func() {
		if err := b.Kill(t.Context(), wire.KillRequest{Call: call.ID}); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
	}
	select {
	case <-taken:
	case <-done:
	}
	return end
}

// TestHeldFilesWithoutAName: what processes keep of files that were removed is
// found, however they keep it, once each, or else it is said that something is
// hidden; what is in memory is not counted, and nothing stays counted.
func TestHeldFilesWithoutAName(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Run("ordinary user", func(t *testing.T) { testkit.AsUser(t, "^TestHeldFilesWithoutAName$", withProbe(t)) })
	}
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "held")
	b := box(t, d, s)
	install(t, b)
	held := func() sandbox.DiskUsage {
		u, err := d.Held(t.Context(), s.Box)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	const size, slack = 24 << 20, 1 << 20
	before := held()
	if before.Bytes > slack || before.Hidden {
		t.Fatalf("an idle box holds %+v", before)
	}
	root := os.Geteuid() == 0
	for _, c := range []struct {
		name, script string
		hidden       bool
		bytes        int64
	}{
		{"open", "./probe unlinked open . 25165824 0 60000", false, size},
		{"open in several processes", "exec 3>ghost; rm ghost; head -c 25165824 /dev/zero >&3; sleep 60 & sleep 60 & echo taken; wait", false, size},
		{"open in a thread", "./probe unlinked thread . 25165824 0 60000", false, size},
		{"mapped", "./probe unlinked mapped . 25165824 0 60000", !root, 0},
		{"sent and not received", "./probe unlinked sent . 25165824 0 60000", true, 0},
		{"in memory", "./probe unlinked open /tmp 25165824 0 60000", false, 0},
	} {
		if c.name == "mapped" && root {
			c.bytes = size
		}
		end := holding(t, b, c.script)
		u := held()
		if got := u.Bytes - before.Bytes; got < c.bytes || got > c.bytes+slack || u.Hidden != c.hidden {
			t.Errorf("%s: %+v, want %d bytes, hidden %t", c.name, u, c.bytes, c.hidden)
		}
		if c.name == "open" && u.Written-before.Written < size {
			t.Errorf("%d bytes were written, told are %d", size, u.Written-before.Written)
		}
		end()
		testkit.Eventually(t, c.name+" is over", func() bool { u := held(); return u.Bytes-before.Bytes < slack && !u.Hidden })
	}
	if err := d.Stop(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	_, err := d.Held(t.Context(), s.Box)
	wantKind(t, err, holdfast.KindNotFound, false)
}

// TestHeldIsBounded: a box with more descriptors than one look takes in hides
// some, and the look ends soon.
func TestHeldIsBounded(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "many")
	s.Limits.Pids = 128
	b := box(t, d, s)
	install(t, b)
	end := holding(t, b, "for i in $(seq 16); do ./probe keep 8000 & done; sleep 3; echo taken; wait")
	defer end()
	began := time.Now()
	u, err := d.Held(t.Context(), s.Box)
	if err != nil || !u.Hidden || time.Since(began) > 10*time.Second {
		t.Errorf("%+v %v after %s", u, err, time.Since(began))
	}
}

var _ sandbox.Holder = (*local.Driver)(nil)
