package snapshot_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// TestFound: what others change between turns becomes a checkpoint of its own, and its paths are returned.
func TestFound(t *testing.T) {
	w := newBorrowed(t)
	if paths, more := w.found(); len(paths) > 0 || more > 0 {
		t.Errorf("before the first checkpoint: %q and %d more", paths, more)
	}
	w.turn(func() { w.put("src/main", "one") })
	commits := w.commits
	if paths, more := w.found(); len(paths) > 0 || more > 0 || w.commits != commits {
		t.Errorf("nothing changed: %q and %d more, %d commits", paths, more, w.commits-commits)
	}
	for i := range 60 {
		w.put(fmt.Sprintf("by/user%02d", i), "x")
	}
	must(t, os.Remove(w.in("src/other")))
	paths, more := w.found()
	if len(paths) != 50 || more != 11 || paths[0] != "by/user00" {
		t.Errorf("%q and %d more", paths, more)
	}
	if got := w.stored()[0].Reason; got != holdfast.CheckpointFound {
		t.Errorf("the reason is %s", got)
	}
	w.turn(nil)
	// A checkpoint when the box stops, or before a fork, keeps what others did as theirs.
	w.put("README", "by the user")
	w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointStop)
	w.put("src/main", "by the user")
	w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
	w.start()
	w.put("src/last", "while no server ran")
	w.ready()
	if paths, more := w.found(); !slices.Equal(paths, []string{"README", "src/last", "src/main"}) || more != 0 {
		t.Errorf("%q and %d more", paths, more)
	}
	w.turn(nil)
	if paths, _ := w.found(); len(paths) > 0 {
		t.Errorf("told twice: %q", paths)
	}
}

// TestFoundAtRest: if a directory has not changed for a while, Found does not scan it. It still finds what changes afterwards.
func TestFoundAtRest(t *testing.T) {
	w := newBorrowed(t)
	w.turn(nil)
	w.found()
	w.rest()
	for _, name := range []string{"src/main", "src/new"} {
		looked := func() bool {
			w.passed = nil
			if paths, _ := w.found(); len(paths) > 0 {
				t.Errorf("nothing changed: %q", paths)
			}
			return !slices.Contains(w.passed, "scanned")
		}
		// Now and then a file must be read again although it did not change. A turn does that.
		for n := 0; !looked(); n++ {
			if n == 20 {
				t.Fatal("each of 20 looks was a scan")
			}
			w.turn(nil)
		}
		if !looked() {
			t.Error("the second look was a scan")
		}
		w.put(name, "by the user")
		if paths, _ := w.found(); !slices.Equal(paths, []string{name}) {
			t.Errorf("found %q, want %s", paths, name)
		}
		w.turn(nil)
		w.rest()
	}
}

// TestFoundAfterAFailure: changes of a turn whose snapshot failed are not somebody else's.
func TestFoundAfterAFailure(t *testing.T) {
	w := newBorrowed(t)
	w.next(func() { w.put("a", "a") })
	id := w.begin()
	w.put("a", "by the turn")
	w.end(id)
	c := journal.NewChange(w.id)
	c.Events = []journal.Draft{{Type: holdfast.EventSnapshotFailed, Turn: id, Data: holdfast.Failure{Message: "no space"}}}
	_, err := w.journal.Commit(t.Context(), c)
	must(t, err)
	if paths, _ := w.found(); len(paths) > 0 || w.stored()[0].Reason != holdfast.CheckpointLate {
		t.Errorf("found %q, %s", paths, w.stored()[0].Reason)
	}
}

// TestFoundElsewhere: a session with a workspace of its own has nothing to find, and Found does not look.
func TestFoundElsewhere(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "a") })
	w.write("workspace/a", "b")
	before := w.commits
	paths, more, err := snapshot.Found(t.Context(), w.snaps, w.row())
	if must(t, err); len(paths) > 0 || more > 0 || w.commits != before {
		t.Errorf("%q and %d more, %d commits", paths, more, w.commits-before)
	}
}

// TestFilesOfOthersAreNotStored: what the owner of a lent directory may not read is in none of its checkpoints, from which an
// agent could read it in a fork.
func TestFilesOfOthersAreNotStored(t *testing.T) {
	w := newBorrowed(t)
	must(t, os.Mkdir(w.in("roots"), 0o700))
	for _, name := range []string{"secret", "roots/key"} {
		must(t, os.WriteFile(w.in(name), []byte("of root"), 0o644))
	}
	must(t, os.Chmod(w.in("secret"), 0o600))
	id := w.turn(func() { w.put("src/main", "one") })
	_, files := w.find(string(id))
	for name, text := range w.files(files) {
		if strings.Contains(text, "of root") || strings.Contains(name, "key") {
			t.Errorf("%s is stored", name)
		}
	}
}
