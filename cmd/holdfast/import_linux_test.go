package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// cli runs a command against the server, with the user's git settings in home.
func (p *process) cli(home string, args ...string) (stdout, stderr string) {
	p.t.Helper()
	stdout, stderr, err := p.tries(home, args...)
	if err != nil {
		p.t.Fatalf("holdfast %q: %v\n%s", args, err, stderr)
	}
	return stdout, stderr
}

func (p *process) tries(home string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(p.t.Context(), "holdfast", args...)
	cmd.Env = append(cmd.Environ(), "HOLDFAST_URL="+p.url, "HOLDFAST_HOME="+p.data, "HOME="+home, "TMPDIR="+home, "GIT_CONFIG_GLOBAL="+home+"/gitconfig")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// inBox runs a shell script in a session's box.
func (p *process) inBox(id holdfast.SessionID, script string) string {
	p.t.Helper()
	res, err := p.Exec(p.t.Context(), id, holdfast.ExecRequest{Command: script})
	if err != nil || res.Class != holdfast.ExitOK {
		p.t.Fatalf("%s: %v %s %s %s", script, err, res.Class, res.Stdout, res.Stderr)
	}
	return string(res.Stdout)
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// filesIn are the entries of a tree that is not a repository, with mode, content and target.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil || rel == ".git" {
			return errors.Join(err, fs.SkipDir)
		}
		info, err := d.Info()
		switch {
		case err != nil || d.IsDir():
		case info.Mode()&fs.ModeSymlink != 0:
			target, lerr := os.Readlink(path)
			out[rel], err = "-> "+target, lerr
		default:
			data, rerr := os.ReadFile(path)
			out[rel], err = info.Mode().String()+" "+string(data), rerr
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.SkipDir) {
		t.Fatal(err)
	}
	return out
}

// repository is one with a commit, changes that are not committed, and a hook.
func repository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	write(t, dir, map[string]string{
		"README": "hello\n", "src/main.go": "package main\n", "src/old.go": "package old\n", "run.sh": "#!/bin/sh\n",
		".gitignore": "ignored/\n", "odd \"name\" é": "odd\n",
	})
	gitIn(t, dir, "init", "-q", "-b", "main")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-qm", "first")
	write(t, dir, map[string]string{"src/main.go": "package main // not committed\n", "untracked": "mine\n", "ignored/x": "ignored\n"})
	if err := os.Symlink("src/main.go", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRepositoryInDiffOut: a session starts with a copy of a repository and its changes; the
// diff holds what the agent changed since, whatever the agent's own git settings say, and
// git apply makes the same of the original. The agent's index and settings stay as they are.
//
// FH-14, FH-20.
func TestRepositoryInDiffOut(t *testing.T) {
	p := launchOn(t, testkit.BaseDir(t)+"/data", "local", holdfast.Untrusted)
	home, dir := t.TempDir(), repository(t)
	stdout, stderr := p.cli(home, "session", "create", "--from", dir)
	if !strings.Contains(stderr, "imported ") || strings.Contains(stderr, "not with git") {
		t.Errorf("said %q", stderr)
	}
	id := holdfast.SessionID(strings.TrimSpace(stdout))
	if out, _ := p.cli(home, "session", "diff", string(id)); out != "" {
		t.Errorf("a diff before anything changed:\n%s", out)
	}
	p.inBox(id, `set -e
		git config user.name agent; git config user.email agent@box
		echo "more" >> README; git commit -qam "the agent's commit"
		printf 'a\0b' > binary; git rm -q src/old.go; chmod +x run.sh; rm link; ln -s README link
		echo new > src/new.go; echo '*.go diff=hide filter=hide -text' > .gitattributes; echo "!ignored/y" >> .gitignore
		mkdir -p ignored; echo y > ignored/y
		for key in diff.external diff.hide.textconv diff.hide.command filter.hide.clean core.fsmonitor core.pager core.attributesFile; do
			git config "$key" "touch /workspace/ignored/ran; true"
		done
		git config core.worktree /tmp; git config diff.noprefix true; git config core.hooksPath /workspace/hooks; git config core.excludesFile /workspace/all
		echo '*' > .git/info/exclude
		mkdir -p empty/repo; git init -q empty/repo
		sha256sum .git/index .git/config .git/HEAD > /tmp/sums`)
	p.cli(home, "cp", "-r", string(id)+":.", filepath.Join(home, "after"))
	patch, notes := p.cli(home, "session", "diff", string(id))
	p.inBox(id, "sha256sum -c /tmp/sums && ! test -e ignored/ran")
	if !strings.Contains(notes, "empty/repo") {
		t.Errorf("the repository without a commit, whose files the diff leaves out, is not named: %q", notes)
	}
	if names, _ := p.cli(home, "session", "diff", string(id), "--name-only"); strings.Contains(names, "untracked") || strings.Contains(names, "ignored/x") ||
		!strings.Contains(names, "src/new.go") || !strings.Contains(names, "binary") {
		t.Errorf("names:\n%s", names)
	}
	if stat, _ := p.cli(home, "session", "diff", string(id), "--stat"); !strings.Contains(stat, "README") || !strings.Contains(stat, "files changed") {
		t.Errorf("stat:\n%s", stat)
	}
	var doc struct{ Format, Diff, Notes string }
	if out, _ := p.cli(home, "session", "diff", string(id), "--json"); json.Unmarshal([]byte(out), &doc) != nil || doc.Diff != patch || doc.Notes == "" {
		t.Errorf("as JSON: %s", out)
	}
	apply := exec.Command("git", "apply", "-")
	apply.Dir, apply.Stdin = dir, strings.NewReader(patch)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s\n%s", err, out, patch)
	}
	want := filesIn(t, filepath.Join(home, "after"))
	for name := range want {
		// What is ignored is in no diff, and the agent's instructions were not in the original.
		if strings.HasPrefix(name, "ignored/") || strings.HasPrefix(name, "empty/") || name == "CLAUDE.md" {
			delete(want, name)
		}
	}
	got := filesIn(t, dir)
	delete(got, "ignored/x")
	delete(got, "ignored/y")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("git apply made something else of the original: %s", diff)
	}

	// A commit that is gone is an error, and the server's memory of it stays.
	p.inBox(id, "rm -rf .git ~/.cache; git init -q .")
	if _, stderr, err := p.tries(home, "session", "diff", string(id)); err == nil || !strings.Contains(stderr, "is gone from the repository") {
		t.Errorf("a diff against a commit that is gone: %v %s", err, stderr)
	}
}

