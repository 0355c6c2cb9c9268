package storetest

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Snapshots is the part of a store that the snapshots of files need.
type Snapshots interface {
	Checkpoints
	Keeping
}

// Checkpoints reads what commits stored of checkpoints, packs and marks. A session that does not exist
// has no checkpoints.
type Checkpoints interface {
	// Checkpoint returns a checkpoint of a session; not_found for an unknown one.
	Checkpoint(ctx context.Context, session holdfast.SessionID, id holdfast.CheckpointID) (journal.Checkpoint, error)
	// Checkpoints lists the checkpoints of a session that are before a place, newest first; with the
	// zero Place the newest of all. The limit defaults to 50 and is at most 1000.
	Checkpoints(ctx context.Context, session holdfast.SessionID, before journal.Place, limit int) ([]journal.Checkpoint, error)
	// At returns the checkpoint whose files a session had at an event of its present branch: of the
	// checkpoints that are not abandoned and not after the event, the newest. It returns false if there is no such checkpoint.
	At(ctx context.Context, session holdfast.SessionID, seq int64) (journal.Checkpoint, bool, error)
	// Within returns the newest checkpoint, abandoned or not, at an event in the given spans of the log. The
	// spans are ascending and lead to one event. Unlike At, Within also finds the files at an abandoned event;
	// the newest checkpoint before an abandoned event could be one of another branch.
	Within(ctx context.Context, session holdfast.SessionID, branch []journal.Span) (journal.Checkpoint, bool, error)
	// Newest returns the checkpoint of a scope that was stored last, also an abandoned one; false if
	// there is none.
	Newest(ctx context.Context, scope holdfast.BoxID) (journal.Checkpoint, bool, error)
	// Needed lists the checkpoints of all sessions in the order in which they were stored, with those
	// that are stored while the caller iterates. No transaction stays open while the caller's code runs.
	Needed(ctx context.Context) iter.Seq2[journal.Checkpoint, error]
	// Packs returns the packs with these numbers, ascending; numbers that are not stored are left out.
	Packs(ctx context.Context, numbers []int64) ([]journal.Pack, error)
	// AllPacks returns all packs, ordered by number.
	AllPacks(ctx context.Context) ([]journal.Pack, error)
	// Restoring lists the marks of all scopes whose files are being replaced, ordered by scope.
	Restoring(ctx context.Context) ([]journal.Restore, error)
	// RestoreOf returns the mark of a scope; false if it has none.
	RestoreOf(ctx context.Context, scope holdfast.BoxID) (journal.Restore, bool, error)
}

// Keeping changes checkpoints and packs outside of commits, for retention and the collection of packs.
// Each change is durable on return.
type Keeping interface {
	// AddPacks stores packs that no checkpoint lists yet, unused from now on, and returns them with
	// their numbers. A pack that is stored already is returned as it is.
	AddPacks(ctx context.Context, packs []journal.Pack) ([]journal.Pack, error)
	// SetPacks replaces the lists of packs of checkpoints, in several transactions if there are many. The packs
	// in the new lists are no longer unused. Checkpoints that are not stored are left out; a pack that
	// is not stored is a conflict.
	SetPacks(ctx context.Context, exact map[holdfast.CheckpointID][]int64) error
	// MarkUnused sets the time since which packs are unused. Packs that are marked already keep their
	// time; those that a checkpoint lists are not marked.
	MarkUnused(ctx context.Context, numbers []int64, since time.Time) error
	// DropPacks removes packs, all or none; conflict if a checkpoint lists one. Numbers that are not
	// stored are left out.
	DropPacks(ctx context.Context, numbers []int64) error
	// DropCheckpoints removes checkpoints of a session, all or none; conflict if somebody holds one or a
	// mark names one. Ids that are not stored are left out. Packs stay.
	DropCheckpoints(ctx context.Context, session holdfast.SessionID, ids []holdfast.CheckpointID) error
	// PurgeCheckpoints is DropCheckpoints for a purge, which removes held checkpoints too; conflict if a
	// mark names one.
	PurgeCheckpoints(ctx context.Context, session holdfast.SessionID, ids []holdfast.CheckpointID) error
	// Dropped reports whether a dropped or purged checkpoint of a session was at an event that lies in one of
	// the spans and has a number above after.
	Dropped(ctx context.Context, session holdfast.SessionID, branch []journal.Span, after int64) (bool, error)
	// Relisted returns a number that rises when SetPacks, DropCheckpoints or PurgeCheckpoints may have changed something.
	Relisted() int64
}

