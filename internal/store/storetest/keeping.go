package storetest

import (
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// everything returns all checkpoints, packs and marks.
func (e *env) everything() []any {
	e.Helper()
	var out []any
	for _, cp := range e.needed() {
		out = append(out, cp)
	}
	all, err := e.Store.AllPacks(e.ctx)
	e.ok(err)
	for _, p := range all {
		out = append(out, p)
	}
	marks, err := e.Store.Restoring(e.ctx)
	e.ok(err)
	for _, m := range marks {
		out = append(out, m)
	}
	return out
}

// needed returns all checkpoints as Needed lists them.
func (e *env) needed() []journal.Checkpoint {
	e.Helper()
	var out []journal.Checkpoint
	for cp, err := range e.Store.Needed(e.ctx) {
		e.ok(err)
		out = append(out, cp)
	}
	return out
}

// mark commits a change that sets or removes the Restore mark of a scope.
func (e *env) mark(id holdfast.SessionID, r journal.Restore) {
	e.Helper()
	c := journal.NewChange(id)
	c.Files = &journal.FilesChange{Restore: &r}
	e.commit(c)
}

// holding returns the change that holds a checkpoint or releases it, with its event.
func holding(id holdfast.SessionID, cp holdfast.CheckpointID, held bool) journal.Change {
	c := journal.NewChange(id)
	c.Files = &journal.FilesChange{Hold: &journal.Hold{Checkpoint: cp, Held: held}}
	c.Events = []journal.Draft{{Type: holdfast.EventCheckpointHeld, Data: holdfast.HeldCheckpoint{Checkpoint: cp}}}
	return c
}

// hold commits a change by which a checkpoint is held, or, if held is false, no longer held.
func (e *env) hold(id holdfast.SessionID, cp holdfast.CheckpointID, held bool) {
	e.Helper()
	e.commit(holding(id, cp, held))
}

// rewind commits a rewind of a session, to the branch of its log that consists of the spans.
func (e *env) rewind(id holdfast.SessionID, completed int64, branch ...journal.Span) journal.Row {
	e.Helper()
	c := journal.NewChange(id)
	c.Files = &journal.FilesChange{Rewind: &journal.Rewind{Branch: branch, Completed: completed}}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionRewound, Data: holdfast.Rewound{}}}
	return e.commit(c).Row
}

// abandoned returns for each checkpoint of a session, oldest first, whether it is abandoned.
func (e *env) abandoned(id holdfast.SessionID) []bool {
	e.Helper()
	page, err := e.Store.Checkpoints(e.ctx, id, journal.Place{}, 1000)
	e.ok(err)
	out := make([]bool, len(page))
	for i, cp := range page {
		out[len(page)-1-i] = cp.Abandoned
	}
	return out
}

// end commits that a session has ended.
func (e *env) end(id holdfast.SessionID) {
	e.Helper()
	e.move(id, holdfast.StatusEnded)
}