// TestCloneRunsNothing: a clone is made with the caller's settings, but nothing that these or
// the repository name is run: no hook, no filter, no submodule, no odd transport.
//
// FH-15, FH-54.
func TestCloneRunsNothing(t *testing.T) {
	p := launchOn(t, testkit.BaseDir(t)+"/data", "local", holdfast.Untrusted)
	home, dir, other := t.TempDir(), repository(t), repository(t)
	marker := filepath.Join(home, "ran")
	write(t, home, map[string]string{
		"template/hooks/post-checkout": "#!/bin/sh\ntouch " + marker + "\n",
		"gitconfig": "[protocol \"file\"]\n\tallow = always\n[init]\n\ttemplateDir = " + home + "/template\n[filter \"evil\"]\n\tsmudge = touch " + marker +
			"\n\trequired = true\n[core]\n\tfsmonitor = touch " + marker + "\n[submodule]\n\trecurse = true\n[safe]\n\tdirectory = *\n",
	})
	if err := os.Chmod(filepath.Join(home, "template/hooks/post-checkout"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{".gitattributes": "*.go filter=evil\n"})
	gitIn(t, dir, "submodule", "--quiet", "add", other, "sub")
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-qm", "second")
	gitIn(t, dir, "tag", "v1")
	gitIn(t, dir, "checkout", "-q", "-b", "topic")
	write(t, dir, map[string]string{"topic": "topic\n"})
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-qm", "third")
	tip := strings.TrimSpace(gitIn(t, dir, "rev-parse", "HEAD"))
	gitIn(t, dir, "checkout", "-q", "main")

	for ref, want := range map[string]string{"": "main", "topic": "topic", "v1": "", tip: ""} {
		from := "file://" + dir
		if ref != "" {
			from += "#" + ref
		}
		stdout, stderr := p.cli(home, "session", "create", "--git", from)
		if !strings.Contains(stderr, "imported ") {
			t.Errorf("%s: %q", from, stderr)
		}
		id := holdfast.SessionID(strings.TrimSpace(stdout))
		if got := strings.TrimSpace(p.inBox(id, "git branch --show-current; git status --short | grep -v CLAUDE.md || true")); got != want {
			t.Errorf("%s: branch and status %q, not %q", from, got, want)
		}
		if topic := p.has(id, "topic"); topic != (ref == "topic" || ref == tip) {
			t.Errorf("%s: the topic's file is there: %v", from, topic)
		}
		if p.has(id, "sub/README") || p.inBox(id, "cat src/main.go") != "package main // not committed\n" {
			t.Errorf("%s: the submodule was fetched, or a filter changed a file", from)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("something of the repository ran")
	}
	for _, from := range []string{"ext::sh -c 'touch " + marker + "'", "file://" + dir + "/nothing", "-u", "file://" + dir + "#nobranch"} {
		_, stderr, err := p.tries(home, "session", "create", "--git", from)
		if _, serr := os.Stat(marker); err == nil || serr == nil || !strings.Contains(stderr, "hint: ") {
			t.Errorf("%s: %v %s", from, err, stderr)
		}
	}
	// No session stays of a clone that failed, and no clone stays anywhere.
	page, err := p.Sessions(t.Context(), holdfast.SessionFilter{})
	if err != nil || len(page.Sessions) != 4 {
		t.Errorf("%d sessions, %v", len(page.Sessions), err)
	}
	if left := testkit.Glob(home, "holdfast-git-*"); len(left) > 0 {
		t.Errorf("clones that stay: %q", left)
	}
}

// TestImportGoesOnAfterAKill: an import that the death of the server, of the box or of the
// client cut off leaves a session that takes no message; the same command goes on with it,
// and no half of the first attempt stays.
//
// FH-14.
func TestImportGoesOnAfterAKill(t *testing.T) {
	data := testkit.BaseDir(t) + "/data"
	p := launchOn(t, data, "local", holdfast.Untrusted)
	home, dir := t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"a": "a\n", "sub/b": strings.Repeat("b", 3_000_000)})
	host, _ := os.Hostname()
	s, err := p.CreateSession(t.Context(), holdfast.CreateSession{Source: "directory " + dir + " of " + host}, "")
	if err != nil {
		t.Fatal(err)
	}
	tar, err := exec.Command("tar", "c", "-C", dir, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	// half sends the first half of the archive, and the rest when the server, the box or
	// the client has been dealt with.
	half := func(deal func()) error {
		r, w := io.Pipe()
		sent := make(chan struct{})
		go func() {
			_, _ = w.Write(tar[:len(tar)/2])
			close(sent)
		}()
		failed := make(chan error, 1)
		go func() { _, err := p.Import(t.Context(), s.ID, r); failed <- err }()
		<-sent
		testkit.Eventually(t, "a half is unpacked", func() bool { return p.staged(s.ID) })
		deal()
		_ = w.CloseWithError(errors.New("torn"))
		return <-failed
	}
	refused := func(after string) {
		t.Helper()
		_, err := p.Send(t.Context(), s.ID, holdfast.SendMessage{Text: "hello"})
		if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "incomplete") {
			t.Errorf("after %s a message got %v", after, err)
		}
		if p.has(s.ID, "a") || p.has(s.ID, "sub") {
			t.Errorf("after %s a half is there", after)
		}
	}
	if err := half(func() {}); err == nil {
		t.Error("an archive that the client broke off was taken")
	}
	testkit.Eventually(t, "the half is gone", func() bool { return !p.staged(s.ID) })
	refused("the end of the client")
	if err := half(func() { p.killBox(s.ID) }); err == nil {
		t.Error("an import into a dead box succeeded")
	}
	refused("the end of the box")
	if err := half(p.kill); err == nil {
		t.Error("an import into a dead server succeeded")
	}
	p = launchOn(t, data, "local", holdfast.Untrusted)
	refused("the end of the server")
	stdout, stderr := p.cli(home, "session", "create", "--from", dir)
	if strings.TrimSpace(stdout) != string(s.ID) || !strings.Contains(stderr, "goes on with session "+string(s.ID)) {
		t.Errorf("the same command made %s and said %s", stdout, stderr)
	}
	if p.staged(s.ID) || !p.has(s.ID, "sub/b") {
		t.Error("the import is not whole, or a half of an earlier one stays")
	}
	if turn := p.say(s.ID, "hello"); turn.Status != holdfast.TurnCompleted {
		t.Errorf("%+v", turn)
	}
	if _, err := p.Import(t.Context(), s.ID, bytes.NewReader(tar)); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a second import: %v", err)
	}
	if stdout, _ := p.cli(home, "session", "create", "--from", dir); strings.TrimSpace(stdout) == string(s.ID) {
		t.Error("a complete import was taken for one that goes on")
	}
}

