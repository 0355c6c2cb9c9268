package snapshot_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
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
// files and the conversation of before, or those of the checkpoint, and nothing that the rewind left.
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
		w.ready()
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
	for _, want := range []string{"staged", "ready", "rewound", "restoring", "removed", "placed", "restored"} {
		if !points[want] {
			t.Errorf("the server never ended at %s", want)
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

// TestRandomBorrowed: whatever the user and the agent change, and wherever the server ends, a rewind changes exactly the paths of its plan,
// none of which somebody else changed since, to what the checkpoint has; every other path keeps inode, owner, mode and content.
func TestRandomBorrowed(t *testing.T) { wantBorrowed(t, 25) }

// TestRandomBorrowedLong does the same more often.
func TestRandomBorrowedLong(t *testing.T) {
	testkit.Long(t)
	wantBorrowed(t, 150)
}

func wantBorrowed(t *testing.T, n int) {
	refused, done := 0, 0
	for seed := range n {
		h := &shared{world: newBorrowed(t), r: rand.New(rand.NewPCG(uint64(seed), 82)), by: map[string]int{}}
		h.next(nil)
		for range 12 {
			h.step()
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(h.notes, "\n"))
			}
		}
		refused, done = refused+h.refused, done+h.done
	}
	if refused < n/2 || done < n/2 {
		t.Errorf("%d rewinds were refused and %d done: the test tries too little", refused, done)
	}
}

// shared is a user's own directory in which a session and the user work.
type shared struct {
	*world
	r     *rand.Rand
	notes []string
	// points are the turns, ended is when the newest ended. by maps a path to the number of points when the user last changed it.
	points        []holdfast.TurnID
	ended         time.Time
	by            map[string]int
	refused, done int
}

func (h *shared) note(format string, args ...any) {
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}

// mutate changes some files.
func (h *shared) mutate(who string) {
	names := []string{"a", "d/b", "d/e/c", "d/e/x.log", "x.log", "f", "f/g", "d/.gitignore"}
	for range 1 + h.r.IntN(3) {
		name := names[h.r.IntN(len(names))]
		top, _, _ := strings.Cut(name, "/")
		switch h.r.IntN(6) {
		case 0:
			if err := os.RemoveAll(h.in([]string{name, top}[h.r.IntN(2)])); err != nil && !errors.Is(err, syscall.ENOTDIR) {
				h.t.Fatal(err)
			}
			h.note("  %s removes %s", who, name)
			continue
		case 1:
			if _, err := os.Lstat(h.in(name)); err == nil {
				must(h.t, os.Chmod(h.in(name), []os.FileMode{0o755, 0o700, 0o644}[h.r.IntN(3)]|0o700&^0o077))
				h.note("  %s changes the mode of %s", who, name)
			}
			continue
		}
		for at := name; at != "."; at = filepath.Dir(at) { // what is in the way goes
			if info, err := os.Lstat(h.in(at)); err == nil && info.IsDir() == (at == name) {
				must(h.t, os.RemoveAll(h.in(at)))
			}
		}
		text := fmt.Sprint(h.r.IntN(4))
		if strings.HasSuffix(name, ".gitignore") {
			text = []string{"*.log\n", "", "b\n"}[h.r.IntN(3)]
		}
		h.put(name, text)
		h.note("  %s writes %q to %s", who, text, name)
	}
}

// step lets something happen.
func (h *shared) step() {
	switch h.r.IntN(5) {
	case 0:
		// In the millisecond of a turn's end nobody can tell the user's work from the turn's, if the server ends then.
		restart := h.r.IntN(3) == 0 && time.Now().UnixMilli() > h.ended.UnixMilli()+2
		before := contents(h.t, h.mine)
		h.mutate("the user")
		if restart {
			h.start()
		}
		h.found() // before the next turn or rewind
		stored := h.files(h.stored()[0])
		for name, is := range contents(h.t, h.mine) {
			// What is left out from now on is none of the checkpoints' business.
			if before[name] != is && stored["workspace/"+name] != "" {
				h.by[name] = len(h.points)
			}
			delete(before, name)
		}
		for name := range before {
			h.by[name] = len(h.points)
		}
	case 1, 2:
		h.note("a turn")
		h.points = append(h.points, h.next(func() { h.mutate("the agent") }))
		h.ended = time.Now()
	default:
		if len(h.points) > 0 {
			h.goBack()
		}
	}
}

