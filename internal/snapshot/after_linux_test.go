package snapshot_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// TestTurnLeavesACheckpoint: one commit after the end of a turn adds its checkpoint and its event, and
// the files come back as they were (I-42).
//
// DOC-6.
func TestTurnLeavesACheckpoint(t *testing.T) {
	w := newWorld(t, true)
	id := w.begin()
	w.write("workspace/a", "one")
	w.write("workspace/d/run.sh", "#!/bin/sh\n")
	w.write("home/.profile", "x")
	must(t, os.Chmod(w.at("workspace/d/run.sh"), 0o751))
	must(t, os.Symlink("d/run.sh", w.at("workspace/link")))
	must(t, os.Chtimes(w.at("workspace/a"), time.Time{}, time.Unix(1_600_000_000, 123_456_789)))
	settled := w.end(id)
	before := w.commits
	must(t, w.snaps.After(t.Context(), settled))
	if n := w.commits - before; n != 1 {
		t.Errorf("the snapshot took %d commits", n)
	}
	list := w.stored()
	if len(list) != 1 {
		t.Fatalf("%d checkpoints", len(list))
	}
	cp := list[0]
	if cp.ID != holdfast.CheckpointID(id) || cp.Seq != settled.Seq || cp.Turn != id || cp.Number != 1 || cp.Reason != holdfast.CheckpointTurn || cp.Files != 7 || cp.Bytes != 14 {
		t.Errorf("checkpoint %+v", cp)
	}
	events := w.log(holdfast.EventSnapshotTaken)
	var taken holdfast.SnapshotTaken
	if len(events) != 1 || events[0].Turn != id {
		t.Fatalf("events %+v", events)
	}
	must(t, events[0].Decode(&taken))
	if taken.Checkpoint != cp.ID || taken.Seq != settled.Seq || taken.Files != 7 || taken.Written == 0 {
		t.Errorf("event %+v", taken)
	}
	sameFiles(t, "the checkpoint", w.files(cp), w.now())
}

// TestTheEventSaysWhatIsLeftOut: the event of a snapshot names the files that it does not hold, with the reason.
func TestTheEventSaysWhatIsLeftOut(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() {
		w.write("workspace/a", "one")
		must(t, unix.Mkfifo(w.at("workspace/pipe"), 0o600))
	})
	var taken holdfast.SnapshotTaken
	must(t, w.log(holdfast.EventSnapshotTaken)[0].Decode(&taken))
	if len(taken.Skipped) != 1 || taken.SkippedMore != 0 || !strings.HasSuffix(taken.Skipped[0], "pipe: a FIFO") {
		t.Errorf("left out: %q and %d more", taken.Skipped, taken.SkippedMore)
	}
}

// TestTheEventCountsWhatItDoesNotName: the event of a snapshot names some of the files that it does not hold, and counts the
// rest, also those of which the scan keeps no path.
func TestTheEventCountsWhatItDoesNotName(t *testing.T) {
	for _, n := range []int{20, 21, 1010} {
		w := newWorld(t, true)
		w.turn(func() {
			w.write("workspace/a", "one")
			for i := range n {
				must(t, unix.Mkfifo(w.at(fmt.Sprint("workspace/pipe", i)), 0o600))
			}
		})
		var taken holdfast.SnapshotTaken
		must(t, w.log(holdfast.EventSnapshotTaken)[0].Decode(&taken))
		if len(taken.Skipped) != 20 || taken.SkippedMore != n-20 {
			t.Errorf("of %d pipes the event names %d and counts %d more", n, len(taken.Skipped), taken.SkippedMore)
		}
	}
}

// TestPositionOfATurnIsItsEnd: events that follow the end before the snapshot do not move it.
func TestPositionOfATurnIsItsEnd(t *testing.T) {
	w := newWorld(t, true)
	id := w.begin()
	w.write("workspace/a", "one")
	settled := w.end(id)
	c := journal.NewChange(w.id)
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x", Level: "info", Text: "x"}}}
	done, err := w.journal.Commit(t.Context(), c)
	must(t, err)
	settled.Row = done.Row
	must(t, w.snaps.After(t.Context(), settled))
	if cp := w.stored()[0]; cp.Seq != settled.Seq || cp.Seq == done.Row.LastSeq {
		t.Errorf("the checkpoint is at #%d, the turn ended at #%d", cp.Seq, settled.Seq)
	}
}

