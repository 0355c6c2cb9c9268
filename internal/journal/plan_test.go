package journal_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// planned is a session that is kept by nothing but plans.
type planned struct {
	state journal.State
	// completed counts the turns that were completed.
	completed int64
}

// take makes a plan the state.
func (p *planned) take(c journal.Encoded, plan journal.Plan) {
	row := plan.Row
	p.state.Row = &row
	for _, t := range plan.Turns {
		if old := p.state.Turns[t.ID]; t.Status == holdfast.TurnCompleted && old.Status != t.Status {
			p.completed++
		}
		p.state.Turns[t.ID] = t.TurnRow
	}
	for _, a := range c.Approvals {
		if a.Ask != nil {
			asked := *a.Ask
			asked.State = holdfast.ApprovalPending
			p.state.Approvals[asked.ID] = asked
			continue
		}
		old := p.state.Approvals[a.ID]
		old.State = a.To
		p.state.Approvals[a.ID] = old
	}
	for _, s := range c.States {
		p.state.Generation = max(p.state.Generation, s.Generation)
	}
	if c.Files != nil && c.Files.Rewind != nil {
		p.completed = c.Files.Rewind.Completed
	}
}

var (
	walkable = []holdfast.Status{holdfast.StatusActive, holdfast.StatusPaused, holdfast.StatusEnded, holdfast.StatusError}
	movable  = []holdfast.TurnStatus{"", holdfast.TurnQueued, holdfast.TurnRunning, holdfast.TurnCompleted, holdfast.TurnFailed, holdfast.TurnInterrupted}
)

// drawn is any change, most of which some state refuses.
func drawn(t *rapid.T, p *planned, n int) journal.Encoded {
	c := journal.NewChange("s1")
	small := rapid.Int64Range(0, 3)
	if rapid.IntRange(0, 9).Draw(t, "create") == 0 || p.state.Row == nil {
		c.Create = &journal.Row{Session: holdfast.Session{Status: holdfast.StatusActive, Title: "t", Tags: []string{"a"}}}
	}
	odd := func(what string) bool { return rapid.IntRange(0, 4).Draw(t, what) == 0 }
	if odd("walks") {
		c.Status = rapid.SliceOfN(rapid.SampledFrom(walkable), 1, 2).Draw(t, "walk")
	}
	if rapid.Bool().Draw(t, "patch") {
		title := fmt.Sprint("title ", n)
		c.Set = &journal.RowPatch{Title: &title}
	}
	if p.state.Row != nil && odd("expects a revision") {
		c.Revision = p.state.Row.Revision + small.Draw(t, "off") - 1
	}
	if p.state.Row != nil && odd("expects a log") {
		c.LastSeq = p.state.Row.LastSeq + small.Draw(t, "behind") - 1
	}
	var enc journal.Encoded
	for i := range rapid.IntRange(0, 3).Draw(t, "events") {
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventNotice})
		enc.Data = append(enc.Data, fmt.Appendf(nil, `{"text":"%d"}`, i))
	}
	for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "turns") {
		tc := journal.TurnChange{ID: holdfast.TurnID(fmt.Sprintf("turn-%d-%d", n, i)), To: rapid.SampledFrom(movable[1:]).Draw(t, "to")}
		if known := slices.Sorted(maps.Keys(p.state.Turns)); len(known) > 0 && rapid.Bool().Draw(t, "known") {
			tc.ID = rapid.SampledFrom(known).Draw(t, "turn")
			tc.From = p.state.Turns[tc.ID].Status
		} else if p.state.Row != nil {
			tc.Number = p.state.Row.LastTurn + 1 + int64(i)
		}
		if odd("from") {
			tc.From = rapid.SampledFrom(movable).Draw(t, "other from")
		}
		if odd("number") {
			tc.Number += small.Draw(t, "off by")
		}
		if odd("message") {
			tc.MessageSeq = small.Draw(t, "seq")
		}
		c.Turns = append(c.Turns, tc)
	}
	switch rapid.IntRange(0, 3).Draw(t, "approval") {
	case 0:
		c.Approvals = append(c.Approvals, journal.ApprovalChange{Ask: &holdfast.Approval{
			ID: holdfast.ApprovalID(fmt.Sprint("a", rapid.IntRange(0, 3).Draw(t, "asked"))), Session: "s1", Turn: "t", ToolUseID: "u", Tool: "Bash", Input: []byte(`{}`),
		}})
	case 1:
		c.Approvals = append(c.Approvals, journal.ApprovalChange{
			ID: holdfast.ApprovalID(fmt.Sprint("a", rapid.IntRange(0, 3).Draw(t, "answered"))), To: holdfast.ApprovalAllowed,
		})
	}
	if rapid.IntRange(0, 5).Draw(t, "state") == 0 {
		c.States = []holdfast.AgentState{{Generation: 1 + small.Draw(t, "generation"), Runtime: "claude", AgentID: "x", Health: holdfast.HealthCurrent}}
	}
	if rapid.IntRange(0, 2).Draw(t, "files") == 0 {
		c.Files = drawnFiles(t, p)
	}
	enc.Change = c
	return enc
}

