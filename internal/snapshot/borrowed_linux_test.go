package snapshot_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// newBorrowed makes a session that works in a directory of the user's own with some files in it.
func newBorrowed(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, false)
	w.mine = filepath.Join(w.base, "user", "project")
	must(t, os.MkdirAll(filepath.Join(w.mine, "src"), 0o755))
	w.put("README", "the user's")
	w.put("src/main", "main")
	w.put("src/other", "other")
	must(t, os.Chmod(w.in("src/main"), 0o640))
	must(t, filepath.WalkDir(w.mine, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		return os.Lchown(path, user().UID, user().GID)
	}))
	st, _ := entryAt(t, w.mine)
	w.inode = st.Ino
	c := journal.NewChange(w.id)
	yes := true
	c.Patch().HadFiles, c.Patch().FilesSeeded = &yes, &yes
	_, err := w.journal.Commit(t.Context(), c)
	must(t, err)
	must(t, os.MkdirAll(w.at("home"), 0o700))
	return w
}

func (w *world) in(name string) string { return filepath.Join(w.mine, name) }

// put writes a file into the user's directory, as an editor does that renames.
func (w *world) put(name, content string) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Dir(w.in(name)), 0o755))
	must(w.t, os.WriteFile(w.in(name)+"~", []byte(content), 0o644))
	must(w.t, os.Chown(w.in(name)+"~", user().UID, user().GID))
	must(w.t, os.Rename(w.in(name)+"~", w.in(name)))
}

// found calls Found, as the engine does before a turn.
func (w *world) found() (paths []string, more int) {
	w.t.Helper()
	paths, more, err := snapshot.Found(w.t.Context(), w.snaps, w.row())
	must(w.t, err)
	return paths, more
}

// next runs a turn in the user's directory.
func (w *world) next(change func()) holdfast.TurnID {
	w.t.Helper()
	w.ready()
	w.found()
	return w.turn(change)
}

// state describes a directory exactly: whatever touches an entry of it changes its line.
func state(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		st, content := entryAt(t, path)
		out[rel] = fmt.Sprintf("inode %d mode %o owner %d:%d mtime %d ctime %d%s", st.Ino, st.Mode, st.Uid, st.Gid, st.Mtim.Nano(), st.Ctim.Nano(), content)
		return nil
	}))
	return out
}

// contents describes what a checkpoint can bring back of a directory.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name := range state(t, dir) {
		info, err := os.Lstat(filepath.Join(dir, name))
		must(t, err)
		switch {
		case info.IsDir():
		case info.Mode().IsRegular():
			data, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
			out[name] = fmt.Sprintf("%o %q", info.Mode().Perm(), data)
		case info.Mode()&fs.ModeSymlink != 0:
			out[name], err = os.Readlink(filepath.Join(dir, name))
			must(t, err)
		default:
			out[name] = info.Mode().Type().String()
		}
	}
	return out
}