// hash returns an id of 64 hex digits that differs for each n.
func hash(n int) string { return fmt.Sprintf("%064x", n) }

// packs returns one new pack for each number i of n; its id is hash(i).
func packs(n ...int) []journal.Pack {
	out := make([]journal.Pack, len(n))
	for i, id := range n {
		out[i] = journal.Pack{ID: hash(id), Bytes: int64(1000 + id)}
	}
	return out
}

// checkpoint returns a new checkpoint of the session id at an event. It belongs to no turn.
func (e *env) checkpoint(id holdfast.SessionID, seq int64, packs ...int64) *journal.Checkpoint {
	e.Helper()
	return &journal.Checkpoint{
		Checkpoint: holdfast.Checkpoint{
			ID: holdfast.CheckpointID(e.newID()), Session: id, Reason: holdfast.CheckpointTurn, Seq: seq,
			CreatedAt: time.UnixMilli(1_700_000_000_123).UTC(), Workspace: hash(77), Home: hash(78), Files: 5, Bytes: 6, Fuzzy: true,
		},
		Scope: id.Box(), Packs: packs,
	}
}

// taking returns the change that stores a checkpoint and the event snapshot.taken of it.
func taking(cp *journal.Checkpoint, packs ...journal.Pack) journal.Change {
	c := journal.NewChange(cp.Session)
	c.Files = &journal.FilesChange{Checkpoint: cp, Packs: packs}
	c.Events = []journal.Draft{{Type: holdfast.EventSnapshotTaken, Data: holdfast.SnapshotTaken{Checkpoint: cp.ID, Seq: cp.Seq}}}
	return c
}

// take stores a checkpoint of the session id at the end of its log, and returns it as it is stored.
func (e *env) take(id holdfast.SessionID, packs ...journal.Pack) journal.Checkpoint {
	e.Helper()
	cp := e.checkpoint(id, e.row(id).LastSeq)
	done := e.commit(taking(cp, packs...))
	stored := e.stored(id, cp.ID)
	same(e, "packs", done.Packs, stored.Packs)
	return stored
}

// stored reads a checkpoint from the store.
func (e *env) stored(id holdfast.SessionID, cp holdfast.CheckpointID) journal.Checkpoint {
	e.Helper()
	got, err := e.Store.Checkpoint(e.ctx, id, cp)
	e.ok(err)
	return got
}

// numbers returns, for each number i of n, the number under which the pack with the id hash(i) is stored.
func (e *env) numbers(n ...int) []int64 {
	e.Helper()
	all, err := e.Store.AllPacks(e.ctx)
	e.ok(err)
	out := make([]int64, len(n))
	for i, id := range n {
		at := slices.IndexFunc(all, func(p journal.Pack) bool { return p.ID == hash(id) })
		if at < 0 {
			e.Fatalf("pack %d is not stored", id)
		}
		out[i] = all[at].Number
	}
	return out
}

// unused returns the numbers of the packs that are marked as unused.
func (e *env) unused() []int64 {
	e.Helper()
	all, err := e.Store.AllPacks(e.ctx)
	e.ok(err)
	var out []int64
	for _, p := range all {
		if p.Unused != nil {
			out = append(out, p.Number)
		}
	}
	return out
}