// TestUnchangedTurnsWriteNothing: neither a turn that changed nothing nor an idle one writes.
//
// DOC-6, DOC-34.
func TestUnchangedTurnsWriteNothing(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	packs, err := w.packs.List()
	must(t, err)
	for _, idle := range []bool{false, true} {
		settled := w.end(w.begin())
		settled.Idle = idle
		before, passed := w.commits, len(w.passed)
		must(t, w.snaps.After(t.Context(), settled))
		if w.commits != before || len(w.stored()) != 1 {
			t.Errorf("idle %v: %d commits, %d checkpoints", idle, w.commits-before, len(w.stored()))
		}
		if scanned := len(w.passed) > passed; scanned == idle {
			t.Errorf("idle %v: scanned %v", idle, scanned)
		}
	}
	if now, err := w.packs.List(); err != nil || len(now) != len(packs) {
		t.Errorf("%d packs, then %d, %v", len(packs), len(now), err)
	}
}

// TestSessionWithoutFiles: turns of a session that never had a box take no snapshot.
func TestSessionWithoutFiles(t *testing.T) {
	w := newWorld(t, false)
	w.turn(nil)
	w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
	if len(w.passed) > 0 || len(w.stored()) > 0 {
		t.Errorf("passed %v, stored %v", w.passed, w.stored())
	}
}

// TestWritersAreStopped: files that change between the two looks are stored as they are when no process
// runs, and the snapshot is not fuzzy (HZ-10).
func TestWritersAreStopped(t *testing.T) {
	w := newWorld(t, true)
	w.alive = true
	w.still = func() { w.write("workspace/a", "second") }
	w.turn(func() { w.write("workspace/a", "first") })
	cp := w.stored()[0]
	sameFiles(t, "the checkpoint", w.files(cp), w.now())
	if cp.Fuzzy {
		t.Error("the snapshot is fuzzy")
	}
}

// TestLongScansKeepNobodyWaiting: the stop of the processes is asked for when the first changed file is found, but not
// while a scan reads many files, and no request is left open.
func TestLongScansKeepNobodyWaiting(t *testing.T) {
	w := newWorld(t, true)
	w.alive = true
	for _, c := range []struct {
		files int
		halts []bool
	}{{1, []bool{false}}, {40, []bool{true, false}}} {
		w.halts = nil
		w.turn(func() {
			for i := range c.files {
				w.write(fmt.Sprintf("workspace/%d of %d", i, c.files), "text")
			}
		})
		if !slices.Equal(w.halts, c.halts) {
			t.Errorf("%d changed files: withdrawn %v, want %v", c.files, w.halts, c.halts)
		}
		sameFiles(t, "the checkpoint", w.files(w.stored()[0]), w.now())
	}
	w.halts = nil
	w.withReadOnlyPacks(func() { w.turn(func() { w.write("workspace/a", strings.Repeat("x", 1<<20)) }) })
	if i := slices.Index(w.halts, false); len(w.log(holdfast.EventSnapshotFailed)) != 1 || i >= 0 && i < len(w.halts)-1 {
		t.Errorf("withdrawn %v", w.halts)
	}
}

// TestWritersThatDoNotGoOn: the processes of a box may run again before its checkpoint is stored. If they cannot be thawed,
// the checkpoint is stored all the same, and one event reports the failure.
func TestWritersThatDoNotGoOn(t *testing.T) {
	w := newWorld(t, true)
	w.alive = true
	w.thaw = func() error {
		return holdfast.Errorf(holdfast.KindUnavailable, "pool.freeze", "the box cannot be thawed")
	}
	w.turn(func() { w.write("workspace/a", "first") })
	if n, failed := len(w.stored()), w.log(holdfast.EventSnapshotFailed); n != 1 || len(failed) != 1 {
		t.Errorf("%d checkpoints, %d failures", n, len(failed))
	}
	sameFiles(t, "the checkpoint", w.files(w.stored()[0]), w.now())
	w.thaw = func() error { return nil }
	w.turn(func() { w.write("workspace/a", "second") })
	sameFiles(t, "the next checkpoint", w.files(w.stored()[0]), w.now())
}