// TestBorrowedWorkspaceIsNeverReplaced: whatever replaces, repairs or removes the files of other sessions leaves those of a
// directory of the user's own exactly as they are, top and all (I-47).
func TestBorrowedWorkspaceIsNeverReplaced(t *testing.T) {
	ctx := t.Context()
	doors := map[string]func(w *world, first, last holdfast.TurnID){
		"ready after a start": func(w *world, _, _ holdfast.TurnID) { w.start(); w.ready() },
		"a power cut before any call": func(w *world, _, _ holdfast.TurnID) {
			w.cut, w.later = time.Now().Add(time.Hour), 2*time.Hour
			w.start()
			w.ready()
		},
		"a power cut after a call": func(w *world, _, _ holdfast.TurnID) {
			c := journal.NewChange(w.id)
			c.Events = []journal.Draft{{Type: holdfast.EventToolStarted, Data: holdfast.ToolStarted{ToolUseID: "x"}}}
			_, err := w.journal.Commit(ctx, c)
			must(w.t, err)
			w.cut, w.later = time.Now().Add(time.Hour), 2*time.Hour
			w.start()
			w.ready()
		},
		"restore": func(w *world, first, _ holdfast.TurnID) {
			wantKind(w.t, w.snaps.Restore(ctx, w.row(), string(first)), holdfast.KindConflict)
		},
		"a mark that no rewind left": func(w *world, first, _ holdfast.TurnID) {
			c := journal.NewChange(w.id)
			c.Files = &journal.FilesChange{Restore: &journal.Restore{Scope: w.id.Box(), Session: w.id, Checkpoint: holdfast.CheckpointID(first)}}
			_, err := w.journal.Commit(ctx, c)
			must(w.t, err)
			w.start()
			w.ready()
			if n := w.notices(holdfast.NoticeRewindLeft); len(n) != 1 {
				w.t.Errorf("%d notices of the mark", len(n))
			}
		},
		"a rewind that does not ask for files": func(w *world, first, _ holdfast.TurnID) {
			if out := w.rewind(string(first), ""); out.Files != holdfast.FilesKept {
				w.t.Errorf("files %s", out.Files)
			}
		},
		"a dry run": func(w *world, first, _ holdfast.TurnID) {
			_, err := w.branches.Rewind(ctx, w.id, holdfast.RewindSession{To: holdfast.CheckpointID(first), Files: "restore", DryRun: true})
			must(w.t, err)
		},
		"a fork": func(w *world, first, _ holdfast.TurnID) {
			s, _, err := w.branches.Fork(ctx, w.id, holdfast.ForkSession{At: holdfast.CheckpointID(first)}, "")
			must(w.t, err)
			must(w.t, w.snaps.Ready(ctx, w.rowOf(s.ID)))
			own, err := os.ReadFile(filepath.Join(w.dir(s.ID), "workspace", "src", "main"))
			if err != nil || string(own) != "one" {
				w.t.Errorf("the fork has %q, %v", own, err)
			}
		},
		"a checkpoint": func(w *world, _, _ holdfast.TurnID) { w.snaps.Take(ctx, w.row(), holdfast.CheckpointStop) },
		"settle": func(w *world, _, _ holdfast.TurnID) {
			_, err := snapshot.Settle(ctx, w.snaps, w.store.Sessions.Rows)
			must(w.t, err)
		},
		"purge": func(w *world, _, _ holdfast.TurnID) { must(w.t, w.snaps.Purge(ctx, w.row())) },
	}
	for name, door := range doors {
		t.Run(name, func(t *testing.T) {
			w := newBorrowed(t)
			first := w.next(func() { w.put("src/main", "one") })
			last := w.next(func() { w.put("src/main", "two"); w.put("src/new", "new"); must(t, os.Remove(w.in("src/other"))) })
			want := state(t, w.mine)
			door(w, first, last)
			sameFiles(t, "the user's directory", state(t, w.mine), want)
			for _, p := range []string{w.dir(w.id) + "/workspace", w.mine + ".restoring"} {
				if _, err := os.Lstat(p); err == nil {
					t.Errorf("%s was made", p)
				}
			}
		})
	}
}

// TestOneFileWritesTrees: no code of the package but own.go replaces or removes whole trees (I-47).
func TestOneFileWritesTrees(t *testing.T) {
	writers := regexp.MustCompile(`\b(tree\.(Apply|Restore|Mend)|rooted\.(RemoveAll|MakeTree|Seed)|os\.(RemoveAll|Rename|Chown|Lchown|Chmod))\(`)
	files, err := filepath.Glob("*.go")
	must(t, err)
	seen := false
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		must(t, err)
		found := writers.Find(text)
		if seen = seen || name == "own.go" && found != nil; name != "own.go" && found != nil {
			t.Errorf("%s calls %s", name, found)
		}
	}
	if !seen {
		t.Error("own.go writes no tree: the test looks for the wrong calls")
	}
}

