//go:build linux

package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// shared is a shared box.
type shared struct {
	t   *testing.T
	d   *local.Driver
	dir string
	s   sandbox.Spec
	b   *sandbox.Box
}

func shareBox(t *testing.T, change ...func(*sandbox.Spec)) *shared {
	t.Helper()
	dir := home(t)
	w := &shared{t: t, d: open(t, dir), dir: dir, s: spec(dir, "shared")}
	w.s.Shared = true
	for _, c := range change {
		c(&w.s)
	}
	w.b = box(t, w.d, w.s)
	return w
}

// member is a new session that has joined.
func (w *shared) member() *sandbox.Box { return w.memberWith("") }

// memberWith is member for an agent with a directory.
func (w *shared) memberWith(agent string) *sandbox.Box {
	w.t.Helper()
	session := holdfast.SessionID(newCall(w.t).ID)
	m := sandbox.Member{Session: session, Home: filepath.Join(w.dir, "home-"+string(session)), Agent: agent, Token: w.b.Welcome().Token}
	if err := w.d.Join(w.t.Context(), w.s.Box, m); err != nil {
		w.t.Fatal(err)
	}
	return w.b.Of(session)
}

// The capabilities with which boxd makes places, as bits of /proc/PID/status.
const placeCaps = 1<<21 | 1<<18 // CAP_SYS_ADMIN, CAP_SYS_CHROOT

// TestAnySharedPowerIsNotInEffect: once a request has been served, no thread of boxd can mount. The
// confined ones, of which those of sessions see homes, could not take it up again, and no thread of
// a box of one session could.
func TestAnySharedPowerIsNotInEffect(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]bool{"shared": true, "private": false} {
		dir := home(t)
		d, s := open(t, dir), spec(dir, "caps-"+name)
		s.Shared = share
		info := up(t, d, s)
		w := &shared{t: t, d: d, dir: dir, s: s, b: dial(t, d, s.Box)}
		members := []*sandbox.Box{w.b}
		if share {
			members = append(members, w.member(), w.member())
		}
		for _, m := range members {
			sh(t, m, "true")
			if _, err := m.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "f"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", info.PID))
		if err != nil {
			t.Fatal(err)
		}
		confined, keepers := 0, 0
		for _, th := range threads {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", info.PID, th.Name()))
			if err != nil {
				continue // it has ended
			}
			st := parseStatus(string(b))
			eff, err := strconv.ParseUint(st["CapEff"], 16, 64)
			prm, perr := strconv.ParseUint(st["CapPrm"], 16, 64)
			if err != nil || perr != nil {
				t.Fatal(st)
			}
			if eff&placeCaps != 0 {
				t.Errorf("%s: a thread has %x in effect", name, eff)
			}
			if st["Seccomp"] == "2" {
				confined++
				if prm&placeCaps != 0 {
					t.Errorf("%s: a confined thread may take up %x", name, prm)
				}
			} else if prm&placeCaps == placeCaps {
				keepers++
			}
		}
		// Each member has one that forks, and one or two for files.
		if least := 2 * len(members); confined < least || confined > least+len(members) {
			t.Errorf("%s: %d confined threads, want %d to %d", name, confined, least, least+len(members))
		}
		if (keepers > 0) != share {
			t.Errorf("%s: %d threads may take up the capabilities of places", name, keepers)
		}
	}
}