var rewindCases = []testCase{
	{"abandons exactly the checkpoints outside of the branch, and takes back one that it left", func(e *env) {
		id, other := e.newSession(), e.newSession()
		for range 3 {
			e.take(id)
			e.take(other)
		}
		cps := e.all(id, 10)
		slices.Reverse(cps)
		revision := e.row(id).Revision
		row := e.rewind(id, 0, journal.Span{Upto: 1}, journal.Span{After: 4, Upto: 5})
		equal(e, "revision", row.Revision, revision+1)
		same(e, "abandoned", e.abandoned(id), []bool{false, true, true})
		same(e, "the other's", e.abandoned(other), []bool{false, false, false})
		equal(e, "at", e.at(id, 5), cps[0])
		fresh := e.take(id)
		same(e, "abandoned", e.abandoned(id), []bool{false, true, true, false})
		equal(e, "at", e.at(id, 100), fresh.ID)

		e.rewind(id, 0, journal.Span{Upto: 4}, journal.Span{After: 6, Upto: 7})
		same(e, "abandoned", e.abandoned(id), []bool{false, false, false, true})
		equal(e, "at", e.at(id, 100), cps[2])
		e.rewind(id, 0)
		same(e, "abandoned", e.abandoned(id), []bool{true, true, true, true})
		equal(e, "at", e.at(id, 100), "")
		e.Store = e.Reopen(e.T)
		same(e, "abandoned", e.abandoned(id), []bool{true, true, true, true})
	}},
	{"counts the completed turns of the branch, and judges the change's own checkpoint", func(e *env) {
		id := e.newSession()
		for n := range int64(3) {
			e.moveTurn(id, e.insertTurn(id, n+1, holdfast.TurnRunning), holdfast.TurnRunning, holdfast.TurnCompleted)
		}
		said := journal.NewChange(id)
		said.Events = events(2)
		e.commit(said)
		equal(e, "completed", e.row(id).CompletedTurns, 3)
		kept := e.checkpoint(id, e.row(id).LastSeq)
		kept.Reason = holdfast.CheckpointKept
		c := taking(kept)
		c.Files.Rewind = &journal.Rewind{Branch: []journal.Span{{Upto: 1}}, Completed: 1}
		c.Files.Restore = &journal.Restore{Scope: kept.Scope, Session: id, Checkpoint: kept.ID}
		revision := e.row(id).Revision
		e.commit(c)
		for range 2 {
			equal(e, "completed", e.row(id).CompletedTurns, 1)
			equal(e, "revision", e.row(id).Revision, revision+1)
			equal(e, "last turn", e.row(id).LastTurn, 3)
			equal(e, "abandoned", e.stored(id, kept.ID).Abandoned, true)
			e.Store = e.Reopen(e.T)
		}
	}},
	{"finds the files of an abandoned event only by its branch", func(e *env) {
		id := e.newSession() // its log has event #1
		first := e.take(id)  // a checkpoint at event #1; event #2 records it
		second := e.take(id) // a checkpoint at event #2; event #3 records it
		e.rewind(id, 0, journal.Span{Upto: 1}, journal.Span{After: 3, Upto: 4})
		// Event #4 follows event #1 on its own branch, which does not contain the second checkpoint.
		e.rewind(id, 0, journal.Span{Upto: 3}, journal.Span{After: 4, Upto: 5})
		for _, c := range []struct {
			branch []journal.Span
			want   holdfast.CheckpointID
		}{
			{[]journal.Span{{Upto: 1}, {After: 3, Upto: 4}}, first.ID},
			{[]journal.Span{{Upto: 3}, {After: 4, Upto: 5}}, second.ID},
			{[]journal.Span{{After: 3, Upto: 5}}, ""},
			{nil, ""},
		} {
			got, ok, err := e.Store.Within(e.ctx, id, c.branch)
			e.ok(err)
			equal(e, "checkpoint", got.ID, c.want)
			equal(e, "found", ok, c.want != "")
		}
	}},
}