// TestBorrowedWorkspaceGone: a directory that is gone is a conflict that names it, and nothing is made in its place.
func TestBorrowedWorkspaceGone(t *testing.T) {
	w := newBorrowed(t)
	first := w.next(func() { w.put("a", "a") })
	away := w.mine + "-moved"
	must(t, os.Rename(w.mine, away))
	w.start()
	ctx := t.Context()
	_, err := w.snaps.Newest(ctx, w.row())
	_, _, ferr := snapshot.Found(ctx, w.snaps, w.row())
	_, rerr := w.branches.Rewind(ctx, w.id, holdfast.RewindSession{To: holdfast.CheckpointID(first), Files: "restore"})
	for what, err := range map[string]error{"ready": w.snaps.Ready(ctx, w.row()), "newest": err, "found": ferr, "rewind": rerr, "restore": w.snaps.Restore(ctx, w.row(), string(first))} {
		if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), w.mine) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Lstat(w.mine); err == nil {
		t.Fatal("the directory was made")
	}
	must(t, os.Rename(away, w.mine))
	w.ready()
}

// notices returns the notices with a code.
func (w *world) notices(code string) (out []string) {
	for _, ev := range w.log(holdfast.EventNotice) {
		var n holdfast.Notice
		must(w.t, ev.Decode(&n))
		if n.Code == code {
			out = append(out, n.Text)
		}
	}
	return out
}

// stored lists what a checkpoint has of the workspace.
func (w *world) names(id holdfast.TurnID) (out []string) {
	w.t.Helper()
	_, cp := w.find(string(id))
	for name := range w.files(cp) {
		if rel, ok := strings.CutPrefix(name, "workspace/"); ok {
			out = append(out, rel)
		}
	}
	slices.Sort(out)
	return out
}

// TestBorrowedLeavesOut: checkpoints of a user's own directory have neither .git nor what git ignores, unless the settings
// say so, but each .gitignore file beside files that they have.
func TestBorrowedLeavesOut(t *testing.T) {
	for _, all := range []bool{false, true} {
		w := newBorrowed(t)
		w.ignored = all
		w.start()
		id := w.next(func() {
			w.put(".git/config", "x")
			w.put("sub/.git", "gitdir: elsewhere")
			w.put(".gitignore", "build/\n*.log\n.gitignore\n")
			w.put("build/out", "x")
			w.put("src/.gitignore", "!keep.log\n")
			w.put("src/keep.log", "x")
			w.put("src/drop.log", "x")
			w.put(edit+"left", "x")
		})
		want := []string{".gitignore", "README", "src", "src/.gitignore", "src/keep.log", "src/main", "src/other", "sub"}
		if all {
			want = append(want, "build", "build/out", "src/drop.log")
			slices.Sort(want)
		}
		if got := w.names(id); !slices.Equal(got, want) {
			t.Errorf("everything %v: %q, want %q", all, got, want)
		}
	}
}

const edit = ".holdfast-rewind-"

