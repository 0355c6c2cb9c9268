package snapshot_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestReadyAfterACrash: whatever a server that ended left, Ready of the next one finishes it, and a second
// Ready does nothing (I-42, I-43).
//
// ASH-20.
func TestReadyAfterACrash(t *testing.T) {
	for _, point := range []string{"scanned", "packed", "committed"} {
		t.Run("turn "+point, func(t *testing.T) {
			w := newWorld(t, true)
			w.turn(func() { w.write("workspace/a", "one") })
			w.crash = point
			var turn holdfast.TurnID
			if !w.do(func() { turn = w.turn(func() { w.write("workspace/a", "two") }) }) {
				t.Fatal("the server did not end")
			}
			w.mustSettle()
			cp := w.stored()[0]
			want := holdfast.CheckpointLate
			if point == "committed" {
				want = holdfast.CheckpointTurn
			}
			if n := len(w.stored()); n != 2 || cp.Reason != want || turn != "" && cp.Turn != turn || cp.Number != 2 {
				t.Errorf("%d checkpoints, the newest %+v", n, cp)
			}
			sameFiles(t, "the newest", w.files(cp), w.now())
		})
	}
	for _, point := range []string{"rewound", "restoring", "restored"} {
		t.Run("rewind "+point, func(t *testing.T) {
			w := newWorld(t, true)
			first := w.turn(func() { w.write("workspace/a", "one"); w.write("workspace/b", "one") })
			want := w.now()
			w.turn(func() { w.write("workspace/a", "two"); w.write("workspace/c", "two") })
			w.crash = point
			if !w.do(func() { w.rewind(string(first), "") }) {
				t.Fatal("the server did not end")
			}
			if point == "restoring" {
				must(t, os.Remove(w.at("workspace/c"))) // half replaced
			}
			w.mustSettle()
			sameFiles(t, "the files", w.now(), want)
			if n := len(w.stored()); n != 2 {
				t.Errorf("%d checkpoints: a snapshot of files that were half replaced", n)
			}
		})
	}
	for _, point := range []string{"restoring", "restored"} {
		t.Run("restore "+point, func(t *testing.T) {
			w := newWorld(t, true)
			w.turn(func() { w.write("workspace/a", "one") })
			want := w.now()
			must(t, os.RemoveAll(w.at("workspace")))
			newest, err := w.snaps.Newest(t.Context(), w.row())
			must(t, err)
			w.crash = point
			if !w.do(func() { w.whole(w.snaps.Restore(t.Context(), w.row(), newest)) }) {
				t.Fatal("the server did not end")
			}
			w.mustSettle()
			sameFiles(t, "the files", w.now(), want)
		})
	}
}

// mustSettle makes the files ready, and does it again, when nothing is left to do.
func (w *world) mustSettle() {
	w.t.Helper()
	w.ready()
	_, marked, err := w.store.Checkpoints.RestoreOf(w.t.Context(), w.id.Box())
	if err != nil || marked {
		w.t.Fatalf("after Ready the mark is there: %v, %v", marked, err)
	}
	commits, passed := w.commits, len(w.passed)
	w.ready()
	if w.commits != commits || len(w.passed) != passed {
		w.t.Errorf("a second Ready made %d commits, and passed %v", w.commits-commits, w.passed[passed:])
	}
}

// TestReadyKeepsLateChanges: files that changed while no server looked become a checkpoint.
func TestReadyKeepsLateChanges(t *testing.T) {
	w := newWorld(t, true)
	turn := w.turn(func() { w.write("workspace/a", "one") })
	w.write("workspace/a", "by hand")
	w.start()
	w.mustSettle()
	cp := w.stored()[0]
	if cp.Reason != holdfast.CheckpointLate || cp.Turn != turn || cp.Seq != w.row().LastSeq {
		t.Errorf("checkpoint %+v", cp)
	}
	sameFiles(t, "the newest", w.files(cp), w.now())
}

