package views_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/internal/views"
)

const (
	session = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057")
	turn    = holdfast.TurnID("01890a5d-ac96-774b-bcce-b302099a8058")
	next    = holdfast.TurnID("01890a5d-ac96-774b-bcce-b302099a8059")
	unknown = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8060")
)

// rig is the views of one session with a turn that runs.
type rig struct {
	*testing.T
	*views.Views
	journal *journal.Journal
	store   *sqlite.Store
	// live is the answer about the running turn.
	live func() (views.Live, bool)
}

func newRig(t *testing.T) *rig {
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "holdfast.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{T: t, store: store, journal: journal.New(journal.Config{Store: store.Sessions, Leases: store.Leases})}
	r.live = func() (views.Live, bool) { return views.Live{}, false }
	r.Views = views.New(store.Sessions, store.Index, r.journal, func(holdfast.SessionID) (views.Live, bool) { return r.live() })
	c := journal.NewChange(session)
	c.Create = &journal.Row{Session: holdfast.Session{
		Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, Trust: holdfast.Untrusted, Runtime: "native",
		Model: "scripted", Mode: holdfast.ModeDefault, Title: "a title", Tags: []string{},
		CreatedAt: time.UnixMilli(1).UTC(), LastActiveAt: time.UnixMilli(1).UTC(),
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x"}}}
	r.commit(c)
	c = journal.NewChange(session)
	c.Turns = []journal.TurnChange{
		{ID: turn, To: holdfast.TurnQueued, Number: 1, MessageSeq: 2}, {ID: next, To: holdfast.TurnQueued, Number: 2, MessageSeq: 3},
	}
	c.Events = []journal.Draft{
		{Type: holdfast.EventTurnQueued, Turn: turn, Data: said("first")}, {Type: holdfast.EventTurnQueued, Turn: next, Data: said("second")},
	}
	r.commit(c)
	c = journal.NewChange(session)
	c.Turns = []journal.TurnChange{{ID: turn, From: holdfast.TurnQueued, To: holdfast.TurnRunning}}
	c.Events = []journal.Draft{{Type: holdfast.EventTurnStarted, Turn: turn, Data: struct{}{}}}
	r.commit(c)
	return r
}

func said(text string) holdfast.UserMessage {
	return holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}}
}

func (r *rig) commit(c journal.Change) {
	r.Helper()
	if _, err := r.journal.Commit(context.Background(), c); err != nil {
		r.Fatal(err)
	}
}

var spent = holdfast.Spent{Usage: holdfast.Usage{InputTokens: 10, CostMicroUSD: 500_000}, Calls: 2, DurationMS: 7}

// end ends the running turn, which used up spent.
func (r *rig) end() {
	r.Helper()
	c := journal.NewChange(session)
	c.Spent = spent
	c.Spent.Turns = 1
	c.Turns = []journal.TurnChange{{ID: turn, From: holdfast.TurnRunning, To: holdfast.TurnCompleted, EndSeq: 5}}
	c.Events = []journal.Draft{{Type: holdfast.EventTurnCompleted, Turn: turn, Data: holdfast.TurnEnded{Result: "done", Usage: spent.Usage}}}
	r.commit(c)
}

