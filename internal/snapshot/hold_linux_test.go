package snapshot_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/coded"
	"github.com/holdfast-run/holdfast/internal/snapshot/collect"
)

// hold holds a checkpoint or releases it.
func (w *world) hold(id holdfast.TurnID, held bool) {
	w.t.Helper()
	cp, err := w.branches.Hold(w.t.Context(), w.id, holdfast.CheckpointID(id), held)
	must(w.t, err)
	if cp.ID != holdfast.CheckpointID(id) || cp.Held != held {
		w.t.Errorf("held %v: %+v", held, cp)
	}
}

// retain drops checkpoints by rules that keep one, none older than an hour, and no content to speak of.
func (w *world) retain() {
	w.t.Helper()
	_, err := collect.New(collect.Config{
		DB: w.store.Checkpoints, Packs: w.packs, Record: coded.Recorded, Grace: -1,
		Rules: collect.Rules{Count: 1, Age: time.Hour, Bytes: 1}, Clock: func() time.Time { return time.Now().Add(48 * time.Hour) },
	}).Collect(w.t.Context(), false)
	must(w.t, err)
}

// heldIDs returns the turns of the list whose checkpoints are held, newest first.
func (w *world) heldIDs() (out []holdfast.TurnID) {
	w.t.Helper()
	for _, cp := range w.list("", 0).Checkpoints {
		if cp.Held {
			out = append(out, holdfast.TurnID(cp.ID))
		}
	}
	return out
}

// TestHold: a held checkpoint is shown, survives every rule, and is released again. Each change has one event, and
// what changes nothing has none. A turn without changes shares the hold of the checkpoint before.
func TestHold(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "first") })
	want := w.now()
	idle := w.turn(nil)
	second := w.turn(func() { w.write("workspace/a", "second") })
	w.turn(func() { w.write("workspace/a", "third") })
	revision := w.row().Revision

	w.hold(idle, true)
	w.hold(idle, true)
	w.hold(first, true)
	if got := w.heldIDs(); !slices.Equal(got, []holdfast.TurnID{idle, first}) {
		t.Errorf("%v are held", got)
	}
	w.retain()
	_, files := w.find(string(idle))
	sameFiles(t, "the held checkpoint", w.files(files), want)
	if _, err := w.store.Checkpoints.Checkpoint(t.Context(), w.id, holdfast.CheckpointID(second)); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("the rules kept another one: %v", err)
	}

	w.hold(first, false)
	w.hold(idle, false)
	if got := w.heldIDs(); got != nil {
		t.Errorf("%v are held", got)
	}
	var after int64
	for _, typ := range []holdfast.EventType{holdfast.EventCheckpointHeld, holdfast.EventCheckpointReleased} {
		events := w.log(typ)
		if len(events) != 1 || events[0].Seq <= after {
			t.Fatalf("after #%d there are the events %+v", after, events)
		}
		after = events[0].Seq
		var told holdfast.HeldCheckpoint
		must(t, events[0].Decode(&told))
		if told.Checkpoint != holdfast.CheckpointID(first) {
			t.Errorf("%s names %s", typ, told.Checkpoint)
		}
	}
	if row := w.row(); row.Revision != revision {
		t.Errorf("revision %d became %d", revision, row.Revision)
	}
	w.retain()
	if _, err := w.store.Checkpoints.Checkpoint(t.Context(), w.id, holdfast.CheckpointID(first)); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("the released checkpoint stayed: %v", err)
	}
}

// TestReleaseBeforeAForkIsDone: neither a release nor the rules take away the files that a fork or a rewind still
// has to put in place; a fork from a held checkpoint holds nothing.
func TestReleaseBeforeAForkIsDone(t *testing.T) {
	w := newWorld(t, true)
	first := w.turn(func() { w.write("workspace/a", "first") })
	want := w.now()
	w.turn(func() { w.write("workspace/a", "second") })
	w.hold(first, true)
	s, _ := w.fork(holdfast.ForkSession{At: holdfast.CheckpointID(first)}, "")
	if !w.do(func() {
		w.crash = "rewound"
		w.rewind(string(first), "")
	}) {
		t.Fatal("the rewind was not interrupted")
	}
	w.hold(first, false)
	w.retain()
	w.ready() // ends the rewind
	sameFiles(t, "the files after the rewind", w.now(), want)
	w.id = s.ID
	if got := w.heldIDs(); got != nil {
		t.Errorf("the fork holds %v", got)
	}
	w.ready()
	sameFiles(t, "the files of the fork", w.now(), want)
}