var restoreCases = []testCase{
	{"marks a scope until the mark is removed", func(e *env) {
		id := e.newSession()
		cp := e.take(id)
		own, shared := journal.Restore{Scope: cp.Scope, Session: id, Checkpoint: cp.ID}, journal.Restore{Scope: "w-x", Session: id, Checkpoint: cp.ID}
		revision := e.row(id).Revision
		e.mark(id, shared)
		e.mark(id, own)
		e.mark(id, own)
		for range 2 {
			marks, err := e.Store.Restoring(e.ctx)
			e.ok(err)
			same(e, "marks", marks, []journal.Restore{own, shared})
			got, ok, err := e.Store.RestoreOf(e.ctx, "w-x")
			e.ok(err)
			equal(e, "mark", got, shared)
			equal(e, "found", ok, true)
			e.Store = e.Reopen(e.T)
		}
		e.mark(id, journal.Restore{Scope: "w-x"})
		e.mark(id, journal.Restore{Scope: "w-x"})
		_, ok, err := e.Store.RestoreOf(e.ctx, "w-x")
		e.ok(err)
		equal(e, "found", ok, false)
		equal(e, "revision", e.row(id).Revision, revision)
	}},
	{"keeps a checkpoint of the scope from being stored", func(e *env) {
		id, other := e.newSession(), e.newSession()
		cp := e.take(id, packs(1)...)
		e.mark(id, journal.Restore{Scope: cp.Scope, Session: id, Checkpoint: cp.ID})
		before := e.everything()
		e.refuse(taking(e.checkpoint(id, e.row(id).LastSeq), packs(2)...), holdfast.KindConflict, string(cp.Scope))
		same(e, "files", e.everything(), before)
		e.take(other, packs(3)...)
		e.mark(id, journal.Restore{Scope: cp.Scope})
		e.take(id, packs(2)...)
	}},
	{"may name a checkpoint of another session, which stays as long as the mark", func(e *env) {
		from, fork := e.newSession(), e.newSession()
		cp := e.take(from)
		mark := journal.Restore{Scope: fork.Box(), Session: from, Checkpoint: cp.ID}
		e.mark(fork, mark)
		e.end(from)
		before := e.everything()
		e.isKind(e.Store.DropCheckpoints(e.ctx, from, []holdfast.CheckpointID{cp.ID}), holdfast.KindConflict, string(mark.Scope))
		e.isKind(e.Store.DeleteSession(e.ctx, from), holdfast.KindConflict, string(mark.Scope))
		same(e, "files", e.everything(), before)
		e.end(fork)
		e.ok(e.Store.DeleteSession(e.ctx, fork)) // this also deletes the mark of the session's scope
		marks, err := e.Store.Restoring(e.ctx)
		e.ok(err)
		same(e, "marks", marks, nil)
		e.ok(e.Store.DeleteSession(e.ctx, from))
		same(e, "files", e.everything(), nil)
	}},
	{"goes with its session, as the checkpoints do; packs stay", func(e *env) {
		id, other := e.newSession(), e.newSession()
		cp := e.take(id, packs(1)...)
		kept := e.take(other, packs(2)...)
		e.mark(id, journal.Restore{Scope: cp.Scope, Session: id, Checkpoint: cp.ID})
		e.end(id)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		same(e, "checkpoints", e.needed(), []journal.Checkpoint{kept})
		e.numbers(1, 2)
		e.commit(creation(id))
		same(e, "of the same id", e.all(id, 5), nil)
	}},
}