// TestReadyThatCannotFinish: while a replacement cannot be finished, the files are not ready (I-43).
func TestReadyThatCannotFinish(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "one") })
	want := w.now()
	w.turn(func() { w.write("workspace/a", "two") })
	w.crash = "rewound"
	w.do(func() { w.rewind(string(first), "") })
	packs := filepath.Join(w.base, "packs")
	must(t, os.Rename(packs, packs+".away"))
	for range 2 {
		if err := w.snaps.Ready(t.Context(), w.row()); err == nil {
			t.Error("Ready succeeded without the packs")
		}
	}
	must(t, os.Rename(packs+".away", packs))
	w.mustSettle()
	sameFiles(t, "the files", w.now(), want)
}

// TestRestoreThatCannotFinish: files of which only some came back are not ready, however the server came to restore
// them, and are not in a checkpoint. The same server finishes the replacement at the next use (I-43).
func TestRestoreThatCannotFinish(t *testing.T) {
	for _, cut := range []bool{false, true} {
		w := newWorld(t, true)
		w.turn(func() { w.write("workspace/a", "one") })
		want := w.now()
		must(t, os.RemoveAll(w.at("workspace")))
		packs := filepath.Join(w.base, "packs")
		w.reached = func(point string) {
			if point == "restoring" {
				must(t, os.Rename(packs, packs+".away"))
				w.reached = nil
			}
		}
		if cut {
			must(t, os.Mkdir(w.at("workspace"), 0o755))
			w.cut, w.later = time.Now().Add(time.Hour), 2*time.Hour
			w.start()
			if err := w.snaps.Ready(t.Context(), w.row()); err == nil {
				t.Error("Ready succeeded without the packs")
			}
		} else {
			newest, err := w.snaps.Newest(t.Context(), w.row())
			must(t, err)
			if err := w.snaps.Restore(t.Context(), w.row(), newest); err == nil {
				t.Error("Restore succeeded without the packs")
			}
		}
		must(t, os.Rename(packs+".away", packs))
		w.mustSettle()
		sameFiles(t, "the files", w.now(), want)
	}
}

// TestNoCheckpointOfMarkedFiles: while a mark says that files are being replaced, they are not stored.
func TestNoCheckpointOfMarkedFiles(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "one") })
	settled := w.end(w.begin())
	w.write("workspace/a", "two")
	c := journal.NewChange(w.id)
	mark := journal.Restore{Scope: w.id.Box(), Session: w.id, Checkpoint: holdfast.CheckpointID(first)}
	c.Files = &journal.FilesChange{Restore: &mark}
	_, err := w.journal.Commit(t.Context(), c)
	must(t, err)
	must(t, w.snaps.After(t.Context(), settled))
	if stored, failed := len(w.stored()), len(w.log(holdfast.EventSnapshotFailed)); stored != 1 || failed != 1 {
		t.Errorf("%d checkpoints, %d failures", stored, failed)
	}
}

// TestRewindToAnUnreadableCheckpoint: a rewind whose target cannot be read is refused before it changes anything, so the
// session goes on, and can be moved elsewhere.
func TestRewindToAnUnreadableCheckpoint(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "one") })
	one := w.now()
	bad := w.stored()[0]
	bad.ID, bad.Home, bad.Seq = holdfast.CheckpointID(w.newID()), strings.Repeat("0f", 32), w.row().LastSeq
	c := journal.NewChange(w.id)
	c.Files = &journal.FilesChange{Checkpoint: &bad}
	_, err := w.journal.Commit(t.Context(), c)
	must(t, err)
	w.turn(func() { w.write("workspace/a", "two"); w.write("home/h", "two") })
	two := w.now()
	if _, err := w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: bad.ID}); err == nil {
		t.Fatal("the session was moved to a checkpoint that cannot be read")
	}
	sameFiles(t, "after the refusal", w.now(), two)
	w.mustSettle()
	if n := len(w.log(holdfast.EventSessionRewound)); n > 0 {
		t.Errorf("%d rewinds", n)
	}
	w.rewind(string(first), "")
	sameFiles(t, "after another rewind", w.now(), one)
}