// cpID is the id of each drawn checkpoint. As the id of a session it names another one than s1.
const cpID = "01890a5d-ac96-774b-bcce-b302099a8057"

// drawnFiles is any change of files, and what a store might hold of it.
func drawnFiles(t *rapid.T, p *planned) *journal.FilesChange {
	f := &journal.FilesChange{}
	small := rapid.Int64Range(-1, 6)
	p.state.Files = journal.StoredFiles{
		Taken: rapid.IntRange(0, 4).Draw(t, "taken") == 0, Replaced: rapid.IntRange(0, 4).Draw(t, "replaced") == 0, Target: rapid.Bool().Draw(t, "target"),
	}
	if rapid.Bool().Draw(t, "checkpoint") {
		f.Checkpoint = &journal.Checkpoint{Checkpoint: holdfast.Checkpoint{
			ID: cpID, Session: "s1", Reason: holdfast.CheckpointTurn, Seq: small.Draw(t, "at"), Number: rapid.Int64Range(0, 2).Draw(t, "turn"),
		}, Scope: "w-x", Packs: []int64{1, 2}}
		if rapid.IntRange(0, 2).Draw(t, "missing") == 0 {
			p.state.Files.Missing = []int64{2}
		}
	}
	if rapid.Bool().Draw(t, "restore") {
		f.Restore = &journal.Restore{Scope: "w-x"}
		if rapid.Bool().Draw(t, "mark") {
			f.Restore.Session, f.Restore.Checkpoint = cpID, cpID
		}
	}
	if rapid.Bool().Draw(t, "rewind") {
		f.Rewind = &journal.Rewind{Completed: rapid.Int64Range(-1, 3).Draw(t, "completed")}
		for range rapid.IntRange(0, 2).Draw(t, "spans") {
			after := small.Draw(t, "after")
			f.Rewind.Branch = append(f.Rewind.Branch, journal.Span{After: after, Upto: after + small.Draw(t, "long")})
		}
	}
	return f
}

// TestPlansKeepASessionSound makes a session of accepted plans alone, and checks after each
// what must hold for the rest of its life.
func TestPlansKeepASessionSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &planned{state: journal.State{Turns: map[holdfast.TurnID]journal.TurnRow{}, Approvals: map[holdfast.ApprovalID]holdfast.Approval{}}}
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for n := range rapid.IntRange(1, 30).Draw(t, "changes") {
			now = now.Add(time.Second)
			p.state.Now = now
			c := drawn(t, p, n)
			if c.Check() != nil {
				continue
			}
			old := p.state.Row
			var before journal.Row
			if old != nil {
				before = old.Clone()
			}
			plan, err := c.Plan(p.state)
			again, err2 := c.Plan(p.state)
			if !reflect.DeepEqual(plan, again) || fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Fatalf("two plans of one change: %+v (%v), %+v (%v)", plan, err, again, err2)
			}
			if old != nil && !reflect.DeepEqual(*old, before) {
				t.Fatalf("the row became %+v, it was %+v", *old, before)
			}
			if err != nil {
				if k := holdfast.KindOf(err); k != holdfast.KindConflict && k != holdfast.KindNotFound && k != holdfast.KindInvalid {
					t.Fatalf("refused with %s: %v", k, err)
				}
				continue
			}
			p.accepts(t, c, plan, old)
			p.take(c, plan)
		}
	})
}

// accepts checks an accepted plan against the row before it; nil is none.
func (p *planned) accepts(t *rapid.T, c journal.Encoded, plan journal.Plan, old *journal.Row) {
	row := plan.Row
	if (old == nil) != (c.Create != nil) {
		t.Fatalf("a session was created: %v; there was one: %v", c.Create != nil, old != nil)
	}
	was := journal.Row{}
	if old != nil {
		was = *old
	}
	if plan.First != was.LastSeq+1 || row.LastSeq != was.LastSeq+int64(len(c.Events)) {
		t.Fatalf("events #%d to #%d after #%d, %d of them", plan.First, row.LastSeq, was.LastSeq, len(c.Events))
	}
	if c.Revision != 0 && old != nil && c.Revision != was.Revision || c.LastSeq != -1 && c.LastSeq != was.LastSeq {
		t.Fatalf("expected revision %d and #%d, found %d and #%d", c.Revision, c.LastSeq, was.Revision, was.LastSeq)
	}
	record := len(c.Status) > 0 || c.Set != nil || len(c.Turns) > 0 || c.Files != nil && c.Files.Rewind != nil
	switch {
	case old == nil && row.Revision != 1, old != nil && record != (row.Revision == was.Revision+1), old != nil && !record && row.Revision != was.Revision:
		t.Fatalf("revision %d after %d; the record changes: %v", row.Revision, was.Revision, record)
	}
	at := was.Status
	if old == nil {
		at = c.Create.Status
	}
	for _, next := range c.Status {
		if !at.CanBecome(next) {
			t.Fatalf("%s became %s", at, next)
		}
		at = next
	}
	if row.Status != at {
		t.Fatalf("the walk ends at %s, the row is %s", at, row.Status)
	}
	p.turns(t, c, plan, was)
	p.files(t, c, row)
	for _, a := range c.Approvals {
		if known, ok := p.state.Approvals[a.About()]; ok == (a.Ask != nil) || ok && known.State != holdfast.ApprovalPending {
			t.Fatalf("approval %s, known %v as %s, was taken", a.About(), ok, known.State)
		}
	}
	for _, s := range c.States {
		if s.Generation > p.state.Generation+1 {
			t.Fatalf("agent state %d followed %d", s.Generation, p.state.Generation)
		}
	}
}

