package storetest

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

var modelCases = []testCase{
	{"behaves like the simple model under any sequence of changes", func(e *env) {
		rapid.Check(e.T, func(t *rapid.T) {
			m := &model{e: e, sessions: map[holdfast.SessionID]*session{}, keys: map[string]journal.Key{}}
			t.Repeat(map[string]func(*rapid.T){
				"create": m.create, "change": m.change, "delete": m.delete, "": m.check,
			})
			m.checkAll(t)
		})
	}},
}

// model holds what the store under test should contain: the result of Encoded.Plan for each change,
// and of each deletion.
type model struct {
	e *env
	// order lists the sessions as they were created, so that the choices of rapid do not depend on
	// random ids.
	order    []holdfast.SessionID
	sessions map[holdfast.SessionID]*session
	keys     map[string]journal.Key
}

type session struct {
	row   journal.Row
	log   []string
	turns []journal.TurnRow
	// taken are the checkpoints in the order in which they were stored.
	taken []taken
}

// taken is a checkpoint of the model.
type taken struct {
	id        holdfast.CheckpointID
	seq       int64
	abandoned bool
}

// state returns the journal.State, with the session's row and turns, that Plan needs to decide a change.
func (s *session) state(token journal.Token) journal.State {
	if s == nil {
		return journal.State{Token: token}
	}
	known := make(map[holdfast.TurnID]journal.TurnRow, len(s.turns))
	for _, t := range s.turns {
		known[t.ID] = t
	}
	return journal.State{Token: token, Row: &s.row, Turns: known}
}

// after returns the session with the change c applied as planned; s is nil for a new session.
func (s *session) after(c journal.Encoded, p journal.Plan) *session {
	next := &session{row: p.Row}
	if s != nil {
		next.log, next.turns, next.taken = slices.Clone(s.log), slices.Clone(s.turns), slices.Clone(s.taken)
	}
	for _, d := range c.Data {
		next.log = append(next.log, string(d))
	}
	for _, t := range p.Turns {
		if t.New {
			next.turns = append(next.turns, t.TurnRow)
			continue
		}
		i := slices.IndexFunc(next.turns, func(old journal.TurnRow) bool { return old.ID == t.ID })
		next.turns[i] = t.TurnRow
	}
	if f := c.Files; f != nil {
		if f.Checkpoint != nil {
			next.taken = append(next.taken, taken{id: f.Checkpoint.ID, seq: f.Checkpoint.Seq})
		}
		for i := range next.taken {
			if f.Rewind != nil {
				next.taken[i].abandoned = !inside(f.Rewind.Branch, next.taken[i].seq)
			}
		}
	}
	return next
}

// inside reports whether an event is in one of the spans.
func inside(branch []journal.Span, seq int64) bool {
	return slices.ContainsFunc(branch, func(s journal.Span) bool { return s.After < seq && seq <= s.Upto })
}

// newest returns the id of the matching checkpoint with the highest event number, of equals the last; empty for none.
func (s *session) newest(match func(taken) bool) (id holdfast.CheckpointID) {
	seq := int64(0)
	for _, cp := range s.taken {
		if match(cp) && cp.seq >= seq {
			id, seq = cp.id, cp.seq
		}
	}
	return id
}

func (m *model) pick(t *rapid.T) holdfast.SessionID {
	if len(m.order) == 0 || rapid.IntRange(0, 19).Draw(t, "unknown") == 0 {
		return holdfast.SessionID(m.e.newID())
	}
	return m.order[rapid.IntRange(0, len(m.order)-1).Draw(t, "session")]
}

func (m *model) create(t *rapid.T) {
	id := holdfast.SessionID(m.e.newID())
	if rapid.IntRange(0, 9).Draw(t, "again") == 0 {
		id = m.pick(t)
	}
	c := creation(id)
	c.Create.Status = rapid.SampledFrom(holdfast.Words[holdfast.Status]()).Draw(t, "status")
	c.Events = nil
	m.fill(t, &c)
	m.run(t, c)
}

func (m *model) change(t *rapid.T) {
	c := journal.NewChange(m.pick(t))
	m.fill(t, &c)
	m.run(t, c)
}

