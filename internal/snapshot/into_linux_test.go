package snapshot_test

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// into rewinds files in the user's directory.
func (w *world) into(to holdfast.TurnID, dry bool) (holdfast.RewoundSession, error) {
	return w.branches.Rewind(w.t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(to), Files: "restore", DryRun: dry})
}

// clean fails the test if something of a rewind is left in the user's directory or beside the trees.
func (w *world) clean() {
	w.t.Helper()
	for name := range state(w.t, w.mine) {
		if strings.Contains(name, ".holdfast") {
			w.t.Errorf("%s was left", name)
		}
	}
	if _, err := os.Lstat(w.at("rewinding")); err == nil {
		w.t.Error("the record of a rewind was left")
	}
}

// rich is a directory after two turns, of which the first is the target of rewinds, and what it had then.
func rich(t testing.TB) (w *world, first holdfast.TurnID, then map[string]string) {
	w = newBorrowed(t)
	w.put(".gitignore", "*.log\n")
	w.put("src/x.log", "ignored")
	first = w.next(func() {
		w.put("src/main", "one")
		w.put("src/gone/deep/file", "one")
		w.put("src/gone/also", "one")
		w.put("turns", "into a directory")
		w.put("was/dir/file", "turns into a file")
		w.put("mode", "same")
		must(t, os.Symlink("main", w.in("src/link")))
		must(t, os.WriteFile(w.at("home/h"), []byte("one"), 0o600))
	})
	then = contents(t, w.mine)
	w.next(func() {
		w.put("src/main", "two")
		must(t, os.RemoveAll(w.in("src/gone")))
		must(t, os.Remove(w.in("turns")))
		w.put("turns/a/b", "two")
		must(t, os.RemoveAll(w.in("was/dir")))
		w.put("was/dir", "two")
		w.put("new/only", "two")
		must(t, os.Chmod(w.in("mode"), 0o755))
		must(t, os.Remove(w.in("src/link")))
		must(t, os.Symlink("other", w.in("src/link")))
		must(t, os.WriteFile(w.at("home/h"), []byte("two"), 0o600))
	})
	return w, first, then
}

// TestRewindInto: a rewind that asks for it changes exactly the files that its dry run lists, gives them to the
// directory's owner, and touches nothing else. The present can be had back.
func TestRewindInto(t *testing.T) {
	w, first, then := rich(t)
	before := contents(t, w.mine)
	row, dry := w.row(), state(t, w.mine)
	out, err := w.into(first, true)
	must(t, err)
	sameFiles(t, "after a dry run", state(t, w.mine), dry)
	if now := w.row(); now.LastSeq != row.LastSeq || out.Rewound.Files != holdfast.FilesRestored {
		t.Errorf("the dry run: %+v, event %d after %d", out.Rewound, now.LastSeq, row.LastSeq)
	}
	want := &holdfast.RewindPlan{
		Write:    []string{"mode", "src/gone/also", "src/gone/deep/file", "src/link", "src/main", "turns", "was/dir/file"},
		Remove:   []string{"new/only", "turns/a/b", "was/dir"},
		MakeDirs: []string{"src/gone", "src/gone/deep", "was/dir"}, RemoveDirs: []string{"new", "turns", "turns/a"},
	}
	if got := fmt.Sprintf("%+v", out.Plan); got != fmt.Sprintf("%+v", want) {
		t.Errorf("the plan is\n%s, want\n%+v", got, want)
	}
	check := w.canaries("README", "src/other", "src/x.log", ".gitignore")
	done, err := w.into(first, false)
	must(t, err)
	check(t)
	w.clean()
	if got := contents(t, w.mine); !maps.Equal(got, then) {
		t.Errorf("the directory has %q, want %q", got, then)
	}
	if data, err := os.ReadFile(w.at("home/h")); err != nil || string(data) != "one" {
		t.Errorf("the home directory has %q, %v", data, err)
	}
	for _, name := range append(slices.Clone(want.Write), want.MakeDirs...) {
		info, err := os.Lstat(w.in(name))
		must(t, err)
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != user().UID || int(st.Gid) != user().GID {
			t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
		}
	}
	if paths, _ := w.found(); len(paths) > 0 {
		t.Errorf("found %q after a rewind", paths)
	}
	undo, err := w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: done.Rewound.Kept, Files: "restore"})
	must(t, err)
	if got := contents(t, w.mine); !maps.Equal(got, before) || undo.Rewound.Files != holdfast.FilesRestored {
		t.Errorf("the directory has %q, want %q", got, before)
	}
}