var keepingCases = []testCase{
	{"lists all checkpoints, over many pages and with those that come meanwhile", func(e *env) {
		one, two := e.newSession(), e.newSession()
		const n = 300
		for range n / 2 {
			e.take(one)
			e.take(two)
		}
		seen := 0
		var last int64
		for cp, err := range e.Store.Needed(e.ctx) {
			e.ok(err)
			if cp.Order <= last {
				e.Fatalf("order %d after %d", cp.Order, last)
			}
			last = cp.Order
			if seen++; seen == 10 {
				e.take(one)
			}
		}
		equal(e, "checkpoints", seen, n+1)
		for range e.Store.Needed(e.ctx) {
			break
		}
		ctx, cancel := cancelled(e.ctx)
		defer cancel()
		for _, err := range e.Store.Needed(ctx) {
			e.isKind(err, holdfast.KindUnavailable)
		}
	}},
	{"takes packs of no checkpoint as unused, and a list makes them used", func(e *env) {
		id := e.newSession()
		cp := e.take(id, packs(1, 2)...)
		added, err := e.Store.AddPacks(e.ctx, packs(3, 2, 4))
		e.ok(err)
		n := e.numbers(1, 2, 3, 4)
		same(e, "unused", e.unused(), n[2:])
		equal(e, "known", added[1].Number, n[1])
		equal(e, "known and used", added[1].Unused, nil)
		equal(e, "new", added[2].Number, n[3])
		e.ok(e.Store.SetPacks(e.ctx, map[holdfast.CheckpointID][]int64{cp.ID: {n[2]}, holdfast.CheckpointID(e.newID()): {n[0]}}))
		same(e, "packs", e.stored(id, cp.ID).Packs, []int64{n[2]})
		same(e, "unused", e.unused(), n[3:])
		e.commit(taking(e.checkpoint(id, 1, n[3])))
		same(e, "unused", e.unused(), nil)
		before := e.everything()
		for _, list := range [][]int64{{2, 1}, {0}} {
			e.isKind(e.Store.SetPacks(e.ctx, map[holdfast.CheckpointID][]int64{cp.ID: list}), holdfast.KindInvalid)
		}
		e.isKind(e.Store.SetPacks(e.ctx, map[holdfast.CheckpointID][]int64{cp.ID: {n[0], 99}}), holdfast.KindConflict, "99")
		e.isKind(second(e.Store.AddPacks(e.ctx, []journal.Pack{{ID: "x", Bytes: 1}})), holdfast.KindInvalid)
		same(e, "files", e.everything(), before)
	}},
	{"marks only packs that no checkpoint lists, and keeps the first time", func(e *env) {
		id := e.newSession()
		cp := e.take(id, packs(1, 2, 3)...)
		n := e.numbers(1, 2, 3)
		e.ok(e.Store.SetPacks(e.ctx, map[holdfast.CheckpointID][]int64{cp.ID: n[:1]}))
		since := time.UnixMilli(1_700_000_000_123).UTC()
		e.ok(e.Store.MarkUnused(e.ctx, []int64{n[0], n[1], 99}, since))
		e.ok(e.Store.MarkUnused(e.ctx, n, since.Add(time.Hour)))
		got, err := e.Store.Packs(e.ctx, n[1:])
		e.ok(err)
		same(e, "unused", e.unused(), n[1:])
		equal(e, "first", *got[0].Unused, since)
		equal(e, "second", *got[1].Unused, since.Add(time.Hour))
		e.commit(taking(e.checkpoint(id, 1), packs(2)...))
		same(e, "unused", e.unused(), n[2:])
		same(e, "packs", e.numbers(1, 2, 3), n)
	}},
	{"drops packs and checkpoints, but none that is needed, and no number comes back", func(e *env) {
		id, other := e.newSession(), e.newSession()
		first, newest := e.take(id, packs(1, 2)...), e.take(id, packs(3)...)
		n := e.numbers(1, 2, 3)
		e.ok(e.Store.DropCheckpoints(e.ctx, other, []holdfast.CheckpointID{first.ID}))
		before := e.everything()
		e.isKind(e.Store.DropPacks(e.ctx, n), holdfast.KindConflict)
		e.isKind(e.Store.DropPacks(e.ctx, n[2:]), holdfast.KindConflict, num(int(n[2])))
		same(e, "files", e.everything(), before)
		e.ok(e.Store.DropCheckpoints(e.ctx, id, []holdfast.CheckpointID{first.ID, holdfast.CheckpointID(e.newID())}))
		same(e, "checkpoints", e.all(id, 5), []holdfast.CheckpointID{newest.ID})
		e.ok(e.Store.DropPacks(e.ctx, append(n[:2:2], 99)))
		e.refuse(taking(e.checkpoint(id, 1, n[0])), holdfast.KindConflict, num(int(n[0])))
		e.ok(e.Store.DropCheckpoints(e.ctx, id, []holdfast.CheckpointID{newest.ID}))
		e.ok(e.Store.DropPacks(e.ctx, n))
		e.Store = e.Reopen(e.T)
		again := e.take(id, packs(1)...)
		if again.Packs[0] <= n[2] || again.Order <= newest.Order {
			e.Fatalf("pack %d after %d, order %d after %d", again.Packs[0], n[2], again.Order, newest.Order)
		}
	}},
	{"keeps held checkpoints until they are released, and holds only those of the change's session", func(e *env) {
		id, other := e.newSession(), e.newSession()
		one, two, foreign := e.take(id), e.take(id), e.take(other)
		revision := e.row(id).Revision
		e.hold(id, one.ID, true)
		e.hold(id, one.ID, true)
		e.refuse(holding(other, one.ID, false), holdfast.KindNotFound, string(one.ID))
		equal(e, "revision", e.row(id).Revision, revision)
		list := []holdfast.CheckpointID{two.ID, one.ID}
		for range 2 {
			for _, cp := range e.needed() {
				equal(e, "held", cp.Held, cp.ID == one.ID)
				equal(e, "held", e.stored(cp.Session, cp.ID).Held, cp.ID == one.ID)
			}
			e.isKind(e.Store.DropCheckpoints(e.ctx, id, list), holdfast.KindConflict, string(one.ID))
			equal(e, "checkpoints", len(e.needed()), 3)
			e.Store = e.Reopen(e.T)
		}
		e.rewind(id, 0) // a checkpoint stays held after a rewind to before it
		equal(e, "held", e.stored(id, one.ID).Held, true)
		e.hold(id, one.ID, false)
		e.hold(id, one.ID, false)
		e.ok(e.Store.DropCheckpoints(e.ctx, id, list))
		same(e, "checkpoints", e.needed(), []journal.Checkpoint{foreign})
	}},
	{"keeps a checkpoint that was released while the files of it are put in place", func(e *env) {
		from, fork := e.newSession(), e.newSession()
		cp := e.take(from)
		e.hold(from, cp.ID, true)
		scope := fork.Box()
		e.mark(fork, journal.Restore{Scope: scope, Session: from, Checkpoint: cp.ID})
		e.hold(from, cp.ID, false)
		list := []holdfast.CheckpointID{cp.ID}
		e.isKind(e.Store.DropCheckpoints(e.ctx, from, list), holdfast.KindConflict, string(scope))
		e.isKind(e.Store.PurgeCheckpoints(e.ctx, from, list), holdfast.KindConflict, string(scope))
		e.mark(fork, journal.Restore{Scope: scope})
		e.ok(e.Store.DropCheckpoints(e.ctx, from, list))
	}},
	{"purges held checkpoints, of one session only, and a deleted session takes its own along", func(e *env) {
		id, other := e.newSession(), e.newSession()
		one, two, foreign := e.take(id), e.take(id), e.take(other)
		for _, cp := range []journal.Checkpoint{one, two, foreign} {
			e.hold(cp.Session, cp.ID, true)
		}
		e.ok(e.Store.PurgeCheckpoints(e.ctx, id, []holdfast.CheckpointID{one.ID, foreign.ID, holdfast.CheckpointID(e.newID())}))
		equal(e, "checkpoints", len(e.needed()), 2)
		e.end(id)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		same(e, "checkpoints", e.needed(), []journal.Checkpoint{e.stored(other, foreign.ID)})
	}},
	{"knows where dropped checkpoints were, until their session is deleted", func(e *env) {
		id, other := e.newSession(), e.newSession()
		first, second := e.take(id), e.take(id) // checkpoints at the events #1 and #2 of the session
		e.take(id)                              // a checkpoint at event #3 of the session
		e.take(other)
		drop := func(cp journal.Checkpoint) {
			e.ok(e.Store.DropCheckpoints(e.ctx, id, []holdfast.CheckpointID{cp.ID, holdfast.CheckpointID(e.newID())}))
		}
		dropped := func(id holdfast.SessionID, after int64, branch ...journal.Span) bool {
			got, err := e.Store.Dropped(e.ctx, id, branch, after)
			e.ok(err)
			return got
		}
		equal(e, "nothing", dropped(id, 0, journal.Span{Upto: 100}), false)
		drop(second)
		drop(second)
		for range 2 {
			equal(e, "on the branch", dropped(id, 0, journal.Span{Upto: 2}), true)
			equal(e, "in the second span", dropped(id, 1, journal.Span{Upto: 1}, journal.Span{After: 1, Upto: 3}), true)
			equal(e, "before", dropped(id, 0, journal.Span{Upto: 1}), false)
			equal(e, "after", dropped(id, 2, journal.Span{Upto: 100}), false)
			equal(e, "beside", dropped(id, 0, journal.Span{Upto: 1}, journal.Span{After: 2, Upto: 100}), false)
			equal(e, "on no branch", dropped(id, 0), false)
			equal(e, "of another session", dropped(other, 0, journal.Span{Upto: 100}), false)
			e.Store = e.Reopen(e.T)
		}
		e.ok(e.Store.PurgeCheckpoints(e.ctx, id, []holdfast.CheckpointID{first.ID}))
		equal(e, "purged", dropped(id, 0, journal.Span{Upto: 1}), true)
		e.end(id)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		e.commit(creation(id))
		equal(e, "of the same id", dropped(id, 0, journal.Span{Upto: 100}), false)
	}},
}