// fill draws random parts for the change c. Most of them are valid, some must be refused.
func (m *model) fill(t *rapid.T, c *journal.Change) {
	s := m.sessions[c.Session]
	if s == nil {
		s = &session{row: journal.Row{Session: holdfast.Session{Revision: 1}}}
	}
	off := rapid.SampledFrom([]int64{0, 0, 0, 0, 1})
	if rapid.Bool().Draw(t, "cas revision") {
		c.Revision = s.row.Revision + off.Draw(t, "off")
	}
	if rapid.Bool().Draw(t, "cas seq") {
		c.LastSeq = int64(len(s.log)) + off.Draw(t, "off")
	}
	if rapid.Bool().Draw(t, "title?") {
		title := rapid.StringN(0, 8, -1).Filter(clean).Draw(t, "title")
		c.Set = &journal.RowPatch{Title: &title}
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "steps") {
		c.Status = append(c.Status, rapid.SampledFrom(holdfast.Words[holdfast.Status]()).Draw(t, "step"))
	}
	next := int64(len(s.turns)) + 1
	for range rapid.SampledFrom([]int{0, 1, 1, 2}).Draw(t, "turns") {
		tc := journal.TurnChange{To: rapid.SampledFrom(turnStatuses).Draw(t, "to")}
		if len(s.turns) > 0 && rapid.Bool().Draw(t, "move") {
			old := s.turns[rapid.IntRange(0, len(s.turns)-1).Draw(t, "turn")]
			tc.ID, tc.From = old.ID, old.Status
		} else {
			tc.ID, tc.Number = holdfast.TurnID(m.e.newID()), next+off.Draw(t, "off")
			tc.To = rapid.SampledFrom(turnStatuses[:2]).Draw(t, "first")
			next++
		}
		c.Turns = append(c.Turns, tc)
	}
	for i := range rapid.IntRange(0, 40).Draw(t, "events") {
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventNotice, Data: i})
	}
	if rapid.IntRange(0, 2).Draw(t, "files?") == 0 {
		c.Files = m.files(t, c.Session, int64(len(s.log)+len(c.Events)), s.row.LastTurn)
	}
	if rapid.IntRange(0, 3).Draw(t, "key?") == 0 {
		c.Key = &journal.Key{
			Scope: "turn:" + string(c.Session), Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
			Hash: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "hash"), Ref: m.e.newID(),
		}
	}
}

// files draws a checkpoint, a rewind, both or neither for a session whose log ends at the event end after the change.
func (m *model) files(t *rapid.T, id holdfast.SessionID, end, turns int64) *journal.FilesChange {
	f := &journal.FilesChange{}
	if rapid.IntRange(0, 2).Draw(t, "checkpoint?") > 0 && end > 0 {
		cp := m.e.checkpoint(id, rapid.Int64Range(max(1, end-10), end).Draw(t, "at"))
		f.Checkpoint, f.Packs = cp, packs(rapid.IntRange(0, 5).Draw(t, "pack"))
	}
	if rapid.IntRange(0, 3).Draw(t, "rewind?") == 0 {
		f.Rewind = &journal.Rewind{Completed: rapid.Int64Range(0, turns).Draw(t, "completed")}
		for after := int64(0); rapid.IntRange(0, 2).Draw(t, "span?") > 0; {
			s := journal.Span{After: after + rapid.Int64Range(0, 20).Draw(t, "after")}
			s.Upto = s.After + rapid.Int64Range(1, 20).Draw(t, "events")
			if s.Upto > end {
				break
			}
			f.Rewind.Branch, after = append(f.Rewind.Branch, s), s.Upto
		}
	}
	return f
}

// checkFiles compares the checkpoints of a session with the model's. It also compares which of them the store
// finds at an event and on a branch.
func (m *model) checkFiles(t *rapid.T, id holdfast.SessionID, s *session) {
	for _, want := range s.taken {
		got, err := m.e.Store.Checkpoint(m.e.ctx, id, want.id)
		if err != nil || got.Seq != want.seq || got.Abandoned != want.abandoned {
			t.Fatalf("checkpoint %+v, %v, the model says %+v", got, err, want)
		}
	}
	if n := len(m.e.all(id, 7)); n != len(s.taken) {
		t.Fatalf("%d checkpoints, the model says %d", n, len(s.taken))
	}
	seq := rapid.Int64Range(0, int64(len(s.log))).Draw(t, "event")
	want := s.newest(func(cp taken) bool { return cp.seq <= seq && !cp.abandoned })
	if got := m.e.at(id, seq); got != want {
		t.Fatalf("checkpoint %q at #%d, the model says %q", got, seq, want)
	}
	branch := []journal.Span{{Upto: seq / 2}, {After: seq/2 + 5, Upto: seq/2 + 15}}
	want = s.newest(func(cp taken) bool { return inside(branch, cp.seq) })
	if got, _, err := m.e.Store.Within(m.e.ctx, id, branch); err != nil || got.ID != want {
		t.Fatalf("checkpoint %q, %v on %v, the model says %q", got.ID, err, branch, want)
	}
}