// TestHZ8_RewindMakesNoSetUID: a rewind writes a file without the set-uid and set-gid bits that it had in the checkpoint: in a
// directory of root it would be a program that runs as root, with a content that an agent may have written.
func TestHZ8_RewindMakesNoSetUID(t *testing.T) {
	w := newBorrowed(t)
	w.put("program", "one")
	must(t, os.Chmod(w.in("program"), 0o755|os.ModeSetuid|os.ModeSetgid))
	first := w.next(func() { w.put("other", "one") })
	w.next(func() { w.put("program", "two") })
	_, err := w.into(first, false)
	must(t, err)
	info, err := os.Lstat(w.in("program"))
	must(t, err)
	if b, err := os.ReadFile(w.in("program")); err != nil || string(b) != "one" || info.Mode() != 0o755 {
		t.Errorf("the program has the mode %s and holds %q, %v", info.Mode(), b, err)
	}
}

// TestRewindAcrossIgnored: a rewind to before a path was ignored puts it back if it was stored, and touches no other ignored one; and
// so does the way back.
func TestRewindAcrossIgnored(t *testing.T) {
	w := newBorrowed(t)
	first := w.next(func() { w.put("conf/secret", "first"); w.put("src/main", "one") })
	w.next(func() {
		w.put(".gitignore", "conf/\n")
		w.put("conf/secret", "second")
		w.put("conf/more", "x")
		w.put("src/main", "two")
	})
	check := w.canaries("conf/more", "README", "src/other")
	plan, err := w.into(first, true)
	must(t, err)
	if p := plan.Plan; !slices.Equal(p.Write, []string{"conf/secret", "src/main"}) || !slices.Equal(p.Remove, []string{".gitignore"}) {
		t.Errorf("the plan is %+v", p)
	}
	done, err := w.into(first, false)
	must(t, err)
	check(t)
	_, err = w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: done.Rewound.Kept, Files: "restore"})
	must(t, err)
	check(t)
	if got := contents(t, w.mine); got["src/main"] != `644 "two"` || got[".gitignore"] == "" {
		t.Errorf("the directory has %q", got)
	}
}

// TestRewindIntoConflicts: what others changed or what nobody knows refuses the whole rewind, and nothing is written.
func TestRewindIntoConflicts(t *testing.T) {
	var socket net.Listener
	for name, c := range map[string]struct {
		others func(w *world)
		path   string
	}{
		"found before a later turn": {func(w *world) {
			w.put("src/main", "by the user")
			w.next(func() { w.put("src/main", "by the agent again") })
		}, "src/main"},
		"changed now":         {func(w *world) { w.put("src/main", "by the user") }, "src/main"},
		"added now":           {func(w *world) { w.put("new/mine", "by the user") }, "new/mine"},
		"removed now":         {func(w *world) { must(w.t, os.Remove(w.in("new/only"))); w.put("src/gone/also", "x") }, "src/gone/also"},
		"kept by a rewind":    {func(w *world) { w.put("src/main", "by the user"); w.rewind(string(w.stored()[0].ID), "keep") }, "src/main"},
		"a file that is left": {func(w *world) { w.put("turns/x.log", "ignored") }, "turns"},
		"a thing that no checkpoint has": {func(w *world) {
			var err error
			must(w.t, os.MkdirAll(w.in("src/gone"), 0o755))
			must(w.t, os.Chown(w.in("src/gone"), user().UID, user().GID))
			socket, err = net.Listen("unix", w.in("src/gone/also"))
			must(w.t, err)
			w.t.Cleanup(func() { _ = socket.Close() })
		}, "src/gone/also"},
	} {
		t.Run(name, func(t *testing.T) {
			w, first, _ := rich(t)
			c.others(w)
			want, row := contents(t, w.mine), w.row()
			out, err := w.into(first, true)
			must(t, err)
			if out.Plan.ConflictCount < 1 || !slices.Contains(out.Plan.Conflicts, c.path) {
				t.Errorf("the plan's conflicts are %q", out.Plan.Conflicts)
			}
			_, err = w.into(first, false)
			if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), holdfast.Quote(c.path)) {
				t.Fatalf("%v, want a conflict over %s", err, c.path)
			}
			if got := contents(t, w.mine); !maps.Equal(got, want) {
				t.Errorf("the directory has %q, want %q", got, want)
			}
			if w.row().CompletedTurns != row.CompletedTurns {
				t.Error("the conversation went back")
			}
			w.clean()
			w.next(func() { w.put("src/main", "the session goes on") })
		})
	}
}