// TestFailedSnapshotAfterATurn: send says that a turn's files have no checkpoint, although that turns out after its end.
func TestFailedSnapshotAfterATurn(t *testing.T) {
	p := local(t, filepath.Join(testkit.BaseDir(t), "data"))
	home, id := t.TempDir(), string(p.session())
	writes := `<script>[{"tool":"Bash","input":{"command":"echo text >> file"}},{"say":"ok"}]</script>`
	if _, stderr := p.cli(home, "send", id, writes); strings.Contains(stderr, "checkpoint") {
		t.Errorf("with a checkpoint: %q", stderr)
	}
	packs := filepath.Join(p.data, "snapshots")
	if err := errors.Join(os.Rename(packs, packs+".away"), os.WriteFile(packs, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, stderr := p.cli(home, "send", id, writes); strings.Count(stderr, "! the files of this turn have no checkpoint: ") != 1 {
		t.Errorf("without a checkpoint: %q", stderr)
	}
	if out, _ := p.cli(home, "session", "checkpoints", id); !strings.Contains(out, "failed") {
		t.Errorf("the list:\n%s", out)
	}
	if err := errors.Join(os.Remove(packs), os.Rename(packs+".away", packs)); err != nil {
		t.Fatal(err)
	}
}

// staged reports whether a session's workspace holds what is half unpacked.
func (p *process) staged(id holdfast.SessionID) bool {
	found := testkit.Glob(p.data, "sessions/"+string(id)+"/workspace/.holdfast-*/x/*")
	return len(found) > 0
}

// TestFirstTurnOfAnImport: a script sends its message as soon as the import is there. The files as they were before that turn are a
// checkpoint all the same: what the turn removes comes back, the diff shows it, and a backup in the turn has it.
//
// DOC-6, FH-14.
func TestFirstTurnOfAnImport(t *testing.T) {
	p := local(t, filepath.Join(testkit.BaseDir(t), "data"))
	home, dir := t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"src/main.go": "package main\n", "README": "hello\n"})
	stdout, _ := p.cli(home, "session", "create", "--from", dir)
	id := strings.TrimSpace(stdout)
	removes := `<script>[{"tool":"Bash","input":{"command":"rm -rf src; echo new > README; touch began; until [ -e go ]; do sleep 0.02; done"}},{"say":"ok"}]</script>`
	turn, _ := p.cli(home, "send", "--no-wait", id, removes)
	testkit.Eventually(t, "the turn has removed files", func() bool { return p.has(holdfast.SessionID(id), "began") })
	file := filepath.Join(home, "backup")
	if _, notes := p.cli(home, "backup", file); !strings.Contains(notes, "files of session "+id+" may be newer than in the backup") {
		t.Errorf("said %q", notes)
	}
	p.put(holdfast.SessionID(id), "go")
	p.ended(holdfast.SessionID(id), holdfast.TurnID(strings.TrimSpace(turn)))

	if names, _ := p.cli(home, "session", "diff", id, "--name-only"); !strings.Contains(names, "README") || !strings.Contains(names, "src/main.go") {
		t.Errorf("the diff of the first turn names %q", names)
	}
	p.cli(home, "session", "rewind", id, "--to", "#0")
	if got, _ := p.cli(home, "files", "cat", id, "src/main.go"); got != "package main\n" {
		t.Errorf("after the rewind the file is %q", got)
	}
	p.kill()
	there := restores(t, file)
	if got, _ := there.cli(home, "files", "cat", id, "src/main.go", "--at", "#0"); got != "package main\n" {
		t.Errorf("in the backup the file is %q", got)
	}
	there.kill()
}
