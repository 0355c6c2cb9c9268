//go:build linux

package boxd_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/files"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// listings counts how often a box lists its workspace.
func listings(n *atomic.Int64) option {
	return func(cfg *boxd.Config) {
		fs := files.New(files.Config{Workspace: cfg.Workspace, Home: cfg.Home})
		cfg.Watch = func() func() wire.Changes {
			n.Add(1)
			since := fs.Watch()
			return func() wire.Changes { n.Add(1); return since() }
		}
	}
}

func paths(b *box, c wire.Changes) (out []string) {
	for _, f := range c.Files {
		out = append(out, string(f.Kind)+" "+strings.TrimPrefix(f.Path, b.cfg.Workspace+"/"))
	}
	return out
}

// TestExecTellsWhichFilesChanged: only a call that is watched costs listings; what it
// changed is part of its outcome, so that another server reads the same.
func TestExecTellsWhichFilesChanged(t *testing.T) {
	var n atomic.Int64
	b := startBox(t, listings(&n))
	if err := os.WriteFile(filepath.Join(b.cfg.Workspace, "old"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := b.dial(1)
	if res, _, _ := run(t, c, sh("echo x > unwatched"), sandbox.ExecOptions{}); res.Changes != nil || n.Load() != 0 {
		t.Fatalf("a call that is not watched: %+v, %d listings", res.Changes, n.Load())
	}
	var told []sandbox.Changes
	ctx := sandbox.Watched(t.Context(), func(c sandbox.Changes) { told = append(told, c) })
	call, req := newCall(t), sh("echo y >> old; echo z > new; exit 3")
	res, err := c.Exec(ctx, call, req, sandbox.ExecOptions{})
	if err != nil || res.Code != 3 || len(told) != 1 || !slices.Equal(paths(b, told[0]), []string{"created new", "changed old"}) || n.Load() != 2 {
		t.Fatalf("%+v %v, told %+v, %d listings", res, err, told, n.Load())
	}
	// A server that comes later gets what was found then, though it did not ask.
	if err := os.WriteFile(filepath.Join(b.cfg.Workspace, "later"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	res, err = b.dial(2).Exec(t.Context(), call, req, sandbox.ExecOptions{})
	if err != nil || res.Changes == nil || !slices.Equal(paths(b, *res.Changes), []string{"created new", "changed old"}) || n.Load() != 2 {
		t.Errorf("fetched again: %+v %v, %d listings", res.Changes, err, n.Load())
	}
}

// TestExecSaysWhyItTellsNoChanges: nobody takes silence for "nothing changed".
func TestExecSaysWhyItTellsNoChanges(t *testing.T) {
	watched := func(c *sandbox.Box, call sandbox.Call, req wire.ExecRequest) string {
		t.Helper()
		var told []sandbox.Changes
		_, err := c.Exec(sandbox.Watched(t.Context(), func(c sandbox.Changes) { told = append(told, c) }), call, req, sandbox.ExecOptions{})
		if err != nil || len(told) != 1 || len(told[0].Files) != 0 {
			t.Fatalf("%v, told %+v", err, told)
		}
		return told[0].Unseen
	}
	var n atomic.Int64
	b := startBox(t, listings(&n))
	c := b.dial(1)
	call := newCall(t)
	if _, err := c.Exec(t.Context(), call, sh("true"), sandbox.ExecOptions{}); err != nil {
		t.Fatal(err)
	}
	if why := watched(c, call, sh("true")); !strings.Contains(why, "no listing of the files") {
		t.Errorf("of a call that was not watched: %q", why)
	}
	call = newCall(t)
	var killed sync.WaitGroup
	killed.Go(func() {
		for c.Kill(t.Context(), wire.KillRequest{Call: call.ID}) != nil && t.Context().Err() == nil {
			runtime.Gosched() // it is not there yet
		}
	})
	why := watched(c, call, sh("sleep 1000"))
	killed.Wait()
	if !strings.Contains(why, "was canceled") {
		t.Errorf("of a call that was killed: %q", why)
	}
	if why := watched(c, newCall(t), wire.ExecRequest{Argv: []string{"no-such-program"}}); why != "" {
		t.Errorf("of a call that did not start: %q", why)
	}
	none := startBox(t).dial(1)
	if why := watched(none, newCall(t), sh("true")); !strings.Contains(why, "does not list files") {
		t.Errorf("of a box that cannot: %q", why)
	}
	var broken atomic.Bool
	panics := startBox(t, func(cfg *boxd.Config) {
		cfg.Watch = func() func() wire.Changes {
			if broken.Load() {
				panic("here")
			}
			return func() wire.Changes { panic("there") }
		}
	}).dial(1)
	for _, word := range []string{"there", "here"} {
		if why := watched(panics, newCall(t), sh("true")); !strings.Contains(why, word) {
			t.Errorf("of a listing that failed: %q", why)
		}
		broken.Store(true)
	}
}

// TestWatchedByName: for calls that boxd does not see, a listing has a name; its answer
// stays the same for whoever asks again, another server included; the newest are kept.
func TestWatchedByName(t *testing.T) {
	var n atomic.Int64
	b := startBox(t, listings(&n))
	c := b.dial(1)
	put := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(b.cfg.Workspace, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	watch := func(c *sandbox.Box, name string) {
		t.Helper()
		if err := c.Watch(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	watch(c, "a")
	put("one")
	watch(c, "a") // as a server that was restarted would
	watch(c, "b")
	put("two")
	if got := paths(b, c.Watched(t.Context(), "a")); !slices.Equal(got, []string{"created one", "created two"}) {
		t.Errorf("since a: %q", got)
	}
	put("three")
	c = b.dial(2)
	if got := paths(b, c.Watched(t.Context(), "a")); !slices.Equal(got, []string{"created one", "created two"}) || n.Load() != 3 {
		t.Errorf("asked again: %q, %d listings", got, n.Load())
	}
	if got := paths(b, c.Watched(t.Context(), "b")); !slices.Equal(got, []string{"created three", "created two"}) {
		t.Errorf("since b: %q", got)
	}
	for i := range wire.MaxWatches {
		watch(c, strings.Repeat("x", i+1))
	}
	if got := c.Watched(t.Context(), "b"); !strings.Contains(got.Unseen, `no listing of the workspace with the name "b"`) {
		t.Errorf("of a name that is gone: %+v", got)
	}
	for _, bad := range []string{"", strings.Repeat("x", wire.MaxWatchName+1)} {
		wantKind(t, c.Watch(t.Context(), bad), holdfast.KindInvalid, "name")
	}
}