// TestRewindIntoCrash: wherever the server ends in a rewind into a user's own directory, the next one finds either the
// files and the conversation of before, or those of the checkpoint, and nothing that the rewind left; with and without the
// session.
func TestRewindIntoCrash(t *testing.T) {
	points := map[string]bool{}
	for n := 0; ; n++ {
		w, first, then := rich(t)
		before, turns := contents(t, w.mine), w.row().CompletedTurns
		check := w.canaries("README", "src/other", "src/x.log", ".gitignore")
		w.countdown, w.passed = n, nil
		crashed := w.do(func() {
			_, err := w.into(first, false)
			w.whole(err)
		})
		w.countdown = -1
		if crashed {
			points[w.passed[len(w.passed)-1]] = true
		}
		if n%2 == 1 {
			w.ready()
		} else {
			must(t, snapshot.Finish(t.Context(), w.snaps, w.store.Sessions.Rows))
		}
		got := contents(t, w.mine)
		switch back := w.row().CompletedTurns != turns; {
		case back && !maps.Equal(got, then):
			t.Errorf("ended at point %d, %v: the directory has %q, want %q", n, w.passed, got, then)
		case !back && !maps.Equal(got, before):
			t.Errorf("ended at point %d, %v, before the commit: the directory has %q, want %q", n, w.passed, got, before)
		case !crashed && !back:
			t.Error("the whole rewind did nothing")
		}
		check(t)
		w.clean()
		if paths, _ := w.found(); len(paths) > 0 {
			t.Errorf("ended at point %d: found %q", n, paths)
		}
		if _, err := w.into(first, false); err != nil {
			t.Errorf("ended at point %d: another rewind: %v", n, err)
		}
		if t.Failed() || !crashed {
			break
		}
	}
	for _, want := range []string{
		"written", "staged", "ready", "rewound", "restoring", "removing", "aside", "removed", "placing", "exchanged", "placed", "restored",
	} {
		if !points[want] {
			t.Errorf("the server never ended at %s", want)
		}
	}
}

// TestRewindIntoCrashThenPurge: a session that is removed for good after the server ended in its rewind leaves the files of
// before or those of the checkpoint in the user's directory, and nothing that the rewind left.
func TestRewindIntoCrashThenPurge(t *testing.T) {
	for n := 0; ; n++ {
		w, first, then := rich(t)
		before := contents(t, w.mine)
		w.countdown, w.passed = n, nil
		crashed := w.do(func() { _, _ = w.into(first, false) })
		w.countdown = -1
		must(t, w.snaps.Purge(t.Context(), w.row()))
		if got := contents(t, w.mine); !maps.Equal(got, before) && !maps.Equal(got, then) {
			t.Errorf("ended at point %d, %v: the directory has %q, want %q or %q", n, w.passed, got, before, then)
		}
		w.clean()
		if t.Failed() || !crashed {
			break
		}
	}
}

// TestRewindIntoInterruptedByOthers: files that somebody changes after the server ended in a rewind stay, and a notice
// names them.
func TestRewindIntoInterruptedByOthers(t *testing.T) {
	w, first, then := rich(t)
	w.crash = "rewound"
	if !w.do(func() { _, _ = w.into(first, false) }) {
		t.Fatal("the server did not end")
	}
	w.put("src/main", "by the user")
	w.put("turns/a/b", "by the user")
	w.ready()
	got := contents(t, w.mine)
	for name, want := range map[string]string{"src/main": `644 "by the user"`, "turns/a/b": `644 "by the user"`, "src/gone/also": then["src/gone/also"], "was/dir/file": then["was/dir/file"]} {
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
	n := w.notices(holdfast.NoticeRewindLeft)
	if len(n) != 1 || !strings.Contains(n[0], `"src/main"`) || !strings.Contains(n[0], `"turns/a/b"`) || strings.Contains(n[0], "gone") {
		t.Errorf("notices: %q", n)
	}
	w.clean()
	w.next(nil)
}

// TestRewindIntoFails: a rewind that cannot write its files, or whose checkpoint cannot be read, changes nothing.
func TestRewindIntoFails(t *testing.T) {
	w, first, _ := rich(t)
	var packs []string
	must(t, filepath.WalkDir(filepath.Join(w.base, "packs"), func(path string, _ fs.DirEntry, err error) error {
		packs = append(packs, path)
		return err
	}))
	_, cp := w.find(string(first))
	list, err := w.store.Checkpoints.Packs(t.Context(), cp.Packs[:1])
	must(t, err)
	hidden := 0
	for _, p := range packs {
		if strings.Contains(p, list[0].ID) {
			must(t, os.Rename(p, p+"-hidden"))
			hidden++
		}
	}
	if hidden == 0 {
		t.Fatalf("the pack %s is in none of %q", list[0].ID, packs)
	}
	before, row := contents(t, w.mine), w.row()
	w.start()
	if _, err := w.into(first, false); err == nil {
		t.Fatal("a rewind to a damaged checkpoint succeeded")
	}
	if got := contents(t, w.mine); !maps.Equal(got, before) || w.row().CompletedTurns != row.CompletedTurns {
		t.Errorf("the directory has %q, want %q", got, before)
	}
	w.clean()
}