func (h *shared) goBack() {
	at := h.r.IntN(len(h.points))
	to := h.points[at]
	_, cp := h.find(string(to))
	want := h.files(cp)
	out, err := h.into(to, true)
	must(h.t, err)
	plan := out.Plan
	before := state(h.t, h.mine)
	if h.countdown = -1; h.r.IntN(2) == 0 {
		h.countdown = h.r.IntN(12)
	}
	turns := h.row().LastSeq
	crashed := h.do(func() { _, err = h.into(to, false) })
	h.countdown = -1
	h.ready()
	h.clean()
	after := state(h.t, h.mine)
	rewound := false
	for _, ev := range h.log(holdfast.EventSessionRewound) {
		rewound = rewound || ev.Seq > turns
	}
	h.note("a rewind to point %d: conflicts %q, crashed %v, done %v", at, plan.Conflicts, crashed, rewound)
	planned := map[string]bool{}
	for _, list := range [][]string{plan.Write, plan.Remove, plan.MakeDirs, plan.RemoveDirs} {
		for _, name := range list {
			planned[name] = rewound
		}
	}
	switch {
	case plan.ConflictCount > 0 && (rewound || !crashed && !holdfast.IsKind(err, holdfast.KindConflict)):
		h.t.Errorf("a rewind with conflicts: %v", err)
	case plan.ConflictCount > 0:
		h.refused++
	case !crashed && err != nil:
		h.t.Errorf("a rewind without conflicts: %v", err)
	case rewound:
		h.done++
		h.arrived(at, plan, want)
	}
	for name, was := range before {
		// A directory gets other times by what happens in it.
		if got := after[name]; !planned[name] && got != was && untimed(got) != untimed(was) {
			h.t.Errorf("%s was touched: %q, before %q", name, got, was)
		}
	}
	for name := range after {
		if before[name] == "" && !planned[name] {
			h.t.Errorf("%s was made", name)
		}
	}
}

// untimed is the description of a directory without its times; "" for anything else.
func untimed(line string) string {
	fields := strings.Fields(line)
	if len(fields) != 10 || !strings.HasPrefix(fields[3], "4") {
		return line
	}
	return strings.Join(fields[:6], " ")
}

// arrived checks what a rewind that is done has changed.
func (h *shared) arrived(at int, plan *holdfast.RewindPlan, want map[string]string) {
	got := describe2(h.t, h.mine)
	for _, name := range plan.Write {
		if stored := content(want["workspace/"+name]); got[name] != stored || stored == "" {
			h.t.Errorf("%s is %q, the checkpoint has %q", name, got[name], stored)
		}
	}
	for _, name := range plan.Remove {
		if _, dir := slices.BinarySearch(plan.MakeDirs, name); got[name] != "" && !dir {
			h.t.Errorf("%s is still there", name)
		}
	}
	for _, name := range append(slices.Clone(plan.Write), plan.Remove...) {
		if since, ok := h.by[name]; ok && since > at {
			h.t.Errorf("the rewind changed %s, which the user had changed", name)
		}
	}
}

// content is the mode and content of a file in a description of describe.
func content(line string) string {
	mode, rest, _ := strings.Cut(line, " ")
	_, text, ok := strings.Cut(rest, ` "`)
	if !ok {
		return ""
	}
	return mode + ` "` + text
}

// describe2 returns the mode and content of the files in a directory.
func describe2(t testing.TB, dir string) map[string]string {
	out := map[string]string{}
	for name, line := range state(t, dir) {
		if _, text, ok := strings.Cut(line, ` "`); ok {
			out[name] = strings.Fields(line)[3] + ` "` + text
		}
	}
	return out
}
