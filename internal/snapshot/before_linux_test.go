package snapshot_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// announced begins a turn as the engine does: the files are ready, and Announce has returned.
func (w *world) announced() holdfast.TurnID {
	w.t.Helper()
	id := w.begin()
	must(w.t, w.snaps.Announce(w.t.Context(), w.row(), id))
	return id
}

// TestWorkBeforeATurn: what people did outside of turns is in a checkpoint before a turn begins, however soon it begins. So a
// first turn that removes imported files can be undone. A turn before which nobody worked looks at no file and commits nothing.
//
// DOC-6.
func TestWorkBeforeATurn(t *testing.T) {
	w := newWorld(t, true)
	w.write("workspace/src/a", "imported")
	w.snaps.Touching(t.Context(), w.id)(true)
	want := w.now()
	first := w.announced()
	must(t, os.RemoveAll(w.at("workspace/src")))
	must(t, w.snaps.After(t.Context(), w.end(first)))
	list := w.stored()
	if len(list) != 2 {
		t.Fatalf("%d checkpoints: %+v", len(list), list)
	}
	if cp := list[1]; cp.Reason != holdfast.CheckpointDirect || cp.Number != 0 || cp.Turn != "" || list[0].ID != holdfast.CheckpointID(first) {
		t.Errorf("before the turn %+v, after it %+v", cp, list[0])
	}
	w.rewind(string(list[1].ID), "")
	sameFiles(t, "the files before the first turn", maps.Collect(named(w.now(), "workspace/")), maps.Collect(named(want, "workspace/")))

	w.turn(nil)
	commits := w.commits
	w.passed = nil
	if w.announced(); w.commits-commits != 1 || len(w.passed) > 0 {
		t.Errorf("nobody worked: %d commits with that of the turn's start, passed %v", w.commits-commits, w.passed)
	}
}

// named returns the entries of a description whose names begin with prefix.
func named(files map[string]string, prefix string) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for name, text := range files {
			if len(name) > len(prefix) && name[:len(prefix)] == prefix && !yield(name, text) {
				return
			}
		}
	}
}

// TestWorkDuringATurn: the checkpoint of a turn has what people did meanwhile, so nothing is due after it.
func TestWorkDuringATurn(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	id := w.announced()
	w.snaps.Touching(t.Context(), w.id)(true)
	w.write("workspace/a", "by hand")
	settled := w.end(id)
	settled.Idle = true
	must(t, w.snaps.After(t.Context(), settled))
	sameFiles(t, "the checkpoint", w.files(w.stored()[0]), w.now())
	w.passed = nil
	if w.announced(); len(w.passed) > 0 {
		t.Errorf("the next turn looked at the files: %v", w.passed)
	}
}

// TestWorkBeforeATurnFails: a checkpoint that cannot be taken before a turn is an event, and the turn goes on. Its own
// checkpoint has the files.
func TestWorkBeforeATurnFails(t *testing.T) {
	w := newWorld(t, true)
	w.write("workspace/a", "imported")
	w.snaps.Touching(t.Context(), w.id)(true)
	var id holdfast.TurnID
	w.withReadOnlyPacks(func() { id = w.announced() })
	failed := w.log(holdfast.EventSnapshotFailed)
	if len(failed) != 1 || failed[0].Turn != "" || len(w.stored()) != 0 {
		t.Errorf("events %+v, %d checkpoints", failed, len(w.stored()))
	}
	must(t, w.snaps.After(t.Context(), w.end(id)))
	sameFiles(t, "the turn's checkpoint", w.files(w.stored()[0]), w.now())
}

// TestWorkBeforeATurnInAnOwnDirectory: what people did through the session is its work, and not somebody else's, also if a turn
// begins at once.
func TestWorkBeforeATurnInAnOwnDirectory(t *testing.T) {
	w := newBorrowed(t)
	w.turn(func() { w.put("src/main", "one") })
	done := w.snaps.Touching(t.Context(), w.id)
	w.put("src/main", "by a command")
	done(true)
	w.announced()
	if cp := w.stored()[0]; cp.Reason != holdfast.CheckpointDirect {
		t.Errorf("the reason is %s", cp.Reason)
	}
	if slices.ContainsFunc(w.log(holdfast.EventNotice), func(ev holdfast.Event) bool { return ev.Turn != "" }) {
		t.Errorf("the agent is told that others changed files: %+v", w.log(holdfast.EventNotice))
	}
}