// TestIgnoredLater: if a .gitignore file names a file that a checkpoint has, later checkpoints have it as well. They leave out
// ignored files that no checkpoint has. So an agent cannot keep its changes out of the diff and the undo.
func TestIgnoredLater(t *testing.T) {
	w := newBorrowed(t)
	first := w.next(func() { w.put("conf/secret", "first"); w.put("src/main", "one") })
	w.put(".gitignore", "conf/\n")
	paths, _ := w.found()
	if !slices.Equal(paths, []string{".gitignore"}) {
		t.Errorf("found %q", paths)
	}
	must(t, os.Remove(w.in(".gitignore")))
	w.found()
	second := w.next(func() {
		w.put(".gitignore", "conf/\n")
		w.put("conf/secret", "second")
		w.put("conf/more", "x")
		w.put("src/main", "two")
	})
	if got := w.names(second); !slices.Contains(got, "conf/secret") || slices.Contains(got, "conf/more") {
		t.Fatalf("stored: %q", got)
	}
	var b strings.Builder
	_, err := w.snaps.Diff(t.Context(), w.row(), holdfast.CompareCheckpoints{From: holdfast.CheckpointID(first), To: holdfast.CheckpointID(second), Format: holdfast.DiffNames}, &b)
	must(t, err)
	if !strings.Contains(b.String(), "conf/secret") || strings.Contains(b.String(), "conf/more") || !strings.Contains(b.String(), "src/main") {
		t.Errorf("the diff:\n%s", &b)
	}
	check := w.canaries("conf", "conf/more", "src/other")
	_, _ = w.found()
	// What others did to .gitignore is a conflict, so the rewind goes to after that.
	w.next(func() {
		w.put(".gitignore", "*\n")
		w.put("src/main", "three")
		must(t, os.Remove(w.in("conf/secret")))
		w.put("src/new", "x")
	})
	must(t, os.RemoveAll(filepath.Join(w.dir(w.id), "scans"))) // the checkpoint itself says what was stored, too
	w.start()
	w.next(func() { w.put("README", "the agent's") })
	w.rewind(string(second), "restore")
	check(t)
	for name, want := range map[string]string{"src/main": `644 "two"`, "conf/secret": `644 "second"`, "src/new": `644 "x"`} {
		if got := contents(t, w.mine)[name]; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// canaries returns a function that fails the test if one of the entries was touched since.
func (w *world) canaries(names ...string) func(t testing.TB) {
	all := state(w.t, w.mine)
	return func(t testing.TB) {
		t.Helper()
		now := state(t, w.mine)
		for _, name := range names {
			if name == "conf" {
				continue
			}
			if now[name] != all[name] {
				t.Errorf("%s was touched: %s, before %s", name, now[name], all[name])
			}
		}
	}
}

// TestExcludesAreRemembered: what snapshots.exclude once named is touched by no rewind, although it is in checkpoints now.
func TestExcludesAreRemembered(t *testing.T) {
	w := newBorrowed(t)
	w.exclude = []string{"cache"}
	w.start()
	first := w.next(func() { w.put("cache/x", "x"); w.put("src/main", "one") })
	w.exclude = nil
	w.start()
	if paths, _ := w.found(); len(paths) > 0 {
		t.Errorf("found %q after a change of the settings", paths)
	}
	w.next(func() { w.put("cache/x", "later"); w.put("cache/y", "y"); w.put("src/main", "two") })
	check := w.canaries("cache/x", "cache/y")
	w.rewind(string(first), "restore")
	check(t)
	if got := contents(t, w.mine)["src/main"]; got != `644 "one"` {
		t.Errorf("src/main is %s", got)
	}
}

// TestTooLarge: a directory over the bounds has no checkpoints, one notice says so, and they come back by themselves.
func TestTooLarge(t *testing.T) {
	for name, grow := range map[string]func(w *world){
		"files": func(w *world) {
			for i := range 20 {
				w.put(fmt.Sprintf("many/%d", i), "x")
			}
		},
		"bytes": func(w *world) { w.put("many/large", strings.Repeat("x", 1<<16)) },
		"patterns": func(w *world) {
			for i := range 8 {
				w.put("many/"+strings.Repeat("d/", i)+".gitignore", strings.Repeat("zzz\n", 50_000))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBorrowed(t)
			w.largest = snapshot.Size{Entries: 20, Bytes: 1 << 14}
			if name == "patterns" {
				w.largest = snapshot.Size{Entries: 100, Bytes: 1 << 30}
			}
			w.start()
			first := w.next(func() { w.put("src/main", "one") })
			var off holdfast.TurnID
			for i := range 3 {
				off = w.next(func() { grow(w); must(t, os.WriteFile(w.at("home/h"), []byte(fmt.Sprint(i)), 0o600)) })
			}
			if n := w.notices(holdfast.NoticeCheckpointsOff); len(n) != 1 || !strings.Contains(n[0], w.mine) {
				t.Fatalf("notices: %q", n)
			}
			if failed := w.log(holdfast.EventSnapshotFailed); len(failed) > 0 {
				t.Errorf("%s", failed[0].Data)
			}
			for _, id := range []holdfast.TurnID{first, off} {
				_, err := w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(id), Files: "restore"})
				wantKind(t, err, holdfast.KindConflict)
			}
			_, _, err := w.branches.Fork(t.Context(), w.id, holdfast.ForkSession{At: holdfast.CheckpointID(off)}, "")
			wantKind(t, err, holdfast.KindConflict)
			_, err = w.snaps.Diff(t.Context(), w.row(), holdfast.CompareCheckpoints{From: holdfast.CheckpointID(first), To: holdfast.CheckpointID(off)}, &strings.Builder{})
			wantKind(t, err, holdfast.KindConflict)
			w.start() // the notice is not given again
			w.ready()
			must(t, os.RemoveAll(w.in("many")))
			back := w.next(func() { w.put("src/main", "two") })
			last := w.next(func() { w.put("src/main", "three") })
			if off, on := w.notices(holdfast.NoticeCheckpointsOff), w.notices(holdfast.NoticeCheckpointsOn); len(off) != 1 || len(on) != 1 {
				t.Errorf("notices: %q, %q", off, on)
			}
			if got := w.names(last); !slices.Contains(got, "src/main") {
				t.Errorf("stored: %q", got)
			}
			_, err = w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(first), Files: "restore"})
			wantKind(t, err, holdfast.KindConflict) // whose changes would be lost is not known
			w.rewind(string(back), "restore")
			if got := contents(t, w.mine)["src/main"]; got != `644 "two"` {
				t.Errorf("src/main is %s", got)
			}
		})
	}
}