// TestRewindWithoutAPack: a rewind to a checkpoint some of whose packs are missing, on the disk or in the database, is refused
// with the name of the pack before it changes anything, also if only the content of files is missing.
func TestRewindWithoutAPack(t *testing.T) {
	for _, known := range []bool{false, true} {
		w := newWorld(t, true)
		w.turn(func() { w.write("workspace/a", "one") })
		second := w.turn(func() { w.write("workspace/b", "two") })
		w.turn(func() { w.write("workspace/a", "three") })
		want := w.now()
		oldest := w.stored()[2]
		list, err := w.store.Checkpoints.Packs(t.Context(), oldest.Packs)
		must(t, err)
		name := list[0].ID
		if known {
			for _, p := range list {
				id, err := pack.ParsePackID(p.ID)
				must(t, err)
				must(t, w.packs.Remove(id))
			}
		} else {
			w.lost = list[0].Number
			name = fmt.Sprintf("pack %d,", w.lost)
		}
		w.start()
		_, err = w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(second)})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want an error that names %s", err, name)
		}
		sameFiles(t, "after the refusal", w.now(), want)
		if n := len(w.log(holdfast.EventSessionRewound)); n > 0 {
			t.Errorf("%d rewinds", n)
		}
	}
}

// TestRewindOfHiddenFiles: if an error of the disk hides the files, a rewind does not take them for absent: it is refused, so
// that they are not replaced before a checkpoint has them.
func TestRewindOfHiddenFiles(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "one") })
	w.turn(func() { w.write("workspace/a", "two") })
	w.write("workspace/a", "three")
	want := w.now()
	dir := w.dir(w.id)
	must(t, os.Rename(dir, dir+".away"))
	must(t, os.Symlink(dir, dir)) // ELOOP for every path below
	if _, err := w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(first)}); err == nil {
		t.Error("files that nobody can look at were rewound")
	}
	must(t, os.Remove(dir))
	must(t, os.Rename(dir+".away", dir))
	w.start()
	w.ready()
	sameFiles(t, "after the refusal", w.now(), want)
	if n := len(w.log(holdfast.EventSessionRewound)); n > 0 {
		t.Errorf("%d rewinds", n)
	}
}

// TestRewindCanBeUndone: the checkpoint that a rewind keeps brings back the files and the conversation (HZ-13).
func TestRewindCanBeUndone(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "one") })
	one := w.now()
	second := w.turn(func() { w.write("workspace/a", "two"); w.write("home/h", "two") })
	w.write("workspace/a", "by hand")
	last := w.now()
	back := w.rewind(string(first), "")
	if back.Kept == "" || back.Files != holdfast.FilesRestored || back.Checkpoint != holdfast.CheckpointID(first) {
		t.Errorf("rewound %+v", back)
	}
	sameFiles(t, "after the rewind", w.now(), one)
	if n := len(w.stored()); n != 3 {
		t.Errorf("%d checkpoints: the files of the first are stored twice", n)
	}
	kept, files := w.find(string(back.Kept))
	if kept.Reason != holdfast.CheckpointKept || kept.Turn != second || !kept.Abandoned {
		t.Errorf("kept %+v", kept)
	}
	sameFiles(t, "what was kept", w.files(files), last)
	if n := w.row().CompletedTurns; n != 1 {
		t.Errorf("%d completed turns", n)
	}
	w.rewind(string(back.Kept), "")
	sameFiles(t, "after the undo", w.now(), last)
	if n := w.row().CompletedTurns; n != 2 {
		t.Errorf("%d completed turns after the undo", n)
	}
}

