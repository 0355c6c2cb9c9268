package app_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// sessionsOf makes a workspace and some sessions in it.
func sessionsOf(t *testing.T, c *client.Client, workspace string, n int) []holdfast.SessionID {
	t.Helper()
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: workspace}); err != nil {
		t.Fatal(err)
	}
	ids := make([]holdfast.SessionID, n)
	for i := range ids {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: workspace}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = ses.ID
	}
	return ids
}

// TestWSR50_TurnsOfAWorkspaceQueue: three turns of the sessions of a workspace use its box at once. Further ones wait in
// the order in which they came, and each session learns its position.
func TestWSR50_TurnsOfAWorkspaceQueue(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	ids := sessionsOf(t, c, "site", 5)
	// until returns the first event of a type in a session's log.
	until := func(id holdfast.SessionID, typ holdfast.EventType) holdfast.Event {
		t.Helper()
		for ev, err := range c.Follow(t.Context(), id, 0, typ) {
			if err != nil {
				t.Fatal(err)
			}
			return ev
		}
		t.Fatalf("session %s has no event %s", id, typ)
		return holdfast.Event{}
	}
	for i, id := range ids {
		command := fmt.Sprintf("until [ -e go%d ]; do sleep 0.02; done; echo %d >> order", max(i-2, 0), i)
		if _, err := c.Send(t.Context(), id, holdfast.SendMessage{Text: inBash(command)}); err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			until(id, holdfast.EventToolStarted)
			continue
		}
		var queued holdfast.BoxQueued
		if err := until(id, holdfast.EventBoxQueued).Decode(&queued); err != nil || queued.Position != i-2 {
			t.Errorf("session %d waits at position %d, %v; want %d", i, queued.Position, err, i-2)
		}
	}
	for i := range 3 {
		if _, err := c.WriteFile(t.Context(), ids[0], fmt.Sprint("go", i), strings.NewReader(""), 0); err != nil {
			t.Fatal(err)
		}
		for _, id := range [][]holdfast.SessionID{ids[:3], ids[3:4], ids[4:]}[i] {
			until(id, holdfast.EventTurnCompleted)
		}
	}
	if _, out := run(t, c, ids[0], "sort order | tr -d '\\n'"); out != "01234" {
		t.Errorf("the turns wrote %q", out)
	}
}

// TestWSR44_BoxesOfTheirOwn: with limits.shared off each session of a workspace has a box of its own, which has the files
// of the workspace.
func TestWSR44_BoxesOfTheirOwn(t *testing.T) {
	cfg := settings(t, "local")
	cfg.Limits.Shared = config.Off
	c, _ := serve(t, cfg)
	ids := sessionsOf(t, c, "site", 2)
	turn(t, c, ids[0], inBash("echo one > common; echo mine > ~/own"))
	if _, out := run(t, c, ids[1], "cat common; ls ~"); strings.TrimSpace(out) != "one" {
		t.Errorf("the second session sees %q", out)
	}
	list, err := c.Containers(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("boxes %+v, %v; want two", list, err)
	}
	for _, box := range list {
		if box.ID != box.Session.Box() {
			t.Errorf("box %s is that of session %q", box.ID, box.Session)
		}
	}
}

// TestWSR53_NoWorkingDirectory: a command whose working directory is missing does not run, in a box and on the host.
func TestWSR53_NoWorkingDirectory(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	for _, trust := range []string{"untrusted", "trusted"} {
		id := newSession(t, c, trust)
		for _, cwd := range []string{"gone", "/gone/away"} {
			res, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: "touch ran; echo ran", Cwd: cwd})
			if err != nil || res.Class != holdfast.ExitError || !strings.HasPrefix(res.Message, "no working directory") || len(res.Stdout) > 0 {
				t.Errorf("%s, in %s: %+v, %v", trust, cwd, res, err)
			}
		}
		if _, out := run(t, c, id, "ls"); strings.Contains(out, "ran") {
			t.Errorf("%s: the command ran elsewhere", trust)
		}
	}
}

// TestRewindBesideATurn: a rewind that puts files back is refused while a turn of another session of the workspace runs, and
// changes nothing.
func TestRewindBesideATurn(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	ids := sessionsOf(t, c, "site", 2)
	turn(t, c, ids[0], inBash("echo one > f"))
	first := checkpoints(t, c, ids[0], 1)[0].ID
	turn(t, c, ids[0], inBash("echo two > f"))
	if _, err := c.Send(t.Context(), ids[1], holdfast.SendMessage{Text: inBash("echo mine > g; until [ -e go ]; do sleep 0.02; done")}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, out := run(t, c, ids[0], "ls g 2>/dev/null"); out != "" {
			break
		}
	}
	_, err := c.Rewind(t.Context(), ids[0], holdfast.RewindSession{To: first, Files: "restore"})
	refusedWith(t, err, holdfast.KindConflict, string(ids[1]), "--keep-files")
	if _, out := run(t, c, ids[0], "cat f g"); out != "two\nmine\n" {
		t.Errorf("after the refusal: %q", out)
	}
	if _, err := c.Rewind(t.Context(), ids[0], holdfast.RewindSession{To: first, Files: "keep"}); err != nil {
		t.Errorf("a rewind that leaves the files: %v", err)
	}
	put(t, c, ids[1], "go", "", 0)
}