// withReadOnlyPacks makes the directory of packs read-only while work runs. Without the right to mount, a file takes its
// place. It returns the kind of the errors.
func (w *world) withReadOnlyPacks(work func()) holdfast.Kind {
	w.t.Helper()
	dir := filepath.Join(w.base, "packs")
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err == nil {
		defer func() { must(w.t, unix.Unmount(dir, unix.MNT_DETACH)) }()
		must(w.t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		work()
		return holdfast.KindUnavailable
	}
	must(w.t, os.Rename(dir, dir+".away"))
	must(w.t, os.WriteFile(dir, nil, 0o600))
	work()
	must(w.t, os.Remove(dir))
	must(w.t, os.Rename(dir+".away", dir))
	return holdfast.KindInternal
}

// TestSizesBeyondNumbers: the size of a checkpoint whose files have more bytes than a number can say is the largest one.
func TestSizesBeyondNumbers(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() {
		for _, name := range []string{"workspace/a", "home/a"} {
			w.write(name, "")
			if err := os.Truncate(w.at(name), 1<<62); err != nil {
				t.Skipf("the file system has no files of that size: %v", err)
			}
		}
	})
	if cp := w.stored()[0]; cp.Bytes != math.MaxInt64 {
		t.Errorf("a checkpoint of %d bytes", cp.Bytes)
	}
}

// TestFailedSnapshot: the turn stands, the failure is an event with its kind, and the next snapshot holds the
// changes, even if its turn was idle (HZ-17).
//
// DOC-24.
func TestFailedSnapshot(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	var turn holdfast.TurnID
	kind := w.withReadOnlyPacks(func() { turn = w.turn(func() { w.write("workspace/a", "two") }) })
	events := w.log(holdfast.EventSnapshotFailed)
	if len(events) != 1 || events[0].Turn != turn {
		t.Fatalf("events %+v", events)
	}
	var failure holdfast.Failure
	must(t, events[0].Decode(&failure))
	if failure.Kind != kind || failure.Message == "" {
		t.Errorf("failure %+v", failure)
	}
	row, err := w.store.Sessions.Turn(t.Context(), w.id, turn)
	if err != nil || row.Status != holdfast.TurnCompleted || len(w.stored()) != 1 {
		t.Errorf("turn %+v, %v, %d checkpoints", row, err, len(w.stored()))
	}
	if _, err := w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(turn)}); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a rewind to a turn whose files are not known: %v", err)
	}
	settled := w.end(w.begin())
	settled.Idle = true
	must(t, w.snaps.After(t.Context(), settled))
	list := w.stored()
	if len(list) != 2 || list[0].ID != holdfast.CheckpointID(settled.Turn) {
		t.Fatalf("checkpoints %+v", list)
	}
	sameFiles(t, "the next checkpoint", w.files(list[0]), w.now())
}

// TestFilesAfterAFailedSnapshotAreUnknown: forks and comparisons do not take the checkpoint of the turn before for that of a turn
// whose snapshot failed. The next snapshot is stored even if it has the same files as the one before the failure.
func TestFilesAfterAFailedSnapshotAreUnknown(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	was, err := os.Stat(w.at("workspace/a"))
	must(t, err)
	w.withReadOnlyPacks(func() { w.turn(func() { w.write("workspace/a", "two") }) })
	_, _, err = w.snaps.Here(t.Context(), w.row())
	wantKind(t, err, holdfast.KindConflict)
	w.write("workspace/a", "one")
	must(t, os.Chtimes(w.at("workspace/a"), time.Time{}, was.ModTime()))
	w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
	cp, files, err := w.snaps.Here(t.Context(), w.row())
	if err != nil || cp.Reason != holdfast.CheckpointDirect || len(w.stored()) != 2 {
		t.Fatalf("%+v, %v, %d checkpoints", cp, err, len(w.stored()))
	}
	sameFiles(t, "the checkpoint", w.files(files), w.now())
	w.turn(func() {})
	if cp, _, err := w.snaps.Here(t.Context(), w.row()); err != nil || cp.Reason != holdfast.CheckpointTurn || len(w.stored()) != 2 {
		t.Errorf("after a turn without changes: %+v, %v, %d checkpoints", cp, err, len(w.stored()))
	}
}