// TestRewindThatKeepsFiles leaves them, and makes them files of the branch: what follows finds them, not those
// of the target.
func TestRewindThatKeepsFiles(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWorld(t, true)
		first := w.turn(func() { w.write("workspace/a", "one") })
		w.turn(func() { w.write("workspace/a", "two") })
		want := w.now()
		if out := w.rewind(string(first), "keep"); out.Files != holdfast.FilesKept {
			t.Errorf("rewound %+v", out)
		}
		sameFiles(t, "after the rewind", w.now(), want)
		if again {
			w.start()
		}
		settled := w.end(w.begin())
		settled.Idle = true
		must(t, w.snaps.After(t.Context(), settled))
		_, files := w.find(string(settled.Turn))
		sameFiles(t, "the checkpoint of the turn after it", w.files(files), want)
		must(t, os.RemoveAll(w.at("workspace")))
		newest, err := w.snaps.Newest(t.Context(), w.row())
		must(t, err)
		must(t, w.snaps.Restore(t.Context(), w.row(), newest))
		sameFiles(t, "what a resume restores", w.now(), want)
	}
}

// TestRewindToWorkOutsideOfATurn: a checkpoint that is later than the end of its turn is not of the branch, but
// its files are those of what follows.
func TestRewindToWorkOutsideOfATurn(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	w.write("workspace/a", "by hand")
	w.snaps.Take(t.Context(), w.row(), holdfast.CheckpointDirect)
	direct, want := w.stored()[0], w.now()
	w.turn(func() { w.write("workspace/a", "two") })
	w.rewind(string(direct.ID), "")
	sameFiles(t, "after the rewind", w.now(), want)
	_, here, err := w.snaps.Here(t.Context(), w.row())
	must(t, err)
	sameFiles(t, "the newest of the branch", w.files(here), want)
	turn := w.turn(nil)
	_, files := w.find(string(turn))
	sameFiles(t, "the turn after it", w.files(files), want)
}

// TestRewindToBeforeTheFirstFiles removes them, resets the marks, and a resume restores none.
func TestRewindToBeforeTheFirstFiles(t *testing.T) {
	w := newWorld(t, false)
	first := w.turn(nil)
	w.box()
	w.turn(func() { w.write("workspace/a", "one") })
	want := w.now()
	out := w.rewind(string(first), "")
	if out.Files != holdfast.FilesEmpty || out.Kept == "" {
		t.Errorf("rewound %+v", out)
	}
	row := w.row()
	if len(w.now()) > 0 || row.HadFiles || row.FilesSeeded {
		t.Errorf("files %v, row %+v", w.now(), row)
	}
	if newest, err := w.snaps.Newest(t.Context(), row); err != nil || newest != "" {
		t.Errorf("a resume restores %q, %v", newest, err)
	}
	if _, marked, err := w.store.Checkpoints.RestoreOf(t.Context(), w.id.Box()); err != nil || marked {
		t.Errorf("a mark is there: %v, %v", marked, err)
	}
	w.start()
	w.ready()
	w.box()
	w.rewind(string(out.Kept), "")
	sameFiles(t, "after the undo", w.now(), want)
}