// TestRewindKeepsSiblingsWork: a rewind of files takes back nothing that another session of the directory did at the same time, or
// before a person's command, although the session's own checkpoint was the first to see it.
func TestRewindKeepsSiblingsWork(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	dir := ownRepository(t)
	a, b := inOwnDir(t, c, dir), inOwnDir(t, c, dir)
	turn(t, c, b.ID, inBash("true"))
	turn(t, c, a.ID, inBash("echo first > mine"))
	target := newestCheckpoint(t, c, a.ID)
	refused := func(when, path string) {
		t.Helper()
		_, err := c.Rewind(t.Context(), a.ID, holdfast.RewindSession{To: target.ID, Files: "restore"})
		if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), holdfast.Quote(path)) {
			t.Errorf("%s: %v, want a conflict over %s", when, err, path)
		}
	}

	// The turn of one session ends in that of the other.
	done := make(chan struct{})
	go func() {
		defer close(done)
		turn(t, c, a.ID, inBash("echo second > mine; touch begun; while ! test -e go; do sleep 0.02; done"))
	}()
	testkit.Eventually(t, "the turn has begun", func() bool { _, err := os.Lstat(filepath.Join(dir, "begun")); return err == nil })
	turn(t, c, b.ID, inBash("echo theirs > theirs"))
	if _, err := c.Exec(t.Context(), b.ID, holdfast.ExecRequest{Argv: []string{"touch", "go"}}); err != nil {
		t.Fatal(err)
	}
	<-done
	refused("turns at the same time", "theirs")

	turn(t, c, a.ID, inBash("rm -f begun go; true"))
	target = newestCheckpoint(t, c, a.ID)
	turn(t, c, b.ID, inBash("echo later > later"))
	if _, err := c.Exec(t.Context(), a.ID, holdfast.ExecRequest{Argv: []string{"touch", "by-hand"}}); err != nil {
		t.Fatal(err)
	}
	turn(t, c, a.ID, inBash("echo third > mine"))
	refused("a command after the other's turn", "later")

	target = newestCheckpoint(t, c, a.ID)
	turn(t, c, a.ID, inBash("echo fourth > mine"))
	if _, err := c.Rewind(t.Context(), a.ID, holdfast.RewindSession{To: target.ID, Files: "restore"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"mine": "third\n", "theirs": "theirs\n", "later": "later\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
}

// newestCheckpoint returns the newest checkpoint of a session.
func newestCheckpoint(t *testing.T, c *client.Client, id holdfast.SessionID) holdfast.Checkpoint {
	t.Helper()
	list, err := c.Checkpoints(t.Context(), id, "", 1)
	if err != nil || len(list.Checkpoints) == 0 {
		t.Fatal(list, err)
	}
	return list.Checkpoints[0]
}

// TestMessageDuringADeletion: a session whose workspace is being deleted accepts no message, so that the deletion interrupts no
// turn without --force. It does again afterwards.
func TestMessageDuringADeletion(t *testing.T) {
	var armed atomic.Bool
	entered, release := make(chan struct{}), make(chan struct{})
	c, _, _ := serveWith(t, settings(t, "local"), func(o *app.Options) {
		o.At = func(_ holdfast.SessionID, point string) {
			if point == "scanned" && armed.CompareAndSwap(true, false) {
				close(entered)
				<-release
			}
		}
	})
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	var ids []holdfast.SessionID
	for range 2 {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site"}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, ses.ID)
		turn(t, c, ses.ID, inBash("echo here >> a.txt"))
	}
	run(t, c, ids[0], "echo more >> a.txt")
	armed.Store(true)
	deleted := make(chan error, 1)
	go func() {
		_, err := c.DeleteWorkspace(context.Background(), "site", false, false)
		deleted <- err
	}()
	select {
	case <-entered: // while the first session is taken out
	case err := <-deleted:
		t.Fatal("the deletion took no snapshot", err)
	}
	_, err := c.Send(t.Context(), ids[1], holdfast.SendMessage{Text: "hello"})
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("a message during the deletion: %v", err)
	}
	close(release)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	turn(t, c, ids[1], inBash("cat a.txt"))
	if got := outcome(t, c, ids[1]).Content; !strings.Contains(got, "here\nhere\n") {
		t.Errorf("afterwards the session has %q", got)
	}
}
