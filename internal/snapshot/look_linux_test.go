package snapshot_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// rest runs turns until one is not scanned.
func (w *world) rest() {
	w.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for w.scanned(nil) {
		if time.Now().After(deadline) {
			w.t.Fatalf("each turn of a session at rest is scanned; %d snapshots were taken, and some failed: %v",
				len(w.log(holdfast.EventSnapshotTaken)), w.log(holdfast.EventSnapshotFailed))
		}
	}
}

// scanned runs a turn, and reports whether the server scanned its files.
func (w *world) scanned(change func()) bool {
	w.t.Helper()
	w.passed = nil
	w.turn(change)
	return slices.Contains(w.passed, "scanned")
}

// TestUnchangedTurnIsNotScanned: once a scan has found nothing in a small tree, the next look at it needs none and adds nothing,
// until something changes in one of the trees.
func TestUnchangedTurnIsNotScanned(t *testing.T) {
	w := newWorld(t, true)
	w.write("workspace/d/f", "one")
	w.write("home/h", "one")
	w.turn(nil)
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"a file", func() { w.write("workspace/d/f", "two") }},
		{"a new file", func() { w.write("workspace/d/new", "") }},
		{"a file of home", func() { w.write("home/h", "two") }},
		{"home removed", func() { must(t, os.RemoveAll(w.at("home"))) }},
		{"home made", func() { w.write("home/h", "three") }},
		{"a file, silently", func() { rewriteSilently(w, "workspace/d/f") }},
	} {
		w.rest()
		stored, commits := len(w.stored()), w.commits
		settled := w.end(w.begin())
		must(t, w.snaps.After(t.Context(), settled))
		if n := len(w.stored()); n != stored || w.commits-commits > 2 {
			t.Errorf("an unchanged turn made %d checkpoints and %d commits", n-stored, w.commits-commits)
		}
		settled = w.end(w.begin())
		if settled.Idle = true; w.snaps.After(t.Context(), settled) != nil || len(w.stored()) != stored {
			t.Error("an idle turn after it made a checkpoint")
		}
		id := w.turn(c.change)
		if len(w.stored()) != stored+1 {
			t.Fatalf("%s: no checkpoint", c.name)
		}
		_, files := w.find(string(id))
		sameFiles(t, c.name, w.files(files), w.now())
	}
}

// rewriteSilently changes a file, and neither its size nor its modification time.
func rewriteSilently(w *world, name string) {
	info, err := os.Stat(w.at(name))
	must(w.t, err)
	b, err := os.ReadFile(w.at(name))
	must(w.t, err)
	b[0]++
	must(w.t, os.WriteFile(w.at(name), b, 0o644))
	must(w.t, os.Chtimes(w.at(name), time.Time{}, info.ModTime()))
}

// TestALookSeesALiveProcess: while processes are alive, an unchanged turn is not scanned either, and each store of one through
// a mapping that it has had for long is found.
func TestALookSeesALiveProcess(t *testing.T) {
	w := worldIn(t, t.TempDir(), true) // in memory no store through a mapping but the first has a time
	w.write("workspace/f", "one")
	w.write("workspace/g", "one")
	w.turn(nil)
	w.alive = true
	f, err := os.OpenFile(w.at("workspace/f"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 3, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer func() { must(t, unix.Munmap(m)) }()
	for i, change := range []func(){
		func() { m[0] = 'a' },
		func() { m[0] = 'b' },
		func() { rewriteSilently(w, "workspace/g") },
	} {
		w.rest()
		stored := len(w.stored())
		id := w.turn(change)
		if len(w.stored()) != stored+1 {
			t.Fatalf("change %d: no checkpoint", i)
		}
		_, files := w.find(string(id))
		sameFiles(t, "with a live process", w.files(files), w.now())
	}
}

// TestWhenMemoryIsNotUsed: after a start, a rewind and the removal of a checkpoint, and without a workspace, the
// files are scanned, although nothing changed in them.
func TestWhenMemoryIsNotUsed(t *testing.T) {
	w := newWorld(t, true)
	w.write("workspace/f", "one")
	first := w.turn(nil)
	w.write("workspace/f", "two")
	second := w.turn(nil)
	for name, cause := range map[string]func(){
		"start":  w.start,
		"rewind": func() { w.rewind(string(first), ""); w.rewind(string(second), "") },
	} {
		w.rest()
		cause()
		if !w.scanned(nil) {
			t.Errorf("%s: no scan", name)
		}
		w.write("workspace/f", "three") // a change ends what a rewind began
		w.turn(nil)
	}
	w.rest()
	w.passed = nil
	w.rewind(string(first), "keep")
	if here, _, err := w.snaps.Here(t.Context(), w.row()); err != nil || here.Abandoned || !slices.Contains(w.passed, "scanned") {
		t.Errorf("after a rewind that kept the files: %+v, %v", here, err)
	}
	w.write("workspace/f", "four")
	w.turn(nil)
	w.rest()
	newest := w.stored()[0].ID
	must(t, w.store.Checkpoints.DropCheckpoints(t.Context(), w.id, []holdfast.CheckpointID{newest}))
	w.turn(nil)
	if now := w.stored()[0]; now.ID == newest || w.files(now)["workspace/f"] != w.now()["workspace/f"] {
		t.Error("the files of a checkpoint that was removed are not stored again")
	}
	w.rest()
	failed := len(w.log(holdfast.EventSnapshotFailed))
	must(t, os.RemoveAll(w.at("workspace")))
	w.turn(w.called)
	if got := w.log(holdfast.EventSnapshotFailed); len(got) != failed+1 {
		t.Errorf("%d events of a workspace that is gone", len(got)-failed)
	}
}