func clean(s string) bool {
	for _, r := range s {
		if r == 0 {
			return false
		}
	}
	return true
}

// run applies a change to the store and to the model, and compares the results.
func (m *model) run(t *rapid.T, change journal.Change) {
	c := m.e.leased(change)
	want, dup, next := m.expect(c)
	done, err := m.e.Store.Commit(m.e.ctx, c)
	if holdfast.KindOf(err) != want {
		t.Fatalf("got %v (%s), the model says %q", err, holdfast.KindOf(err), want)
	}
	if err != nil {
		return
	}
	if done.Duplicate != dup {
		t.Fatalf("duplicate %q, the model says %q", done.Duplicate, dup)
	}
	if dup != "" {
		return
	}
	if c.Key != nil {
		m.keys[c.Key.Scope+" "+c.Key.Value] = *c.Key
	}
	if m.sessions[c.Session] == nil {
		m.order = append(m.order, c.Session)
	}
	m.sessions[c.Session] = next
	m.compare(t, "committed", done.Row)
	for i, ev := range done.Events {
		if want := int64(len(next.log)-len(done.Events)+i) + 1; ev.Seq != want {
			t.Fatalf("event %d is #%d, the model says #%d", i, ev.Seq, want)
		}
	}
}

// expect returns the model's result of a change: the kind of its error, or the ref of a repeated
// idempotency key, or the session after the change.
func (m *model) expect(c journal.Encoded) (holdfast.Kind, string, *session) {
	if c.Key != nil {
		if k, ok := m.keys[c.Key.Scope+" "+c.Key.Value]; ok {
			if k.Hash != c.Key.Hash {
				return holdfast.KindConflict, "", nil
			}
			return "", k.Ref, nil
		}
	}
	old := m.sessions[c.Session]
	plan, err := c.Plan(old.state(c.Token))
	if err != nil {
		return holdfast.KindOf(err), "", nil
	}
	return "", "", old.after(c, plan)
}

// compare compares a row of the store with the model's, except for the session's number and
// times, which the store may set.
func (m *model) compare(t *rapid.T, what string, got journal.Row) {
	want := m.sessions[got.ID].row
	for _, r := range []*journal.Row{&got, &want} {
		r.Number, r.CreatedAt, r.LastActiveAt = 0, time.Time{}, time.Time{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s %+v, the model says %+v", what, got, want)
	}
}

func (m *model) delete(t *rapid.T) {
	id := m.pick(t)
	s := m.sessions[id]
	var want holdfast.Kind
	switch {
	case s == nil:
		want = holdfast.KindNotFound
	case s.row.Status != holdfast.StatusEnded:
		want = holdfast.KindConflict
	}
	if err := m.e.Store.DeleteSession(m.e.ctx, id); holdfast.KindOf(err) != want {
		t.Fatalf("delete: %v, the model says %q", err, want)
	}
	if want == "" {
		delete(m.sessions, id)
		m.order = slices.DeleteFunc(m.order, func(o holdfast.SessionID) bool { return o == id })
		maps.DeleteFunc(m.keys, func(k string, _ journal.Key) bool {
			return k == "turn:"+string(id)+" a" || k == "turn:"+string(id)+" b"
		})
	}
}

// check compares the row of one random session. rapid calls it after every step.
func (m *model) check(t *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	id := m.order[rapid.IntRange(0, len(m.order)-1).Draw(t, "checked")]
	r, err := m.e.Store.Row(m.e.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	m.compare(t, "stored", r)
}

// checkAll compares the logs, turns and checkpoints of all sessions with the model's.
func (m *model) checkAll(t *rapid.T) {
	for _, id := range m.order {
		s := m.sessions[id]
		m.checkFiles(t, id, s)
		log := m.e.log(id)
		if len(log) != len(s.log) {
			t.Fatalf("%d events, the model says %d", len(log), len(s.log))
		}
		for i := range log {
			if string(log[i].Data) != s.log[i] {
				t.Fatalf("event #%d is %s, the model says %s", i+1, log[i].Data, s.log[i])
			}
		}
		turns, err := m.e.Store.Turns(m.e.ctx, id, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		same := slices.EqualFunc(turns, s.turns, func(a, b journal.TurnRow) bool {
			return a.ID == b.ID && a.Session == b.Session && a.Number == b.Number && a.Status == b.Status && a.MessageSeq == b.MessageSeq
		})
		if !same {
			t.Fatalf("turns %+v, the model says %+v", turns, s.turns)
		}
	}
}
