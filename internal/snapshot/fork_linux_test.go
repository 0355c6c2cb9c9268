package snapshot_test

import (
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// fork forks the session.
func (w *world) fork(req holdfast.ForkSession, key string) (holdfast.Session, bool) {
	w.t.Helper()
	s, replayed, err := w.branches.Fork(w.t.Context(), w.id, req, key)
	must(w.t, err)
	return s, replayed
}

// forkable returns a world whose session has a turn that a rewind left, and the files at the turn that is forked.
func forkable(t *testing.T) (w *world, at holdfast.TurnID, want map[string]string) {
	w = newWorld(t, true)
	w.hooks = []string{"hook"}
	w.turn(func() { w.write("workspace/a", "one") })
	left := w.turn(func() { w.write("workspace/a", "left") })
	before := w.list("", 0).Checkpoints[1]
	w.rewind(string(before.ID), "")
	w.queued()
	at = w.turn(func() { w.write("workspace/b", "two"); w.write("home/h", "two") })
	want = w.now()
	w.turn(func() { w.write("workspace/a", "three") })
	if cp, _ := w.find(string(left)); !cp.Abandoned {
		t.Fatalf("checkpoint %+v", cp)
	}
	return w, at, want
}

// TestFork: the new session has the turns up to the checkpoint, the same files, and a checkpoint of its own with a mark,
// all in one commit (HZ-13).
//
// ASH-11.
func TestFork(t *testing.T) {
	w, at, want := forkable(t)
	before := w.row()
	commits := w.commits
	s, replayed := w.fork(holdfast.ForkSession{At: holdfast.CheckpointID(at), Title: "fork"}, "")
	if w.commits != commits+1 || replayed || s.ID == w.id {
		t.Errorf("%d commits, replayed %v, session %+v", w.commits-commits, replayed, s)
	}
	if row := w.row(); row.Revision != before.Revision || row.LastSeq != before.LastSeq {
		t.Errorf("the session became %+v", row)
	}
	origin := w.id
	w.id = s.ID
	row := w.row()
	if row.LastTurn != 3 || row.CompletedTurns != 2 || !row.HadFiles || !row.FilesSeeded {
		t.Errorf("row %+v", row)
	}
	checkForkTurns(t, w)
	list := w.stored()
	if len(list) != 1 || list[0].Reason != holdfast.CheckpointFork || list[0].Number != 3 || list[0].Scope != s.ID.Box() || list[0].Abandoned {
		t.Fatalf("checkpoints %+v", list)
	}
	mark, marked, err := w.store.Checkpoints.RestoreOf(t.Context(), s.ID.Box())
	if err != nil || !marked || mark.Checkpoint != list[0].ID || mark.Session != s.ID {
		t.Errorf("mark %+v, %v", mark, err)
	}
	var forked holdfast.Forked
	must(t, w.log(holdfast.EventSessionForked)[0].Decode(&forked))
	if forked.From != origin || forked.Checkpoint != holdfast.CheckpointID(at) || forked.Files != holdfast.FilesRestored {
		t.Errorf("event %+v", forked)
	}
	w.ready()
	sameFiles(t, "the files of the fork", w.now(), want)
	w.turn(func() { w.write("workspace/a", "of the fork") })
	w.rewind(string(list[0].ID), "")
	sameFiles(t, "the fork after a rewind", w.now(), want)
	w.id = origin
	if w.now()["workspace/a"] == want["workspace/a"] {
		t.Error("the fork changed the other session's files")
	}
}

// checkForkTurns compares the turns of a fork with its log.
func checkForkTurns(t *testing.T, w *world) {
	t.Helper()
	turns, err := w.store.Sessions.Turns(t.Context(), w.id, 0, 100)
	must(t, err)
	for n, turn := range turns {
		if turn.Number != int64(n+1) || !turn.Status.Terminal() {
			t.Errorf("turn %d is %+v", n+1, turn)
		}
	}
	started := w.log(holdfast.EventTurnStarted)
	if len(turns) != 3 || turns[1].Status != holdfast.TurnInterrupted || len(started) != 2 || started[1].Turn != turns[2].ID {
		t.Errorf("turns %+v, started %+v", turns, started)
	}
}

// TestForkIsToldToNobody: webhooks do not get the copies, which keep their times.
func TestForkIsToldToNobody(t *testing.T) {
	w, at, _ := forkable(t)
	s, _ := w.fork(holdfast.ForkSession{At: holdfast.CheckpointID(at)}, "")
	due, err := w.store.Outbox.Deliveries(t.Context(), "hook", farFuture, 1000)
	must(t, err)
	if len(due) == 0 {
		t.Error("the turns of the session are delivered to nobody")
	}
	for _, d := range due {
		if d.Session == s.ID {
			t.Errorf("event #%d, %s, is delivered", d.Seq, d.Event.Type)
		}
	}
	origin := w.log(holdfast.EventTurnCompleted)
	w.id = s.ID
	copies := w.log(holdfast.EventTurnCompleted)
	if len(copies) != 2 || !copies[0].Time.Equal(origin[0].Time) || copies[0].Turn == origin[0].Turn {
		t.Errorf("copies %+v", copies)
	}
}

// TestForkTwice: a repeated request with the same key returns the same session; another request with it is a conflict.
func TestForkTwice(t *testing.T) {
	w, at, _ := forkable(t)
	req := holdfast.ForkSession{At: holdfast.CheckpointID(at)}
	first, replayed := w.fork(req, "key")
	again, second := w.fork(req, "key")
	if replayed || !second || again.ID != first.ID {
		t.Errorf("%s, %v and %s, %v", first.ID, replayed, again.ID, second)
	}
	_, _, err := w.branches.Fork(t.Context(), w.id, holdfast.ForkSession{}, "key")
	wantKind(t, err, holdfast.KindConflict)
	_, _, err = w.branches.Fork(t.Context(), w.id, holdfast.ForkSession{ID: first.ID}, "")
	wantKind(t, err, holdfast.KindConflict)
	_, _, err = w.branches.Fork(t.Context(), w.id, holdfast.ForkSession{At: "x"}, "")
	wantKind(t, err, holdfast.KindNotFound)
}

// TestForkOfThePresent keeps what people did since the last turn first.
func TestForkOfThePresent(t *testing.T) {
	w := newWorld(t, true)
	w.turn(func() { w.write("workspace/a", "one") })
	w.write("workspace/a", "by hand")
	want := w.now()
	s, _ := w.fork(holdfast.ForkSession{}, "")
	w.id = s.ID
	w.ready()
	sameFiles(t, "the files of the fork", w.now(), want)
}

// TestForkWithoutFiles: a session that never had files forks to one that has none.
func TestForkWithoutFiles(t *testing.T) {
	w := newWorld(t, false)
	w.turn(nil)
	s, _ := w.fork(holdfast.ForkSession{}, "")
	var forked holdfast.Forked
	w.id = s.ID
	must(t, w.log(holdfast.EventSessionForked)[0].Decode(&forked))
	if row := w.row(); row.HadFiles || row.FilesSeeded || row.LastTurn != 1 || forked.Files != holdfast.FilesEmpty {
		t.Errorf("row %+v, event %+v", row, forked)
	}
	var none journal.Restore
	if mark, marked, err := w.store.Checkpoints.RestoreOf(t.Context(), s.ID.Box()); err != nil || marked || mark != none {
		t.Errorf("mark %+v, %v", mark, err)
	}
}