// TestHoldRefuses: there must be a checkpoint with files. A session that has ended may still hold.
func TestHoldRefuses(t *testing.T) {
	w := newWorld(t, false)
	talk := w.turn(nil)
	for id, kind := range map[holdfast.CheckpointID]holdfast.Kind{
		holdfast.CheckpointID(w.newID()): holdfast.KindNotFound, holdfast.CheckpointID(talk): holdfast.KindConflict,
	} {
		_, err := w.branches.Hold(t.Context(), w.id, id, true)
		wantKind(t, err, kind)
		if holdfast.HintOf(err) == "" {
			t.Errorf("%v has no hint", err)
		}
	}
	_, err := w.branches.Hold(t.Context(), holdfast.SessionID(w.newID()), holdfast.CheckpointID(talk), true)
	wantKind(t, err, holdfast.KindNotFound)
	w.box()
	change := w.turn(func() { w.write("workspace/a", "one") })
	c := journal.NewChange(w.id)
	c.Status = []holdfast.Status{holdfast.StatusEnded}
	_, err = w.journal.Commit(t.Context(), c)
	must(t, err)
	w.hold(change, true)
}

// TestDroppedCheckpointIsGone: if retention dropped the checkpoint at the end of a turn, a rewind to the turn is refused.
// It must not put the files of an older checkpoint in place, or remove all files. The same is true of the turns after
// it that changed nothing.
func TestDroppedCheckpointIsGone(t *testing.T) {
	w := newWorld(t, true)
	oldest := w.turn(func() { w.write("workspace/a", "oldest") })
	held := w.turn(func() { w.write("workspace/a", "held") })
	same := w.turn(nil)
	dropped := w.turn(func() { w.write("workspace/a", "dropped") })
	idle := w.turn(nil)
	last := w.turn(func() { w.write("workspace/a", "last") })
	w.hold(held, true)
	w.retain()
	want := w.now()
	for range 2 {
		for _, id := range []holdfast.TurnID{oldest, dropped, idle} {
			_, _, err := w.snaps.Find(t.Context(), w.row(), holdfast.CheckpointID(id))
			wantKind(t, err, holdfast.KindNotFound)
			if holdfast.HintOf(err) == "" {
				t.Errorf("%v has no hint", err)
			}
			_, err = w.branches.Rewind(t.Context(), w.id, holdfast.RewindSession{To: holdfast.CheckpointID(id)})
			wantKind(t, err, holdfast.KindNotFound)
			_, err = w.branches.Hold(t.Context(), w.id, holdfast.CheckpointID(id), true)
			wantKind(t, err, holdfast.KindNotFound)
		}
		sameFiles(t, "the files", w.now(), want)
		var listed []holdfast.TurnID
		for after := ""; ; {
			page := w.list(after, 2)
			for _, cp := range page.Checkpoints {
				listed = append(listed, holdfast.TurnID(cp.ID))
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(listed, []holdfast.TurnID{last, same, held}) {
			t.Errorf("listed %v", listed)
		}
		w.start() // another server finds the same
		w.ready()
	}
	must(t, w.store.Checkpoints.DropCheckpoints(t.Context(), w.id, []holdfast.CheckpointID{holdfast.CheckpointID(last)}))
	if here, files, err := w.snaps.Here(t.Context(), w.row()); err != nil || here.ID != holdfast.CheckpointID(held) || files.ID != here.ID {
		t.Errorf("the newest checkpoint that is left is %+v, %v", here, err)
	}
}
