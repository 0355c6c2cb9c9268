package storetest

import (
	"fmt"
	"maps"
	"slices"

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

// model is what a store should hold, in maps.
type model struct {
	e *env
	// order is of creation: what rapid draws must not depend on random ids.
	order    []holdfast.SessionID
	sessions map[holdfast.SessionID]*session
	keys     map[string]journal.Key
}

type session struct {
	status    holdfast.Status
	revision  int64
	title     string
	log       []string
	turns     []turn
	completed int64
}

type turn struct {
	id     holdfast.TurnID
	status holdfast.TurnStatus
}

func (m *model) clone(s *session) *session {
	c := *s
	c.log, c.turns = slices.Clone(s.log), slices.Clone(s.turns)
	return &c
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
	c.Create.Status = rapid.SampledFrom(holdfast.Statuses()).Draw(t, "status")
	c.Events = nil
	m.fill(t, &c)
	m.run(t, c)
}

func (m *model) change(t *rapid.T) {
	c := journal.NewChange(m.pick(t))
	m.fill(t, &c)
	m.run(t, c)
}

// fill draws the parts of a change, most of them acceptable.
func (m *model) fill(t *rapid.T, c *journal.Change) {
	s := m.sessions[c.Session]
	if s == nil {
		s = &session{revision: 1}
	}
	off := rapid.SampledFrom([]int64{0, 0, 0, 0, 1})
	if rapid.Bool().Draw(t, "cas revision") {
		c.Revision = s.revision + off.Draw(t, "off")
	}
	if rapid.Bool().Draw(t, "cas seq") {
		c.LastSeq = int64(len(s.log)) + off.Draw(t, "off")
	}
	if rapid.Bool().Draw(t, "title?") {
		title := rapid.StringN(0, 8, -1).Filter(clean).Draw(t, "title")
		c.Set = &journal.RowPatch{Title: &title}
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "steps") {
		c.Status = append(c.Status, rapid.SampledFrom(holdfast.Statuses()).Draw(t, "step"))
	}
	next := int64(len(s.turns)) + 1
	for range rapid.SampledFrom([]int{0, 1, 1, 2}).Draw(t, "turns") {
		tc := journal.TurnChange{To: rapid.SampledFrom(turnStatuses).Draw(t, "to")}
		if len(s.turns) > 0 && rapid.Bool().Draw(t, "move") {
			old := s.turns[rapid.IntRange(0, len(s.turns)-1).Draw(t, "turn")]
			tc.ID, tc.From = old.id, old.status
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
	if rapid.IntRange(0, 3).Draw(t, "key?") == 0 {
		c.Key = &journal.Key{
			Scope: "turn:" + string(c.Session), Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
			Hash: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "hash"), Ref: m.e.newID(),
		}
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

// run applies a change to both and compares the answers.
func (m *model) run(t *rapid.T, c journal.Change) {
	want, dup, next := m.expect(c)
	done, err := m.e.Store.Commit(m.e.ctx, encode(m.e.T, c))
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
	if got := next.describe(done.Row); got != "" {
		t.Fatalf("committed row: %s", got)
	}
	for i, ev := range done.Events {
		if want := int64(len(next.log)-len(done.Events)+i) + 1; ev.Seq != want {
			t.Fatalf("event %d is #%d, the model says #%d", i, ev.Seq, want)
		}
	}
}

// expect is the model's answer: a kind of error, or a duplicate's ref, or the
// session as it is afterwards.
func (m *model) expect(c journal.Change) (holdfast.Kind, string, *session) {
	if c.Key != nil {
		if k, ok := m.keys[c.Key.Scope+" "+c.Key.Value]; ok {
			if k.Hash != c.Key.Hash {
				return holdfast.KindConflict, "", nil
			}
			return "", k.Ref, nil
		}
	}
	old := m.sessions[c.Session]
	var s *session
	switch {
	case c.Create != nil && old != nil:
		return holdfast.KindConflict, "", nil
	case c.Create != nil:
		s = &session{status: c.Create.Status, revision: 1, title: c.Create.Title}
	case old == nil:
		return holdfast.KindNotFound, "", nil
	default:
		s = m.clone(old)
	}
	if c.Revision != 0 && c.Revision != s.revision || c.LastSeq != -1 && c.LastSeq != int64(len(s.log)) {
		return holdfast.KindConflict, "", nil
	}
	for _, st := range c.Status {
		if !s.status.CanBecome(st) {
			return holdfast.KindConflict, "", nil
		}
		s.status = st
	}
	if c.Set != nil {
		s.title = *c.Set.Title
	}
	for _, tc := range c.Turns {
		if kind := s.turnChange(tc); kind != "" {
			return kind, "", nil
		}
	}
	if c.Create == nil && (len(c.Status) > 0 || c.Set != nil || len(c.Turns) > 0) {
		s.revision++
	}
	for _, d := range c.Events {
		s.log = append(s.log, fmt.Sprint(d.Data))
	}
	return "", "", s
}

func (s *session) turnChange(tc journal.TurnChange) holdfast.Kind {
	if tc.From == "" {
		if tc.Number != int64(len(s.turns))+1 {
			return holdfast.KindConflict
		}
		s.turns = append(s.turns, turn{tc.ID, tc.To})
		return ""
	}
	i := slices.IndexFunc(s.turns, func(t turn) bool { return t.id == tc.ID })
	if i < 0 {
		return holdfast.KindNotFound
	}
	if s.turns[i].status != tc.From || !tc.From.CanBecome(tc.To) {
		return holdfast.KindConflict
	}
	s.turns[i].status = tc.To
	if tc.To == holdfast.TurnCompleted {
		s.completed++
	}
	return ""
}

// describe says how a row differs from the model; empty when it does not.
func (s *session) describe(r journal.Row) string {
	got := fmt.Sprint(r.Status, r.Revision, r.Title, r.LastSeq, r.LastTurn, r.CompletedTurns)
	want := fmt.Sprint(s.status, s.revision, s.title, int64(len(s.log)), int64(len(s.turns)), s.completed)
	if got == want {
		return ""
	}
	return got + ", the model says " + want
}

func (m *model) delete(t *rapid.T) {
	id := m.pick(t)
	s := m.sessions[id]
	var want holdfast.Kind
	switch {
	case s == nil:
		want = holdfast.KindNotFound
	case s.status != holdfast.StatusEnded:
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

// check compares one session's row, which the invariant of every step needs.
func (m *model) check(t *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	id := m.order[rapid.IntRange(0, len(m.order)-1).Draw(t, "checked")]
	r, err := m.e.Store.Row(m.e.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if d := m.sessions[id].describe(r); d != "" {
		t.Fatalf("stored row: %s", d)
	}
}

// checkAll compares everything.
func (m *model) checkAll(t *rapid.T) {
	for id, s := range m.sessions {
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
		var got []turn
		for _, tr := range turns {
			got = append(got, turn{tr.ID, tr.Status})
		}
		if !slices.Equal(got, s.turns) {
			t.Fatalf("turns %v, the model says %v", got, s.turns)
		}
	}
}