// TestUsageCountsATurnOnce: what a turn used up is counted once while it runs, when it ends between
// two reads, and when it has ended.
func TestUsageCountsATurnOnce(t *testing.T) {
	running := func() (views.Live, bool) {
		return views.Live{Turn: turn, Spent: spent, Reserved: holdfast.Usage{OutputTokens: 3}}, true
	}
	for name, of := range map[string]struct {
		prepare func(r *rig)
		running bool
	}{
		"runs": {func(r *rig) { r.live = running }, true},
		"ends meanwhile": {func(r *rig) {
			r.live = func() (views.Live, bool) { r.end(); return running() }
		}, false},
		"has ended": {func(r *rig) { r.end() }, false},
	} {
		r := newRig(t)
		of.prepare(r)
		got, err := r.Usage(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		if got.CostUSD == nil || *got.CostUSD != 0.5 {
			t.Errorf("%s: the cost is %v, want 0.5", name, got.CostUSD)
		}
		if of.running != (got.Running != nil) || of.running != (got.Reserved != nil) {
			t.Errorf("%s: running %v, reserved %v", name, got.Running, got.Reserved)
		}
		sum := got.Usage
		if got.Running != nil {
			sum = sum.Add(got.Running.Usage)
		}
		if diff := cmp.Diff(spent.Usage, sum); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestAnUnknownPriceIsNoCost: the cost of a session with a call of unknown price is not known.
func TestAnUnknownPriceIsNoCost(t *testing.T) {
	r := newRig(t)
	r.live = func() (views.Live, bool) {
		return views.Live{Turn: turn, Spent: holdfast.Spent{Usage: holdfast.Usage{UnpricedCalls: 1}}}, true
	}
	if got, err := r.Usage(t.Context(), session); err != nil || got.CostUSD != nil {
		t.Errorf("%v, %v", got.CostUSD, err)
	}
}

// TestTurnsAreShownFromTheLog: a turn has the text of its message, its place in the queue, and the
// result that its end recorded.
func TestTurnsAreShownFromTheLog(t *testing.T) {
	r := newRig(t)
	second, err := r.Turn(t.Context(), session, next)
	if err != nil || second.Text != "second" || second.QueuePosition != 1 || second.Usage != nil {
		t.Errorf("the queued turn: %+v, %v", second, err)
	}
	r.end()
	all, err := r.Turns(t.Context(), session, 0, 0)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if first := all[0]; first.Text != "first" || first.Result != "done" || first.Usage == nil || first.QueuePosition != 0 {
		t.Errorf("the turn that ended: %+v", first)
	}
}

// TestWhatTheRunningTurnWaitsFor is shown with the session, and not stored.
func TestWhatTheRunningTurnWaitsFor(t *testing.T) {
	r := newRig(t)
	at := time.UnixMilli(5).UTC()
	r.live = func() (views.Live, bool) { return views.Live{Turn: turn, ParkedUntil: &at, Questions: 2}, true }
	one, err := r.Session(t.Context(), session)
	page, err2 := r.List(t.Context(), holdfast.SessionFilter{})
	if err != nil || err2 != nil || len(page.Sessions) != 1 {
		t.Fatal(err, err2, page)
	}
	for _, s := range []holdfast.Session{one, page.Sessions[0]} {
		if s.PendingApprovals != 2 || s.ParkedUntil == nil || !s.ParkedUntil.Equal(at) {
			t.Errorf("%+v", s)
		}
	}
	row, err := r.store.Sessions.Row(t.Context(), session)
	if err != nil || row.PendingApprovals != 0 || row.ParkedUntil != nil {
		t.Errorf("stored: %+v, %v", row.Session, err)
	}
}

// TestEventsByType: a page is filled with the events of the types, and ends where the log ends.
func TestEventsByType(t *testing.T) {
	r := newRig(t)
	filter := holdfast.EventFilter{Types: []holdfast.EventType{holdfast.EventTurnQueued}, Limit: 1}
	for _, want := range []int64{2, 3} {
		evs, err := r.Events(t.Context(), session, filter)
		if err != nil || len(evs) != 1 || evs[0].Seq != want {
			t.Fatalf("after #%d: %v, %v", filter.After, evs, err)
		}
		filter.After = evs[0].Seq
	}
	if evs, err := r.Events(t.Context(), session, filter); err != nil || len(evs) != 0 {
		t.Errorf("at the end: %v, %v", evs, err)
	}
	for _, bad := range []holdfast.EventFilter{{After: 99}, {After: -1}, {Limit: 1001}, {Limit: -1}} {
		if _, err := r.Events(t.Context(), session, bad); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := r.Events(t.Context(), unknown, holdfast.EventFilter{}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("an unknown session: %v", err)
	}
}
