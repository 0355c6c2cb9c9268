//go:build linux

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/mark"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestAnyWallsReadOnly: a read-only path can be read, and stays where it is.
func TestAnyWallsReadOnly(t *testing.T) {
	w := withWalls(t, prepared, sandbox.Walls{ReadOnly: []string{"/workspace/docs/", "/workspace/src/code", "/workspace/later", "/workspace/made/"}})
	w.shows("cat docs/text src/code")
	for _, script := range []string{
		"echo x > docs/text", "echo x > docs/new", "rm docs/text", "mv docs d2", "chmod 600 docs/text", "touch docs/text", "echo x >> src/code",
		"mv src s2", "rm src/code", "echo x > n && mv n src/code", "echo x > later", "mkdir later", "ln -s /etc/passwd later", "echo x > made/x", "rmdir made",
		"ln docs/text src/t2 && echo x > src/t2", "truncate -s 0 docs/text", "sed -i s/c/d/ src/code",
	} {
		if res, out := try(t, w.b, wire.ExecRequest{Shell: "set -e; " + script}); res.Class == holdfast.ExitOK {
			t.Errorf("%s was let through: %s", script, out)
		}
	}
	for _, p := range []string{"docs/text", "docs/new", "src/code", "later", "made/x"} {
		if err := w.write(p); err == nil {
			t.Errorf("Write of %s succeeded", p)
		}
	}
	if got := sh(t, w.b, "cat later 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("what does not exist reads as %q", got)
	}
	sh(t, w.b, "echo x > src/other && rm src/other")
}