// turns checks that turns are numbered without a hole and that none lives twice.
func (p *planned) turns(t *rapid.T, c journal.Encoded, plan journal.Plan, was journal.Row) {
	fresh, completed := int64(0), p.completed
	for _, turn := range plan.Turns {
		known, ok := p.state.Turns[turn.ID]
		if turn.New == ok {
			t.Fatalf("turn %s is new: %v; it was known: %v", turn.ID, turn.New, ok)
		}
		if turn.New {
			fresh++
			if turn.Number != was.LastTurn+fresh {
				t.Fatalf("turn number %d after %d", turn.Number, was.LastTurn)
			}
		} else if known.Status.Terminal() || turn.Number != known.Number {
			t.Fatalf("turn %s was %s and is %s", turn.ID, known.Status, turn.Status)
		}
		if turn.Status == holdfast.TurnCompleted {
			completed++
		}
		if turn.Status.Terminal() != (turn.EndedAt != nil) || turn.MessageSeq > plan.Row.LastSeq {
			t.Fatalf("turn %+v", turn)
		}
	}
	if c.Files != nil && c.Files.Rewind != nil {
		completed = c.Files.Rewind.Completed
	}
	if plan.Row.LastTurn != was.LastTurn+fresh || plan.Row.CompletedTurns != completed {
		t.Fatalf("%d turns, %d completed; want %d and %d", plan.Row.LastTurn, plan.Row.CompletedTurns, was.LastTurn+fresh, completed)
	}
}

// files checks that an accepted checkpoint is new, has its packs and is inside of the session, that a
// mark names a checkpoint which is stored, and that a rewind's branch is a part of the log.
func (p *planned) files(t *rapid.T, c journal.Encoded, row journal.Row) {
	f := c.Files
	if f == nil {
		return
	}
	if cp := f.Checkpoint; cp != nil {
		if p.state.Files.Taken || p.state.Files.Replaced && f.Restore == nil || len(p.state.Files.Missing) > 0 || cp.Seq < 1 || cp.Seq > row.LastSeq || cp.Number > row.LastTurn {
			t.Fatalf("checkpoint %+v was taken: %+v, event #%d, turn %d", cp, p.state.Files, row.LastSeq, row.LastTurn)
		}
	}
	if r := f.Restore; r != nil && r.Checkpoint != "" && !p.state.Files.Target {
		t.Fatalf("a mark names checkpoint %s, which is not stored", r.Checkpoint)
	}
	if r := f.Rewind; r != nil {
		end := int64(0)
		for _, s := range r.Branch {
			if s.After < end || s.Upto <= s.After || s.Upto > row.LastSeq {
				t.Fatalf("branch %v of a log that ends at #%d", r.Branch, row.LastSeq)
			}
			end = s.Upto
		}
		if r.Completed < 0 || r.Completed > row.LastTurn {
			t.Fatalf("%d completed turns of %d", r.Completed, row.LastTurn)
		}
	}
}

// TestAMarkMayNameTheCheckpointOfItsChange takes a mark together with its checkpoint, and refuses one
// of another session or with another id.
func TestAMarkMayNameTheCheckpointOfItsChange(t *testing.T) {
	const session, other = "01890a5d-ac96-774b-bcce-b302099a8001", "01890a5d-ac96-774b-bcce-b302099a8002"
	for _, tc := range []struct {
		session holdfast.SessionID
		id      holdfast.CheckpointID
		want    holdfast.Kind
	}{
		{session, cpID, ""}, {other, cpID, holdfast.KindNotFound}, {session, other, holdfast.KindNotFound},
	} {
		c := journal.NewChange(session)
		c.Files = &journal.FilesChange{
			Checkpoint: &journal.Checkpoint{
				Checkpoint: holdfast.Checkpoint{ID: cpID, Session: session, Reason: holdfast.CheckpointFork, Seq: 1}, Scope: "w-x",
			},
			Restore: &journal.Restore{Scope: "w-x", Session: tc.session, Checkpoint: tc.id},
		}
		enc := journal.Encoded{Change: c}
		if err := enc.Check(); err != nil {
			t.Fatal(err)
		}
		row := &journal.Row{Session: holdfast.Session{ID: session, Revision: 1, LastSeq: 1}}
		if _, err := enc.Plan(journal.State{Row: row}); holdfast.KindOf(err) != tc.want {
			t.Errorf("mark of %s %s: %v, want %q", tc.session, tc.id, err, tc.want)
		}
	}
}