// TestPowerCutIsReported: after a power cut a user's own directory is compared and left alone, and the home directory comes back.
func TestPowerCutIsReported(t *testing.T) {
	w := newBorrowed(t)
	w.next(func() {
		w.put("src/main", "stored")
		must(t, os.WriteFile(w.at("home/h"), []byte("stored"), 0o600))
		w.put(".gitignore", "gone.log\n")
	})
	must(t, os.Remove(w.in("src/other")))
	must(t, os.Truncate(w.in("src/main"), 0))
	w.put("README", "torn")
	must(t, os.Truncate(w.at("home/h"), 0))
	want := state(t, w.mine)
	w.cut, w.later = time.Now().Add(time.Hour), 2*time.Hour
	w.start()
	w.ready()
	sameFiles(t, "the user's directory", state(t, w.mine), want)
	n := w.notices(holdfast.NoticeFilesCompared)
	if len(n) != 1 {
		t.Fatalf("notices: %q", n)
	}
	for _, part := range []string{`Missing: "src/other"`, `Empty: "src/main"`, `Different: "README"`, `home directory: "~/h"`, w.mine} {
		if !strings.Contains(n[0], part) {
			t.Errorf("the notice lacks %s: %s", part, n[0])
		}
	}
	if data, err := os.ReadFile(w.at("home/h")); err != nil || string(data) != "stored" {
		t.Errorf("the home directory has %q, %v", data, err)
	}
	w.start()
	w.ready()
	if n := w.notices(holdfast.NoticeFilesCompared); len(n) != 1 {
		t.Errorf("%d notices after another start", len(n))
	}
}

// TestHomeWithoutAWorkspace: a session whose workspace was too large for checkpoints gets its home directory back when it
// leaves that workspace. If it has a workspace of its own and that is lost, its home alone is not enough to go on.
func TestHomeWithoutAWorkspace(t *testing.T) {
	w := newBorrowed(t)
	w.largest = snapshot.Size{Entries: 1, Bytes: 1}
	w.start()
	turn := w.next(func() { must(t, os.WriteFile(w.at("home/h"), []byte("one"), 0o600)) })
	want := w.now()
	w.mine = ""
	must(t, os.RemoveAll(w.dir(w.id)))
	if newest, err := w.snaps.Newest(t.Context(), w.row()); err != nil || newest != "" {
		t.Errorf("a lost workspace is restored from %q, %v", newest, err)
	}
	c, no := journal.NewChange(w.id), false
	c.Patch().HadFiles, c.Patch().FilesSeeded = &no, &no
	_, err := w.journal.Commit(t.Context(), c)
	must(t, err)
	newest, err := w.snaps.Newest(t.Context(), w.row())
	must(t, err)
	if newest != string(turn) {
		t.Fatalf("the newest checkpoint with files is %q, want %s", newest, turn)
	}
	must(t, w.snaps.Restore(t.Context(), w.row(), newest))
	sameFiles(t, "the home", w.now(), want)
}