// TestAnyWallsAbsent: nothing can appear at a path that may not be read, and its
// placeholder goes with the box, whichever process was killed.
func TestAnyWallsAbsent(t *testing.T) {
	walls := sandbox.Walls{Masked: []string{"/workspace/new/deep/key", "/workspace/vault/", "/workspace/.env.local"}}
	w := withWalls(t, "true", walls)
	absent := func() {
		t.Helper()
		for _, script := range []string{
			"echo x > .env.local", "mkdir .env.local", "ln -s docs .env.local", "echo x > n && mv -T n .env.local", "rm .env.local",
			"echo x > new/deep/key", "mv new n2", "rm -r new", "echo x > vault/x", "ls vault",
		} {
			if res, out := try(t, w.b, wire.ExecRequest{Shell: "set -e; " + script}); res.Class == holdfast.ExitOK {
				t.Errorf("%s was let through: %s", script, out)
			}
		}
		if got := sh(t, w.b, "cat .env.local 2>&1 || true"); !strings.Contains(got, "No such file") {
			t.Errorf("what does not exist reads as %q", got)
		}
	}
	absent()
	none := func(when string) {
		t.Helper()
		entries, err := os.ReadDir(w.host(""))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "n" {
				t.Errorf("%s %s is left", when, e.Name())
			}
		}
	}
	w.stop()
	none("after the stop")

	// boxd dies, and with it every process that could clean up.
	w.restart(walls)
	info, err := w.d.List(t.Context())
	if err != nil || len(info) != 1 {
		t.Fatal(info, err)
	}
	if err := syscall.Kill(info[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-w.b.Done()
	w.restart(walls)
	absent()
	w.s.Walls = sandbox.Walls{}
	w.stop()
	none("after SIGKILL and the next box")

	// A directory that somebody made there meanwhile is not a placeholder.
	w.restart(sandbox.Walls{Masked: []string{"/workspace/vault/"}})
	if err := os.WriteFile(filepath.Join(w.host("vault"), "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if _, err := os.Stat(filepath.Join(w.host("vault"), "mine")); err != nil {
		t.Errorf("a file of the user's went with the placeholder: %v", err)
	}
}

// TestAnyWallsOfTwoBoxes: of two boxes over one tree, which have the same placeholder, the end of one leaves the other its wall.
func TestAnyWallsOfTwoBoxes(t *testing.T) {
	w := withWalls(t, "true", sandbox.Walls{Masked: []string{"/workspace/.env.local"}})
	second := spec(w.dir, "walls-too")
	second.Workspace, second.ToolUID, second.ToolGID = w.host(""), w.s.ToolUID, w.s.ToolGID
	second.Walls = w.s.Walls
	other := box(t, w.d, second)
	w.stop()
	if res, out := try(t, other, wire.ExecRequest{Shell: "echo x > .env.local"}); res.Class == holdfast.ExitOK {
		t.Errorf("the wall of the other box is gone: %s", out)
	}
	if _, err := os.Lstat(w.host(".env.local")); err != nil {
		t.Errorf("the placeholder is gone while a box needs it: %v", err)
	}
	if err := w.d.Stop(t.Context(), second.Box); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(w.host(".env.local")); err == nil {
		t.Error("the placeholder is left after both boxes")
	}
}

// TestAnyWallsMarkWhatTheyMake: the directories above a placeholder have the mark, too, by which checkpoints leave all of
// them out: also after another box has made a placeholder in them, and after one of the boxes has ended. The last box
// leaves none of them, even if it was another one that made them.
func TestAnyWallsMarkWhatTheyMake(t *testing.T) {
	w := withWalls(t, "true", sandbox.Walls{Masked: []string{"/workspace/new/deep/key"}})
	second := spec(w.dir, "walls-too")
	second.Workspace, second.ToolUID, second.ToolGID = w.host(""), w.s.ToolUID, w.s.ToolGID
	second.Walls = sandbox.Walls{Masked: []string{"/workspace/new/other", "/workspace/new/deep/er/key"}}
	marked := func(when string, names ...string) {
		t.Helper()
		for _, name := range names {
			var st unix.Stat_t
			if err := unix.Lstat(w.host(name), &st); err != nil || !mark.On(st.Mtim.Unix()) {
				t.Errorf("%s %s has the time %v, %v; want the mark", when, name, st.Mtim, err)
			}
		}
	}
	marked("with one box", "new", "new/deep", "new/deep/key")
	box(t, w.d, second)
	marked("with two boxes", "new", "new/deep", "new/deep/key", "new/other", "new/deep/er", "new/deep/er/key")
	w.stop()
	marked("when the first box has ended", "new", "new/deep", "new/other", "new/deep/er", "new/deep/er/key")
	if err := w.d.Stop(t.Context(), second.Box); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(w.host("new")); err == nil {
		t.Error("the directories of the placeholders are left after both boxes")
	}
}

// TestAnyWallsOfBoxesThatStartTogether: boxes over one tree, which have the same placeholders, start and end at the same
// time.
func TestAnyWallsOfBoxesThatStartTogether(t *testing.T) {
	w := withWalls(t, "true", sandbox.Walls{Masked: []string{"/workspace/.env.local"}})
	w.stop()
	var masked []string
	for i := range 30 {
		masked = append(masked, fmt.Sprintf("/workspace/missing/%d/file", i))
	}
	for range 3 {
		var all sync.WaitGroup
		for _, name := range []string{"one", "two", "three"} {
			s := spec(w.dir, name)
			s.Workspace, s.ToolUID, s.ToolGID = w.host(""), w.s.ToolUID, w.s.ToolGID
			s.Walls = sandbox.Walls{Masked: masked}
			all.Go(func() {
				if _, err := w.d.Ensure(t.Context(), s); err != nil {
					t.Error(err)
				}
				if err := w.d.Remove(t.Context(), s.Box); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// TestAnyWallsLinks: a wall stands where a rule's path leads, its links stay, and paths
// that a wall cannot protect are reported.
func TestAnyWallsLinks(t *testing.T) {
	w := withWalls(t, prepared+` && ln -s a l && ln -s /usr/share out && ln src/code hard && ln -s loop loop && ln -s ../workspace/a/secret/key back && ln -s nowhere/.. odd`,
		sandbox.Walls{Masked: []string{"/workspace/l/secret/", "/workspace/out", "/workspace/hard", "/workspace/loop", "/workspace/back", "/workspace/odd"}})
	for _, script := range []string{
		"cat l/secret/key a/secret/key back hard", "rm l; mkdir -p l/secret; cat a/secret/key", "mv l l2; cat l2/secret/key",
		"mv a b; cat b/secret/key", "ln -sfn src l; cat l/code",
	} {
		w.refused(script)
	}
	if res, _ := try(t, w.b, wire.ExecRequest{Shell: "ls -d out/. && ls /usr/share/."}); res.Class != holdfast.ExitOK {
		t.Error("a link of the workspace masked a directory of the system")
	}
	missing := strings.Join(w.b.Welcome().Missing, "\n")
	for _, want := range []string{`wall of "/workspace/out": a symlink`, `wall of "/workspace/hard": the file has 2 names`, `wall of "/workspace/loop"`} {
		if !strings.Contains(missing, want) {
			t.Errorf("%q is not said:\n%s", want, missing)
		}
	}
}

// TestAnyWallsLists: only the paths of allow lists are visible, and only those can be
// written.
func TestAnyWallsLists(t *testing.T) {
	can := func(w *walled, script string, want bool) {
		t.Helper()
		res, out := try(t, w.b, wire.ExecRequest{Shell: "set -e; " + script})
		if ok := res.Class == holdfast.ExitOK; ok != want {
			t.Errorf("%s: %v, want %v: %s", script, ok, want, out)
		}
	}
	w := withWalls(t, prepared, sandbox.Walls{
		Writable: [][]string{{"/workspace/src", "/workspace/out", "/workspace/docs"}, {"/workspace/src", "/workspace/out/", "/usr"}},
		ReadOnly: []string{"/workspace/src/code"},
	})
	for script, want := range map[string]bool{
		"echo x > src/new; rm src/new": true, "echo x > out/new; mkdir out/d; mv out/new out/d/n": true, "echo x > docs/new": false, "echo x > new": false,
		"echo x > src/code": false, "echo x > ~/f": false, "echo x > /tmp/f; mv /tmp/f /dev/shm/f": true, "rm -r docs": false, "cat docs/text src/code .env": true,
		"echo x > /usr/x": false, "mv src s": false, "chmod 700 .": false,
	} {
		can(w, script, want)
	}
	w.restart(sandbox.Walls{
		Readable: [][]string{{"/workspace/src", "/workspace/docs", "/workspace/nothing"}, {"/workspace"}}, Masked: []string{"/workspace/docs/text"},
	})
	for script, want := range map[string]bool{
		"cat src/code": true, "cat .env": false, "cat a/secret/key": false, "cat docs/text": false, "ls /usr/bin/env /etc/passwd /proc/self/status /dev/null": true,
		"echo x > new": false, "echo x > src/new; cat src/new": true, "echo x > ~/f": false, "test -e nothing": false, "echo x > /tmp/f": true,
		"umount /workspace": false, "cat /proc/self/root/workspace/.env": false, "test $(ls -A | wc -l) = 2": true, "mv src/code src/../c": false,
	} {
		can(w, script, want)
	}
	w.restart(sandbox.Walls{Readable: [][]string{{"/workspace/src"}}, Writable: [][]string{{"/workspace/src"}}, KeepHome: true})
	for script, want := range map[string]bool{"echo x > ~/f; cat ~/f": true, "cat docs/text": false, "echo x > src/new": true, "echo x > new": false} {
		can(w, script, want)
	}
}

// TestAnyWallsPatterns: files that match when the box starts are masked; a pattern that
// needs too much keeps the box from starting.
func TestAnyWallsPatterns(t *testing.T) {
	w := withWalls(t, prepared+` && mkdir -p x/y/.git && cp .env x/y/.env && cp .env x/y/k.pem && cp .env x/.git-key && cp .env ~/.netrc && mkdir -p x/deep/secrets/in && cp .env x/deep/secrets/in/f && ln -s ../src/code x/link.pem`,
		sandbox.Walls{Patterns: []string{"/**/.env", "/workspace/**/*.pem", "/**/secrets", "/home/agent/.n*rc", "/usr/share/**/never.there"}, WritePatterns: []string{"/**/.git"}})
	for _, script := range []string{"cat .env x/y/.env x/y/k.pem x/link.pem src/code", "cat ~/.netrc", "cat x/deep/secrets/in/f", "mv x z; cat z/y/.env; mv z x", "grep -r canary x/y x/deep"} {
		w.refused(script)
	}
	w.shows("cat x/.git-key docs/text a/secret/key")
	if res, _ := try(t, w.b, wire.ExecRequest{Shell: "echo x > x/y/.git/config"}); res.Class == holdfast.ExitOK {
		t.Error("a write pattern does not hold")
	}
	w.restart(sandbox.Walls{})
	sh(t, w.b, "mkdir many && cd many && for i in $(seq 1001); do : > $i.env; done")
	w.stop()
	w.s.Walls = sandbox.Walls{Patterns: []string{"/**/*.env"}}
	_, err := w.d.Ensure(t.Context(), w.s)
	wantKind(t, err, holdfast.KindUnavailable, true)
	if !strings.Contains(err.Error(), "/**/*.env") || !strings.Contains(err.Error(), "1,000") {
		t.Errorf("%v", err)
	}
}

// TestAnyWallsRefused: a rule that cannot become a wall keeps the box from starting,
// and the error names it.
func TestAnyWallsRefused(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	s := spec(dir, "refused")
	s.Walls = sandbox.Walls{Masked: []string{"/"}}
	_, err := d.Ensure(t.Context(), s)
	wantKind(t, err, holdfast.KindInvalid, true)
	if !strings.Contains(err.Error(), `"/"`) {
		t.Errorf("%v names no rule", err)
	}
	s.Walls = sandbox.Walls{Masked: []string{"/proc/self/environ", "/etc/shadow-of-nobody", "/run/x"}}
	up(t, d, s)
	if missing := strings.Join(dial(t, d, s.Box).Welcome().Missing, "\n"); !strings.Contains(missing, `wall of "/proc/self/environ"`) || strings.Contains(missing, "shadow") {
		t.Errorf("said: %s", missing)
	}
}

// TestAnyWallsClosedDirectory: a directory without permissions for its owner hides
// nothing from a wall: once it is open again the wall stands.
func TestAnyWallsClosedDirectory(t *testing.T) {
	w := withWalls(t, prepared+" && chmod 000 a", sandbox.Walls{Masked: []string{"/workspace/a/secret/key"}, Patterns: []string{"/**/k*y"}})
	w.refused("chmod 755 a; cat a/secret/key")
}

// TestAnyWallsHostRename: a rename on the host over a masked name removes the mask. A
// root server restores it; an ordinary user's box is known to lack it.
func TestAnyWallsHostRename(t *testing.T) {
	walls := sandbox.Walls{Masked: []string{"/workspace/.env", "/workspace/a/secret/"}, ReadOnly: []string{"/workspace/docs/text"}}
	w := withWalls(t, prepared, walls)
	w.rename(".env")
	w.settled()
	w.refused("cat .env")
	w.rename("docs/text")
	w.settled()
	if res, _ := try(t, w.b, wire.ExecRequest{Shell: "echo x > docs/text"}); res.Class == holdfast.ExitOK {
		t.Error("a file that may not be written was, after a rename on the host")
	}
	// A directory on the way, and its replacement.
	if err := os.Rename(w.host("a"), w.host("a2")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.host("a/secret"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.host("a/secret/key"), []byte(canaryText), 0o644); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.refused("cat a/secret/key")
	if err := os.Remove(w.host(".env")); err != nil {
		t.Fatal(err)
	}
	w.settled()
	if res, _ := try(t, w.b, wire.ExecRequest{Shell: "echo x > .env"}); res.Class == holdfast.ExitOK {
		t.Error("a masked file that was removed on the host was made in the box")
	}
}

// TestAnyWallsHostRenameInSteps: a directory on the way to a walled name is replaced, and
// the name comes back only after the walls could not be restored: they stand then.
func TestAnyWallsHostRenameInSteps(t *testing.T) {
	w := withWalls(t, prepared, sandbox.Walls{Masked: []string{"/workspace/.env", "/workspace/a/secret/"}})
	if err := os.Mkdir(w.host("a2"), 0o755); err != nil {
		t.Fatal(err)
	}
	// In one step: a server that saw no directory there would make one for the wall.
	if err := unix.Renameat2(unix.AT_FDCWD, w.host("a"), unix.AT_FDCWD, w.host("a2"), unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the loss of the wall is known", func() bool { return !w.d.WallsHold(w.s.Box) })
	// A server restores walls in order, one change after the other: once it has restored
	// the first one twice, it has failed at the second.
	for range 2 {
		if os.Geteuid() != 0 {
			break
		}
		w.rename(".env")
		testkit.Eventually(t, "the first wall is back", func() bool {
			_, out := try(t, w.b, wire.ExecRequest{Shell: "cat .env"})
			return !strings.Contains(out, canaryText)
		})
	}
	if err := os.Mkdir(w.host("a/secret"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.host("a/secret/key"), []byte(canaryText), 0o644); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.refused("cat a/secret/key")
}

// rename puts another file in the place of one, on the host.
func (w *walled) rename(rel string) {
	w.t.Helper()
	tmp := w.host(rel) + ".new"
	if err := os.WriteFile(tmp, []byte(canaryText+" again"), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, w.host(rel)); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until the walls hold: a root server restores them by itself, an
// ordinary user's box is started again.
func (w *walled) settled() {
	w.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	seen := false
	for time.Now().Before(deadline) {
		holds := w.d.WallsHold(w.s.Box)
		if os.Geteuid() != 0 && !holds {
			w.restart(w.s.Walls)
			return
		}
		// The event arrives at once; handling it takes less than this.
		if os.Geteuid() == 0 && holds && seen {
			return
		}
		if holds {
			seen = true
		}
		<-time.After(30 * time.Millisecond)
	}
	w.t.Fatal("nothing was noticed")
}

// TestAnyWallsTwoBoxes: if a box without walls changes files that it shares, the other
// box loses its walls for no longer than a moment.
func TestAnyWallsTwoBoxes(t *testing.T) {
	w := withWalls(t, prepared, sandbox.Walls{Masked: []string{"/workspace/.env"}})
	other := w.s
	other.Box, other.Dir, other.Workspace, other.Walls = "w-other", filepath.Join(w.dir, "s", "other"), w.host(""), sandbox.Walls{}
	b := box(t, w.d, other)
	if out := sh(t, b, "cat .env"); !strings.Contains(out, canaryText) {
		t.Errorf("the other box has a wall: %s", out)
	}
	sh(t, b, "cp .env n && mv n .env")
	w.settled()
	w.refused("cat .env")
}

// TestAnyWallsAdopted: a server that comes back notices changes to walls while it was
// away.
func TestAnyWallsAdopted(t *testing.T) {
	w := withWalls(t, prepared, sandbox.Walls{Masked: []string{"/workspace/.env"}})
	if err := w.d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.host("n"), []byte(canaryText), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.host("n"), w.host(".env")); err != nil {
		t.Fatal(err)
	}
	d := open(t, w.dir)
	infos, err := d.List(t.Context())
	if err != nil || len(infos) != 1 || infos[0].Walls != w.s.Walls.Hash() {
		t.Fatalf("%+v %v", infos, err)
	}
	w.d = d
	up(t, d, w.s)
	if os.Geteuid() != 0 {
		if d.WallsHold(w.s.Box) {
			t.Error("a wall that went while nobody looked is taken to hold")
		}
		return
	}
	if !d.WallsHold(w.s.Box) {
		t.Error("the wall is not back")
	}
	w.b = dial(t, d, w.s.Box)
	w.refused("cat .env")
}

// TestAnyWallsWithoutLandlock: mounts hold where the kernel has no Landlock.
func TestAnyWallsWithoutLandlock(t *testing.T) {
	if os.Getenv(landlockEnv) == landlockGone {
		t.Skip("already")
	}
	again(t, "^TestAnyWalls(Mask|ReadOnly|Absent|Links|Lists|Patterns)$")
}
