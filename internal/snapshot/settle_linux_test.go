package snapshot_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot"
)

// TestSettle takes the snapshot that work by hand armed, and the one that a former server did not get to; it takes
// none if nothing changed, and says so if it cannot.
func TestSettle(t *testing.T) {
	w := newWorld(t, true)
	settle := func(what string, ok bool, want int) {
		t.Helper()
		behind, err := snapshot.Settle(t.Context(), w.snaps, w.store.Sessions.Rows)
		must(t, err)
		if (len(behind) == 0) != ok {
			t.Errorf("%s: behind %v", what, behind)
		}
		if n := len(w.stored()); n != want {
			t.Errorf("%s: %d checkpoints, want %d", what, n, want)
		}
	}
	w.turn(func() { w.write("workspace/a", "one") })
	settle("after a turn", true, 1)
	w.write("workspace/a", "by hand")
	w.snaps.Touching(t.Context(), w.id)(true)
	settle("after work by hand", true, 2)
	settle("again", true, 2)
	w.write("workspace/a", "before the server ended")
	w.start()
	settle("after a start", true, 3)
	sameFiles(t, "after a start", w.files(w.stored()[0]), w.now())
	must(t, os.RemoveAll(w.at("workspace")))
	settle("without files", true, 3)
}

// TestRemovedHomeStays: an interrupted deletion of a workspace leaves a session without its home. Later checkpoints, also one
// after a power cut, have the home of the newest checkpoint before, and a restore in a directory of the session's own brings
// it back.
func TestRemovedHomeStays(t *testing.T) {
	for _, cut := range []bool{false, true} {
		w := newBorrowed(t)
		w.next(func() { w.put("src/main", "one"); w.write("home/notes", "mine") })
		before := w.stored()[0]
		must(t, os.RemoveAll(w.dir(w.id)))
		w.put("src/main", "two")
		if cut {
			w.cut, w.later = time.Now().Add(time.Hour), 2*time.Hour
		}
		w.start()
		if behind, err := snapshot.Settle(t.Context(), w.snaps, w.store.Sessions.Rows); err != nil || len(behind) > 0 {
			t.Errorf("after a power cut %t: behind %v, %v", cut, behind, err)
		}
		if now := w.stored()[0]; now.Workspace == before.Workspace || now.Home != before.Home || len(w.log(holdfast.EventSnapshotFailed)) > 0 {
			t.Errorf("after a power cut %t: the newest checkpoint is %+v, the one before %+v, failures %v", cut, now, before, w.log(holdfast.EventSnapshotFailed))
		}
		w.mine = "" // the session left its workspace
		w.start()
		newest, err := w.snaps.Newest(t.Context(), w.row())
		must(t, err)
		must(t, w.snaps.Restore(t.Context(), w.row(), newest))
		if notes, err := os.ReadFile(w.at("home/notes")); err != nil || string(notes) != "mine" {
			t.Errorf("after a power cut %t: the home has %q, %v", cut, notes, err)
		}
	}
}

// TestGoneFilesAreTold: files that were gone come back as they were at the newest checkpoint. If calls ran after it, a
// notice says so.
func TestGoneFilesAreTold(t *testing.T) {
	for _, later := range []bool{false, true} {
		w := newWorld(t, true)
		w.turn(func() { w.write("workspace/a", "one") })
		want := w.now()
		if later {
			c := journal.NewChange(w.id)
			c.Events = []journal.Draft{{Type: holdfast.EventToolStarted, Data: holdfast.ToolStarted{ToolUseID: "x"}}}
			_, err := w.journal.Commit(t.Context(), c)
			must(t, err)
		}
		must(t, os.RemoveAll(w.dir(w.id)))
		w.start()
		newest, err := w.snaps.Newest(t.Context(), w.row())
		must(t, err)
		must(t, w.snaps.Restore(t.Context(), w.row(), newest))
		sameFiles(t, "restored", w.now(), want)
		notices := w.log(holdfast.EventNotice)
		if len(notices) != 0 && !later || later && (len(notices) != 1 || !strings.Contains(string(notices[0].Data), newest)) {
			t.Errorf("calls ran later: %t, notices %+v", later, notices)
		}
	}
}
