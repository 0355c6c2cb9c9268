package app_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// ownRepository makes a git repository of a user of this machine, which is never root.
func ownRepository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	for _, argv := range [][]string{
		{"mkdir", dir},
		{"git", "init", "-q", dir},
		{"mkdir", filepath.Join(dir, "sub")},
		{"sh", "-c", "echo one > " + filepath.Join(dir, "sub/kept")},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	if os.Getuid() == 0 {
		if out, err := exec.Command("chown", "-R", "1000:1001", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

func statOf(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return &st
}

// inBash returns a script for a turn that runs a command, and says what it printed.
func inBash(command string) string {
	b, _ := json.Marshal(command)
	return fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":%s}},{"say":"done"}]</script>`, b)
}

// outcome returns the newest result of a tool in a session's log.
func outcome(t *testing.T, c *client.Client, id holdfast.SessionID) (last holdfast.ToolFinished) {
	t.Helper()
	list, err := c.Events(t.Context(), id, holdfast.EventFilter{Limit: 1000, Types: []holdfast.EventType{holdfast.EventToolFinished}})
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	if err := list[len(list)-1].Decode(&last); err != nil {
		t.Fatal(err)
	}
	return last
}

func inOwnDir(t *testing.T, c *client.Client, dir string) holdfast.Session {
	t.Helper()
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir, Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	return ses
}

// TestWSR39_AnOwnDirectory: a session works in a directory of the user's own. What it makes belongs to the
// directory's owner,
// what it does not touch stays as it is, the git of the host obeys nothing that it wrote, and another
// session sees
// the same files, but not its home (WS-R26, WS-R39, WS-R79).
//
// WS-R72, WS-R73, WS-R74, WS-R80, WS-N6.
func TestWSR39_AnOwnDirectory(t *testing.T) {
	cfg := settings(t, "local")
	c, stop := serve(t, cfg)
	dir := ownRepository(t)
	top, kept := statOf(t, dir), statOf(t, filepath.Join(dir, "sub/kept"))
	ses := inOwnDir(t, c, dir)
	if ses.Workspace != "repo" {
		t.Errorf("workspace %q", ses.Workspace)
	}
	turn(t, c, ses.ID, inBash(`echo made > made; echo secret > ~/mine; mkdir -p new/deep && echo x > new/deep/file`))
	for _, name := range []string{"made", "new/deep/file"} {
		if st := statOf(t, filepath.Join(dir, name)); st.Uid != top.Uid || st.Gid != top.Gid {
			t.Errorf("%s belongs to %d:%d, the directory to %d:%d", name, st.Uid, st.Gid, top.Uid, top.Gid)
		}
	}
	now := statOf(t, filepath.Join(dir, "sub/kept"))
	if now.Atim = kept.Atim; *now != *kept { // a checkpoint reads it
		t.Errorf("a file that nobody touched changed: %+v, was %+v", now, kept)
	}
	if now := statOf(t, dir); now.Ino != top.Ino || now.Uid != top.Uid || now.Mode != top.Mode {
		t.Errorf("the directory changed: %+v, was %+v", now, top)
	}

	turn(t, c, ses.ID, inBash(`git config core.fsmonitor /tmp/evil; echo evil > .git/hooks/post-checkout; mv .git gone; mkdir .git/hooks/more; true`))
	if b, err := os.ReadFile(filepath.Join(dir, ".git/config")); err != nil || strings.Contains(string(b), "evil") {
		t.Errorf("the agent wrote .git/config: %s, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git/hooks/post-checkout")); err == nil {
		t.Error("the agent made a git hook")
	}

	two := inOwnDir(t, c, dir)
	if two.Workspace != ses.Workspace {
		t.Errorf("the second session has workspace %q", two.Workspace)
	}
	if err := os.WriteFile(filepath.Join(dir, "host"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	turn(t, c, two.ID, inBash(`cat made host; ls -A ~`))
	if got := outcome(t, c, two.ID).Content; !strings.Contains(got, "made") || !strings.Contains(got, "of the host") || strings.Contains(got, "mine") {
		t.Errorf("the second session saw %q; want the files, and nothing of the first one's home", got)
	}
	turn(t, c, ses.ID, inBash(`cat host; ls -A ~`))
	if got := outcome(t, c, ses.ID).Content; !strings.Contains(got, "of the host") || !strings.Contains(got, "mine") {
		t.Errorf("the first session saw %q; want what the host wrote meanwhile, and its own home", got)
	}
	if st := statOf(t, filepath.Join(cfg.Data, "sessions", string(ses.ID), "home")); st.Mode&0o777 != 0o700 {
		t.Errorf("the home has mode %o", st.Mode)
	}

	stop()
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	c, _ = serve(t, cfg)
	_, err := c.Exec(t.Context(), ses.ID, holdfast.ExecRequest{Command: "true"})
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), dir) {
		t.Errorf("without the directory: %v; want a conflict that names it", err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the server made the missing directory")
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, inBash(`cat made new/deep/file`))
	if got := outcome(t, c, ses.ID).Content; !strings.Contains(got, "made") {
		t.Errorf("after the directory is back: %q", got)
	}
}

// TestOwnDirectoriesNeedAnAdmin: a key that may only write cannot lend a directory of the server's machine, and a
// session in one asks a person before it changes a file.
func TestOwnDirectoriesNeedAnAdmin(t *testing.T) {
	cfg := settings(t, "mem")
	c, addr, _ := serveAt(t, cfg)
	dir := ownRepository(t)
	_, secret, err := c.CreateKey(t.Context(), holdfast.CreateKey{Scopes: []string{"write"}})
	if err != nil {
		t.Fatal(err)
	}
	weak, err := client.New(client.Config{URL: "http://" + strings.TrimPrefix(addr, "http://"), Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer weak.Close()
	if _, err := weak.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir}, ""); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("a key with the scope write: %v, want denied", err)
	}
	if list, err := c.Workspaces(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("workspaces %v, %v", list, err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir}, "")
	if err != nil || ses.Mode != holdfast.ModeDefault {
		t.Errorf("mode %q, %v", ses.Mode, err)
	}
	if _, err := weak.CreateSession(t.Context(), holdfast.CreateSession{Workspace: string(ses.Workspace)}, ""); err != nil {
		t.Errorf("the workspace that has the directory: %v", err)
	}
}

// TestVerifyKnowsWorkspaces: doctor --verify looks for the files of a session where they are, and says if a workspace is away.
func TestVerifyKnowsWorkspaces(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site"}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, `<script>[{"tool":"Write","input":{"file_path":"a.txt","content":"hello\n"}},{"say":"done"}]</script>`)
	stop()
	files := func() string {
		t.Helper()
		v, err := app.Verify(t.Context(), cfg, nil)
		if err != nil || !v.OK {
			t.Errorf("%+v, %v", v, err)
		}
		i := slices.IndexFunc(v.Checks, func(c checks.Check) bool { return c.Name == "files" })
		return v.Checks[i].Detail
	}
	if got := files(); got != "1 sessions have files, each its directory" {
		t.Errorf("with the workspace: %s", got)
	}
	tree := filepath.Join(cfg.Data, "workspaces", "site", "files")
	if err := os.Rename(tree, tree+".away"); err != nil {
		t.Fatal(err)
	}
	if got := files(); !strings.Contains(got, "workspaces [site]") {
		t.Errorf("without it: %s", got)
	}
}

// TestOwnDirectoryHasCheckpoints: a session in a directory of the user's own has checkpoints of it, undoes its own edits
// when a rewind asks for files, hears what others changed between its turns, and never undoes that.
func TestOwnDirectoryHasCheckpoints(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	dir := ownRepository(t)
	ses := inOwnDir(t, c, dir)
	turn(t, c, ses.ID, inBash(`echo first > made`))
	turn(t, c, ses.ID, inBash(`echo second > made; echo more > other`))
	list, err := c.Checkpoints(t.Context(), ses.ID, "", 0)
	if err != nil || len(list.Checkpoints) < 2 {
		t.Fatal(list, err)
	}
	first := list.Checkpoints[1]
	if _, err := c.Rewind(t.Context(), ses.ID, holdfast.RewindSession{To: first.ID, Files: "restore"}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(b) != "first\n" {
		t.Errorf("made is %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "other")); err == nil {
		t.Error("the rewind left a file that the agent had made")
	}
	if err := os.WriteFile(filepath.Join(dir, "sub/kept"), []byte("the user's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, inBash(`echo third > made`))
	heard, err := c.Events(t.Context(), ses.ID, holdfast.EventFilter{Limit: 1000, Types: []holdfast.EventType{holdfast.EventNotice}})
	if err != nil || !slices.ContainsFunc(heard, func(ev holdfast.Event) bool {
		var n holdfast.Notice
		return ev.Decode(&n) == nil && n.Code == holdfast.NoticeFilesFound && strings.Contains(n.Text, "sub/kept") && !strings.Contains(n.Text, "made")
	}) {
		t.Errorf("the turn was not told what others changed: %v, %v", heard, err)
	}
	_, err = c.Rewind(t.Context(), ses.ID, holdfast.RewindSession{To: first.ID, Files: "restore"})
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "sub/kept") {
		t.Errorf("a rewind over the user's change: %v, want a conflict", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(b) != "third\n" {
		t.Errorf("after a refused rewind made is %q, %v", b, err)
	}
}

// TestAnEditBeforeACommand: what the user changed in a directory of their own before they ran a command in the session's box is not
// taken for the command's, so a rewind of files never undoes it. What the command made is undone.
func TestAnEditBeforeACommand(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	dir := ownRepository(t)
	ses := inOwnDir(t, c, dir)
	turn(t, c, ses.ID, inBash(`echo first > made`))
	target := newestCheckpoint(t, c, ses.ID)
	if err := os.WriteFile(filepath.Join(dir, "sub/kept"), []byte("the user's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, c, ses.ID, "echo command > one")
	run(t, c, ses.ID, "echo command > two; echo second > made")
	_, err := c.Rewind(t.Context(), ses.ID, holdfast.RewindSession{To: target.ID, Files: "restore"})
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), `"sub/kept"`) {
		t.Errorf("a rewind over the user's change: %v, want a conflict", err)
	}
	for _, name := range []string{`"one"`, `"two"`, `"made"`} {
		if strings.Contains(err.Error(), name) {
			t.Errorf("a rewind is refused for %s of the command: %v", name, err)
		}
	}
}

// TestStagedFilesGoAtTheStart: files that a rewind has staged in a directory of the user's own when the server is killed are
// gone after the next start, although nobody uses the session.
func TestStagedFilesGoAtTheStart(t *testing.T) {
	cfg := settings(t, "local")
	c, stop := serve(t, cfg)
	dir := ownRepository(t)
	ses := inOwnDir(t, c, dir)
	turn(t, c, ses.ID, inBash(`echo first > made`))
	stop()
	records, err := filepath.Glob(filepath.Join(cfg.Data, "*", string(ses.ID), "scans"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	staged := edit.Prefix + "0123"
	if err := (edit.Record{Kept: "a", To: "b"}).Write(filepath.Dir(records[0]), []string{staged}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, staged), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	serve(t, cfg)
	testkit.Eventually(t, "the staged file is gone", func() bool {
		_, err := os.Lstat(filepath.Join(dir, staged))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestOwnDirectoryReplaced: another directory at the path of the user's is neither stored nor changed.
func TestOwnDirectoryReplaced(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	dir := ownRepository(t)
	ses := inOwnDir(t, c, dir)
	turn(t, c, ses.ID, inBash(`echo first > made`))
	turn(t, c, ses.ID, inBash(`echo second > made`))
	list, err := c.Checkpoints(t.Context(), ses.ID, "", 0)
	if err != nil || len(list.Checkpoints) < 2 {
		t.Fatal(list, err)
	}
	if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "made"), []byte("second\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		_, err = c.Rewind(t.Context(), ses.ID, holdfast.RewindSession{To: list.Checkpoints[1].ID, Files: "restore", DryRun: dry})
		if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "another one is there now") {
			t.Errorf("a rewind, dry %v: %v", dry, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(b) != "second\n" {
		t.Errorf("made is %q, %v", b, err)
	}
	if again, err := c.Checkpoints(t.Context(), ses.ID, "", 0); err != nil || len(again.Checkpoints) != len(list.Checkpoints) {
		t.Errorf("%d checkpoints, before %d, %v", len(again.Checkpoints), len(list.Checkpoints), err)
	}
}

// TestRestoreFilesKeepsThePresent: what a restore of files overwrites in a directory of the user's own is in a checkpoint, which the
// answer names.
func TestRestoreFilesKeepsThePresent(t *testing.T) {
	c, _ := serve(t, settings(t, "local"))
	dir := ownRepository(t)
	ses := inOwnDir(t, c, dir)
	turn(t, c, ses.ID, inBash(`echo first > made`))
	list, err := c.Checkpoints(t.Context(), ses.ID, "", 0)
	if err != nil || len(list.Checkpoints) == 0 {
		t.Fatal(list, err)
	}
	holds := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(b) != want {
			t.Errorf("made is %q, %v, want %q", b, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "made"), []byte("the user's\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, kept, err := c.RestoreFiles(t.Context(), ses.ID, holdfast.RestoreFiles{Path: "made", At: list.Checkpoints[0].ID})
	if err != nil {
		t.Fatal(err)
	}
	holds("first\n")
	if _, _, err := c.RestoreFiles(t.Context(), ses.ID, holdfast.RestoreFiles{Path: "made", At: kept}); err != nil {
		t.Fatal(err)
	}
	holds("the user's\n")
}

// TestWSR40_OneBoxForAWorkspace: the first messages of twenty sessions at the same time start one box, in which each
// session has its own home and environment, and where the next server and the next box find each session again.
//
// WS-R31, WS-R36, WS-R37, WS-R40, WS-R41, WS-R46, WS-R51.
func TestWSR40_OneBoxForAWorkspace(t *testing.T) {
	cfg := settings(t, "local")
	cfg.OnShutdown, cfg.MaxTurns = config.ShutdownKeep, 20
	c, stop := serve(t, cfg)
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	var ids [20]holdfast.SessionID
	for i := range ids {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: "site", Env: map[string]string{"MINE": fmt.Sprint("n", i)}}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = ses.ID
	}
	each := func(command string, want func(i int) string) {
		t.Helper()
		var all sync.WaitGroup
		for i, id := range ids {
			all.Go(func() {
				res, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Command: command})
				if err != nil || strings.TrimSpace(string(res.Stdout)) != want(i) {
					t.Errorf("session %d: %q %q, %v; want %q", i, res.Stdout, res.Stderr, err, want(i))
				}
			})
		}
		all.Wait()
	}
	number := func(i int) string { return fmt.Sprint("n", i) }
	each(`echo $MINE > ~/mine; echo $MINE > /tmp/mine; touch $MINE; cat ~/mine`, number)
	list, err := c.Containers(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "w-site" {
		t.Fatalf("boxes %+v, %v; want one", list, err)
	}
	each(`ls ~ /tmp | tr '\n' ' '; ls -d n* | wc -l`, func(int) string { return "/home/agent: mine  /tmp: mine 20" })
	boot := list[0].Boot
	stop()
	c, _ = serve(t, cfg)
	each(`cat /tmp/mine`, number)
	if list, err = c.Containers(t.Context()); err != nil || len(list) != 1 || list[0].Boot != boot {
		t.Errorf("after a restart of the server: %+v, %v; want the box as it was", list, err)
	}
	if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
		t.Fatal(err)
	}
	each(`cat ~/mine`, number)
	if _, err := c.EndSession(t.Context(), ids[0], holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if list, err = c.Containers(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("after the end of one session: %+v, %v; want the box of the others", list, err)
	}
	for _, id := range ids[1:] {
		if _, err := c.EndSession(t.Context(), id, holdfast.EndSession{}); err != nil {
			t.Fatal(err)
		}
	}
	if list, err = c.Containers(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after the end of all sessions: %+v, %v", list, err)
	}
}

// TestWSR108_PlantedTranscriptsAreNothing: the server looks for no conversations in the agents' directories: transcripts that
// somebody puts there are no sessions, no search finds them, and they end nothing, now and after a restart (WS-R108).
func TestWSR108_PlantedTranscriptsAreNothing(t *testing.T) {
	cfg := settings(t, "local")
	c, stop := serve(t, cfg)
	id := newSession(t, c, "untrusted")
	turn(t, c, id, inBash("true"))
	dir := filepath.Join(cfg.Data, "sessions", string(id), "home", ".claude", "projects", "-workspace")
	line := `{"type":"user","sessionId":"01a216a9-4a12-7576-9d8e-bab90d0ffc41","uuid":"01a216a9-4a12-7576-9d8e-bab90d0ffc42","message":{"role":"user","content":"xylophone"}}` + "\n"
	for _, name := range []string{"01a216a9-4a12-7576-9d8e-bab90d0ffc41.jsonl", string(id) + ".jsonl", "broken.jsonl"} {
		if err := errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, name), []byte(line[:len(line)-len(name)%3]), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"before", "after"} {
		if end := turn(t, c, id, "What do you know?"); strings.Contains(end.Result, "xylophone") {
			t.Errorf("%s the restart the agent says %q", when, end.Result)
		}
		all, err := c.Sessions(t.Context(), holdfast.SessionFilter{})
		if err != nil || len(all.Sessions) != 1 || all.Sessions[0].ID != id {
			t.Errorf("%s the restart: sessions %+v, %v", when, all, err)
		}
		if found, err := c.Search(t.Context(), holdfast.SearchRequest{Query: "xylophone"}); err != nil || len(found.Hits) != 0 {
			t.Errorf("%s the restart: found %+v, %v", when, found, err)
		}
		if when == "before" {
			stop()
			c, _ = serve(t, cfg)
		}
	}
}