// TestAnySharedLeaveFindsEveryProcess: a process that took off its call's mark and left the
// session of its leader ends with its session all the same.
func TestAnySharedLeaveFindsEveryProcess(t *testing.T) {
	t.Parallel()
	w := shareBox(t)
	if !capable(t, w.d, "signal-scope") {
		t.Skip("SKIPPED LOUDLY: no signal scope: boxd cannot find such a process")
	}
	one, two := w.member(), w.member()
	for _, b := range []*sandbox.Box{one, two} {
		sh(t, b, `(ulimit -S -R unlimited; setsid bash -c 'exec sleep 603 >/dev/null 2>&1 <&1 & ') ; while ! grep -qs sleep /proc/[0-9]*/comm; do :; done`)
	}
	marks := func() (n int) {
		ps, err := w.b.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ps {
			if p.Name == "sleep" {
				n++
			}
		}
		return n
	}
	testkit.Eventually(t, "two processes", func() bool { return marks() == 2 })
	if err := one.Leave(t.Context(), wire.LeaveRequest{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the sibling's process only", func() bool { return marks() == 1 })
	sh(t, two, "true")
}

// TestAnySharedWalls: path rules of the workspace hold in every session, also after a rename on
// the host that a root server mends; rules that a session's own mounts would cover are refused.
func TestAnySharedWalls(t *testing.T) {
	t.Parallel()
	walls := sandbox.Walls{Masked: []string{"/workspace/.env"}, ReadOnly: []string{"/workspace/docs/"}}
	w := shareBox(t)
	sh(t, w.b, "echo "+canaryText+" > .env; mkdir docs")
	if err := w.d.Stop(t.Context(), w.s.Box); err != nil {
		t.Fatal(err)
	}
	w.s.Walls = walls
	up(t, w.d, w.s)
	w.b = dial(t, w.d, w.s.Box)
	one := w.member()
	held := func(b *sandbox.Box) bool {
		_, out := try(t, b, wire.ExecRequest{Shell: "cat .env; echo x > docs/f"})
		return !strings.Contains(out, canaryText) && strings.Contains(out, "Read-only")
	}
	if !held(one) || !held(w.b) {
		t.Error("a path rule does not hold in a shared box")
	}
	if os.Geteuid() == 0 {
		ws := filepath.Join(w.s.Dir, "workspace")
		if err := os.WriteFile(filepath.Join(ws, "n"), []byte(canaryText), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(ws, "n"), filepath.Join(ws, ".env")); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the wall is back in the box", func() bool { return held(w.b) })
		testkit.Eventually(t, "the wall is back for the session", func() bool { return held(one) })
		if two := w.member(); !held(two) {
			t.Error("a later session lacks the wall")
		}
	}
	for _, bad := range []sandbox.Walls{
		{Masked: []string{"/home/agent/x"}}, {ReadOnly: []string{"/tmp"}}, {Masked: []string{"/home"}}, {Readable: [][]string{{"/workspace"}}},
	} {
		s := spec(w.dir, "refused")
		s.Shared, s.Walls = true, bad
		_, err := w.d.Ensure(t.Context(), s)
		wantKind(t, err, holdfast.KindUnavailable, true)
		if !strings.Contains(err.Error(), "w-refused") {
			t.Errorf("the error does not quote the box: %v", err)
		}
	}
	s := spec(w.dir, "allowed")
	s.Shared, s.Walls = true, sandbox.Walls{Readable: [][]string{{"/workspace"}}, KeepHome: true}
	up(t, w.d, s)
}

// TestAnySharedPatterns: what patterns match in a session's home when it joins is masked there,
// also in a directory that its owner may not enter.
func TestAnySharedPatterns(t *testing.T) {
	t.Parallel()
	w := shareBox(t, func(s *sandbox.Spec) {
		s.Walls = sandbox.Walls{Patterns: []string{"/**/.env", "/workspace/*.pem"}, WritePatterns: []string{"/home/agent/*.md"}}
	})
	session := holdfast.SessionID(newCall(t).ID)
	join := func() *sandbox.Box {
		t.Helper()
		if err := w.d.Join(t.Context(), w.s.Box, sandbox.Member{Session: session, Home: filepath.Join(w.dir, "h"), Token: w.b.Welcome().Token}); err != nil {
			t.Fatal(err, holdfast.HintOf(err))
		}
		return w.b.Of(session)
	}
	b := join()
	sh(t, b, "mkdir -p ~/a/b; echo "+canaryText+" | tee ~/.env ~/a/b/.env; echo x > ~/text.md; chmod 0 ~/a")
	if err := b.Leave(t.Context(), wire.LeaveRequest{}); err != nil {
		t.Fatal(err)
	}
	b = join()
	_, out := try(t, b, wire.ExecRequest{Shell: "chmod 700 ~/a; cat ~/.env ~/a/b/.env; mv ~/a ~/c; cat ~/c/b/.env; echo y > ~/text.md; cat ~/text.md"})
	if strings.Contains(out, canaryText) || !strings.Contains(out, "Permission denied") || !strings.HasSuffix(out, "x\n") {
		t.Errorf("patterns do not hold in a home: %s", out)
	}
	var got strings.Builder
	if _, err := b.Read(t.Context(), wire.ReadRequest{Path: "/home/agent/.env"}, &got); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a file operation read %q, %v", got.String(), err)
	}
	sh(t, w.member(), "echo fine > ~/.env; cat ~/.env")
}

// TestHZ10_FrozenSharedBox: no thread of a session is in the leaf that is frozen.
func TestHZ10_FrozenSharedBox(t *testing.T) {
	t.Parallel()
	w := shareBox(t)
	if !capable(t, w.d, "freeze") {
		t.Skip("no freezer here")
	}
	one := w.member()
	sh(t, one, "true")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := w.b.Gate(ctx, true); err != nil {
		t.Fatal(err)
	}
	if err := w.d.Freeze(ctx, w.s.Box); err != nil {
		t.Fatal(err)
	}
	noThreadFrozen(t, w.d, w.s.Box)
	two := w.member() // a join takes no process
	if _, err := two.Write(ctx, newCall(t), wire.WriteRequest{Path: "/home/agent/f"}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := w.d.Thaw(ctx, w.s.Box); err != nil {
		t.Fatal(err)
	}
	if err := w.b.Gate(ctx, false); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, two, "cat ~/f"); got != "x" {
		t.Error(got)
	}
}