// TestRewindToBeforeTheFirstFilesFails: if the removal of a tree fails in the middle, or the server ends in it, no checkpoint
// has a part of the files, a resume restores all of them, and nothing that the removal left stays.
func TestRewindToBeforeTheFirstFilesFails(t *testing.T) {
	for _, name := range []string{"workspace", "home"} {
		for _, how := range []string{"an error", "an error, then a start", "an end of the server"} {
			w := newWorld(t, false)
			first := w.turn(nil)
			w.box()
			w.turn(func() {
				for _, tree := range []string{"workspace", "home"} {
					w.write(tree+"/a", "one")
					w.write(tree+"/m/b", "one")
					w.write(tree+"/z", "one")
				}
			})
			want := w.now()
			mount := filepath.Join(w.at(name), "m")
			if how == "an end of the server" {
				must(t, os.Rename(w.at(name), w.at(name)+rooted.Aside))
				must(t, os.Remove(w.at(name)+rooted.Aside+"/a"))
				if name == "home" {
					must(t, os.RemoveAll(w.at("workspace")))
				}
			} else if err := unix.Mount(mount, mount, "", unix.MS_BIND, ""); err != nil {
				t.Logf("no right to mount here, a removal that fails is not tested: %v", err)
				continue
			} else {
				_, err := w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(first)})
				wantKind(t, err, holdfast.KindConflict)
				for _, at := range []string{mount, filepath.Join(w.at(name)+rooted.Aside, "m")} {
					_ = unix.Unmount(at, unix.MNT_DETACH) // the mount is at one of the two
				}
			}
			if how != "an error" {
				w.start()
			}
			w.ready()
			if _, err := os.Lstat(w.at("workspace")); os.IsNotExist(err) {
				newest, err := w.snaps.Newest(t.Context(), w.row())
				must(t, err)
				must(t, w.snaps.Restore(t.Context(), w.row(), newest))
			}
			got := w.now()
			for _, files := range []map[string]string{got, want} {
				maps.DeleteFunc(files, func(path, _ string) bool { return strings.Contains(path, "/m") }) // no checkpoint has a mount
			}
			sameFiles(t, name+", "+how, got, want)
			if left, err := filepath.Glob(w.at("*" + rooted.Aside)); err != nil || len(left) > 0 {
				t.Errorf("%s, %s: %q is left, %v", name, how, left, err)
			}
		}
	}
}

// TestTwoRewinds: a crash in the second of two rewinds is finished from the files of the first.
func TestTwoRewinds(t *testing.T) {
	for _, point := range []string{"rewound", "restoring", "restored"} {
		w := newWorld(t, true)
		var turns []string
		var trees []map[string]string
		for _, text := range []string{"one", "two", "three"} {
			turns = append(turns, string(w.turn(func() { w.write("workspace/"+text, text); w.write("workspace/a", text) })))
			trees = append(trees, w.now())
		}
		w.rewind(turns[0], "")
		w.crash = point
		if !w.do(func() { w.rewind(turns[1], "") }) {
			t.Fatal("the server did not end")
		}
		w.mustSettle()
		sameFiles(t, point, w.now(), trees[1])
	}
}

// TestPurge: nothing of a purged session is on the disk, also if its files were being replaced, and a snapshot
// that was armed is not taken. A purge may be repeated.
//
// DOC-27.
func TestPurge(t *testing.T) {
	w := newWorld(t, true)
	w.write("workspace/a", "one")
	first := w.turn(func() { w.write("workspace/b", "two") })
	w.turn(func() { w.write("workspace/b", "three") })
	w.crash = "restoring"
	if !w.do(func() { w.rewind(string(first), "") }) {
		t.Fatal("the server did not end")
	}
	w.snaps.Touching(t.Context(), w.id)(true)
	for range 2 {
		if err := w.snaps.Purge(t.Context(), w.row()); err != nil {
			t.Fatal(err)
		}
	}
	packs, err := w.packs.List()
	if list := w.stored(); err != nil || len(list)+len(packs) > 0 {
		t.Errorf("stored %+v, packs %+v, %v", list, packs, err)
	}
}

// TestLateWork: what people changed after a turn that changed nothing is not of that turn, even if the server ended
// before it took a snapshot.
func TestLateWork(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	before := w.now()
	idle := w.turn(func() {})
	w.write("workspace/a", "by hand")
	testkit.Eventually(t, "the clock of the file system goes on", func() bool {
		w.write("workspace/a", "by hand")
		info, err := os.Stat(w.at("workspace/a"))
		must(t, err)
		turn, err := w.store.Sessions.Turn(t.Context(), w.id, idle)
		must(t, err)
		return info.ModTime().After(turn.EndedAt.Add(2 * time.Millisecond))
	})
	w.start()
	w.ready()
	_, files, err := w.snaps.Find(t.Context(), w.row(), holdfast.CheckpointID(idle))
	must(t, err)
	sameFiles(t, "the idle turn", w.files(files), before)
	if list := w.stored(); len(list) != 2 || list[0].Reason != holdfast.CheckpointLate {
		t.Errorf("stored %+v", list)
	}
}