// TestTakeThatFails: outside of turns a failure is an event too, and a rewind is refused before it changes anything.
func TestTakeThatFails(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "one") })
	w.write("workspace/a", "two")
	before := w.now()
	var err error
	kind := w.withReadOnlyPacks(func() {
		w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
		_, err = w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(first)})
	})
	wantKind(t, err, kind)
	if n := len(w.log(holdfast.EventSnapshotFailed)); n != 1 || len(w.log(holdfast.EventSessionRewound)) != 0 {
		t.Errorf("%d failures, and %d rewinds", n, len(w.log(holdfast.EventSessionRewound)))
	}
	sameFiles(t, "the files", w.now(), before)
}

// called records that a call has started.
func (w *world) called() {
	w.t.Helper()
	c := journal.NewChange(w.id)
	c.Events = []journal.Draft{{Type: holdfast.EventToolStarted, Data: holdfast.ToolStarted{ToolUseID: "x"}}}
	_, err := w.journal.Commit(w.t.Context(), c)
	must(w.t, err)
}

// TestWorkspaceThatIsGone is a failed snapshot, not a checkpoint without files, if a call ran since the last checkpoint.
func TestWorkspaceThatIsGone(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	w.turn(func() {
		w.called()
		must(t, os.RemoveAll(w.at("workspace")))
	})
	var failure holdfast.Failure
	must(t, w.log(holdfast.EventSnapshotFailed)[0].Decode(&failure))
	if failure.Kind != holdfast.KindConflict || failure.Hint == "" || len(w.stored()) != 1 {
		t.Errorf("failure %+v, %d checkpoints", failure, len(w.stored()))
	}
}

// TestFilesThatComeBack: until the first use of a session puts its files back, as after the restore of a backup, a turn
// without a call has the files of the checkpoint before, and a pause takes no snapshot. Neither is a failure.
func TestFilesThatComeBack(t *testing.T) {
	for _, back := range []bool{false, true} {
		w := newWorld(t, true)
		to := w.turn(func() { w.write("workspace/a", "one") })
		first := w.now()
		w.turn(func() {
			w.called()
			w.write("workspace/a", "two")
		})
		want := w.now()
		if back {
			w.rewind(string(to), "")
			want = first
		}
		must(t, os.RemoveAll(w.dir(w.id)))
		w.start()
		for range 2 {
			talk := w.turn(nil)
			if _, files := w.find(string(talk)); files.ID == "" {
				t.Error("a turn without a call has no files")
			} else {
				sameFiles(t, "the files after a turn without a call", w.files(files), want)
			}
			w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointStop)
		}
		if failed := w.log(holdfast.EventSnapshotFailed); len(failed) > 0 {
			t.Errorf("failures: %s", failed[0].Data)
		}
		newest, err := w.snaps.Newest(t.Context(), w.row())
		must(t, err)
		must(t, w.snaps.Restore(t.Context(), w.row(), newest))
		sameFiles(t, "the files that came back", w.now(), want)
	}
}

// TestFilesThatMayHaveChanged are lost: a process or people may have changed them, or no checkpoint of the session's branch
// has them.
func TestFilesThatMayHaveChanged(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"a process": func(w *world) { w.alive = true },
		"people":    func(w *world) { w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect) },
		"no checkpoint": func(w *world) {
			list := w.stored()
			must(t, w.store.Checkpoints.DropCheckpoints(t.Context(), w.id, []holdfast.CheckpointID{list[0].ID}))
			w.start()
		},
	} {
		w := newWorld(t, true)
		w.turn(func() { w.write("workspace/a", "one") })
		must(t, os.RemoveAll(w.at("workspace")))
		lose(w)
		w.turn(nil)
		if n := len(w.log(holdfast.EventSnapshotFailed)); n != 1 {
			t.Errorf("%s: %d failures", name, n)
		}
	}
}