// all returns the ids of the checkpoints of a session, newest first, read in pages of n.
func (e *env) all(id holdfast.SessionID, n int) []holdfast.CheckpointID {
	e.Helper()
	var out []holdfast.CheckpointID
	for before := (journal.Place{}); ; {
		page, err := e.Store.Checkpoints(e.ctx, id, before, n)
		e.ok(err)
		if len(page) == 0 {
			return out
		}
		for _, cp := range page {
			out = append(out, cp.ID)
		}
		before = page[len(page)-1].Place()
	}
}

// at returns the id of the checkpoint that At finds, empty for none.
func (e *env) at(id holdfast.SessionID, seq int64) holdfast.CheckpointID {
	e.Helper()
	cp, _, err := e.Store.At(e.ctx, id, seq)
	e.ok(err)
	return cp.ID
}

var checkpointCases = []testCase{
	{"stores a checkpoint and its packs with their event, and raises no revision", func(e *env) {
		id := e.newSession()
		turn := e.insertTurn(id, 1, holdfast.TurnRunning)
		row := e.row(id)
		cp := e.checkpoint(id, row.LastSeq)
		cp.Turn, cp.Number, cp.ID = turn, 1, holdfast.CheckpointID(turn)
		done := e.commit(taking(cp, packs(1, 2)...))
		equal(e, "revision", done.Row.Revision, row.Revision)
		one := e.numbers(1, 2)
		for range 2 {
			got := e.stored(id, cp.ID)
			want := *cp
			want.Packs, want.Order = one, got.Order
			same(e, "checkpoint", got, want)
			stored, err := e.Store.Packs(e.ctx, append(one, 99))
			e.ok(err)
			same(e, "packs", stored, []journal.Pack{{Number: one[0], ID: hash(1), Bytes: 1001}, {Number: one[1], ID: hash(2), Bytes: 1002}})
			log := e.log(id)
			var said holdfast.SnapshotTaken
			e.ok(log[len(log)-1].Decode(&said))
			equal(e, "event", said.Checkpoint, cp.ID)
			e.Store = e.Reopen(e.T)
		}
	}},
	{"keeps the numbers of known packs and sorts a checkpoint's list", func(e *env) {
		id := e.newSession()
		first := e.take(id, packs(3, 1)...)
		same(e, "first", first.Packs, []int64{first.Packs[0], first.Packs[0] + 1})
		cp := e.checkpoint(id, 1, e.numbers(3)...)
		e.commit(taking(cp, packs(2, 1, 3)...))
		second := e.stored(id, cp.ID)
		want := e.numbers(3, 1, 2)
		slices.Sort(want)
		same(e, "second", second.Packs, want)
		if second.Order <= first.Order {
			e.Fatalf("order %d after %d", second.Order, first.Order)
		}
	}},
	{"a checkpoint may be of no files, and fills in its time", func(e *env) {
		id := e.newSession()
		cp := &journal.Checkpoint{
			Checkpoint: holdfast.Checkpoint{ID: holdfast.CheckpointID(e.newID()), Session: id, Reason: holdfast.CheckpointFork, Seq: 1},
			Scope:      "w-shared",
		}
		e.commit(taking(cp))
		got := e.stored(id, cp.ID)
		if d := time.Since(got.CreatedAt); d < 0 || d > time.Hour {
			e.Fatalf("created %s", got.CreatedAt)
		}
		want := *cp
		want.CreatedAt, want.Order = got.CreatedAt, got.Order
		same(e, "checkpoint", got, want)
	}},
	{"stores nothing of a change that is refused, or that was made before", func(e *env) {
		id := e.newSession()
		known, foreign := e.take(id, packs(1)...), e.take(e.newSession())
		before := e.everything()
		for _, c := range []struct {
			kind  holdfast.Kind
			spoil func(*journal.Change)
		}{
			{holdfast.KindConflict, func(c *journal.Change) { c.Files.Checkpoint.ID = known.ID }},
			{holdfast.KindConflict, func(c *journal.Change) { c.Files.Checkpoint.Packs = []int64{known.Packs[0], 99} }},
			{holdfast.KindConflict, func(c *journal.Change) { c.Revision = 99 }},
			{holdfast.KindInvalid, func(c *journal.Change) { c.Files.Checkpoint.Seq = 99 }},
			{holdfast.KindInvalid, func(c *journal.Change) { c.Files.Checkpoint.Number = 1 }},
			{holdfast.KindInvalid, func(c *journal.Change) { c.Files.Rewind = &journal.Rewind{Branch: []journal.Span{{Upto: 99}}} }},
			{holdfast.KindInvalid, func(c *journal.Change) { c.Files.Rewind = &journal.Rewind{Completed: 1} }},
			{holdfast.KindNotFound, func(c *journal.Change) {
				c.Files.Restore = &journal.Restore{Scope: "w-x", Session: id, Checkpoint: holdfast.CheckpointID(e.newID())}
			}},
			{holdfast.KindNotFound, func(c *journal.Change) {
				c.Files.Restore = &journal.Restore{Scope: "w-x", Session: e.newSession(), Checkpoint: known.ID}
			}},
			{holdfast.KindNotFound, func(c *journal.Change) {
				c.Files.Hold = &journal.Hold{Checkpoint: holdfast.CheckpointID(e.newID()), Held: true}
			}},
			{holdfast.KindNotFound, func(c *journal.Change) { c.Files.Hold = &journal.Hold{Checkpoint: foreign.ID, Held: true} }},
			{holdfast.KindNotFound, func(c *journal.Change) {
				c.Files.Hold = &journal.Hold{Checkpoint: c.Files.Checkpoint.ID, Held: true} // the change itself stores this checkpoint
			}},
		} {
			change := taking(e.checkpoint(id, 1), packs(2)...)
			c.spoil(&change)
			e.refuse(change, c.kind)
			same(e, "files", e.everything(), before)
		}
		change := taking(e.checkpoint(id, 1), packs(2)...)
		change.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k", Hash: "h", Ref: "r"}
		e.commit(change)
		before = e.everything()
		change.Files = taking(e.checkpoint(id, 1), packs(3)...).Files
		equal(e, "duplicate", e.commit(change).Duplicate, "r")
		same(e, "files", e.everything(), before)
	}},
	{"refuses what is incomplete or malformed", func(e *env) {
		id := e.newSession()
		long := strings.Repeat("g", 64)
		for _, spoil := range []func(*journal.FilesChange){
			func(f *journal.FilesChange) { f.Checkpoint.ID = "turn-1" },
			func(f *journal.FilesChange) { f.Checkpoint.ID = holdfast.CheckpointID(strings.ToUpper(e.newID())) },
			func(f *journal.FilesChange) { f.Checkpoint.Session = "" },
			func(f *journal.FilesChange) { f.Checkpoint.Session = holdfast.SessionID(e.newID()) },
			func(f *journal.FilesChange) { f.Checkpoint.Scope = "shared" },
			func(f *journal.FilesChange) { f.Checkpoint.Turn = "t\x00" },
			func(f *journal.FilesChange) { f.Checkpoint.Turn = holdfast.TurnID(strings.ToUpper(e.newID())) },
			func(f *journal.FilesChange) { f.Checkpoint.Reason = "why" },
			func(f *journal.FilesChange) { f.Checkpoint.Workspace = long },
			func(f *journal.FilesChange) { f.Checkpoint.Home = hash(1)[1:] },
			func(f *journal.FilesChange) { f.Checkpoint.Seq = 0 },
			func(f *journal.FilesChange) { f.Checkpoint.Number = -1 },
			func(f *journal.FilesChange) { f.Checkpoint.Files = -1 },
			func(f *journal.FilesChange) { f.Checkpoint.Bytes = -1 },
			func(f *journal.FilesChange) { f.Checkpoint.Packs = []int64{0} },
			func(f *journal.FilesChange) { f.Checkpoint.Packs = []int64{1, 1} },
			func(f *journal.FilesChange) { f.Checkpoint = nil },
			func(f *journal.FilesChange) { f.Packs[0].ID = long },
			func(f *journal.FilesChange) { f.Packs[0].Bytes = 0 },
			func(f *journal.FilesChange) { f.Packs[0].Number = 1 },
			func(f *journal.FilesChange) { f.Packs[0].Unused = &time.Time{} },
			func(f *journal.FilesChange) { f.Packs = packs(1, 1) },
			func(f *journal.FilesChange) { f.Restore = &journal.Restore{Scope: "x"} },
			func(f *journal.FilesChange) {
				f.Restore = &journal.Restore{Scope: "w-x", Session: "x", Checkpoint: f.Checkpoint.ID}
			},
			func(f *journal.FilesChange) { f.Restore = &journal.Restore{Scope: "w-x", Session: id, Checkpoint: "x"} },
			func(f *journal.FilesChange) { f.Checkpoint.Held = true },
			func(f *journal.FilesChange) { f.Hold = &journal.Hold{Checkpoint: "x"} },
			func(f *journal.FilesChange) { f.Rewind = &journal.Rewind{Completed: -1} },
			func(f *journal.FilesChange) { f.Rewind = &journal.Rewind{Branch: []journal.Span{{After: 1, Upto: 1}}} },
			func(f *journal.FilesChange) { f.Rewind = &journal.Rewind{Branch: []journal.Span{{After: -1, Upto: 1}}} },
			func(f *journal.FilesChange) {
				f.Rewind = &journal.Rewind{Branch: []journal.Span{{Upto: 2}, {After: 1, Upto: 3}}}
			},
		} {
			c := taking(e.checkpoint(id, 1), packs(1)...)
			spoil(c.Files)
			e.refuse(c, holdfast.KindInvalid)
		}
		same(e, "files", len(e.everything()), 0)
	}},
	{"lists a session's checkpoints by place, newest first", func(e *env) {
		id, other := e.newSession(), e.newSession()
		c := journal.NewChange(id)
		c.Events = events(20)
		e.commit(c)
		var want []holdfast.CheckpointID
		for _, seq := range []int64{9, 3, 9, 12, 1} {
			cp := e.checkpoint(id, seq)
			e.commit(taking(cp))
			want = append(want, cp.ID)
		}
		e.take(other)
		want = []holdfast.CheckpointID{want[3], want[2], want[0], want[1], want[4]}
		for n := 1; n < 7; n++ {
			same(e, "pages of "+num(n), e.all(id, n), want)
		}
		page, err := e.Store.Checkpoints(e.ctx, id, journal.Place{Seq: 9}, 0)
		e.ok(err)
		equal(e, "before #9", len(page), 2)
		for seq, cp := range map[int64]holdfast.CheckpointID{0: "", 2: want[4], 3: want[3], 9: want[1], 11: want[1], math.MaxInt64: want[0]} {
			equal(e, "at #"+num(int(seq)), e.at(id, seq), cp)
		}
		same(e, "unknown session", e.all(holdfast.SessionID(e.newID()), 5), nil)
		equal(e, "unknown session", e.at(holdfast.SessionID(e.newID()), 5), "")
		_, err = e.Store.Checkpoint(e.ctx, other, want[0])
		e.isKind(err, holdfast.KindNotFound, string(want[0]), string(other))
	}},
	{"knows the newest checkpoint of a scope that sessions share", func(e *env) {
		one, two := e.newSession(), e.newSession()
		for _, id := range []holdfast.SessionID{one, two, one} {
			cp := e.checkpoint(id, 1)
			cp.Scope = "w-shared"
			e.commit(taking(cp))
			e.take(two)
			got, ok, err := e.Store.Newest(e.ctx, "w-shared")
			e.ok(err)
			equal(e, "newest", got.ID, cp.ID)
			equal(e, "found", ok, true)
		}
		_, ok, err := e.Store.Newest(e.ctx, one.Box())
		e.ok(err)
		equal(e, "found", ok, false)
	}},
}
