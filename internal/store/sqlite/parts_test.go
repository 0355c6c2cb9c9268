package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

// TestMessagesOfTheOldSchemaHaveParts: before schema 18 a message was a text, and a part of an
// answer had no type. Messages outlive the migration, and the way back; a damaged one stays
// damaged.
func TestMessagesOfTheOldSchemaHaveParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ typ, old, now string }{
		{"message.user", `{"text":"<a> & \"b\" ü","steer":true}`, `{"parts":[{"type":"text","text":"<a> & \"b\" ü"}],"steer":true}`},
		{"turn.queued", `{"number":2,"text":"c","position":1}`, `{"number":2,"parts":[{"type":"text","text":"c"}],"position":1}`},
		{
			"message.assistant",
			`{"parts":[{"thinking":true},{"text":"d"},{"tool_use_id":"u"}],"seen":3,"stop_reason":"tool_use","model":"m","usage":{"input_tokens":1,"output_tokens":2}}`,
			`{"parts":[{"type":"thinking"},{"type":"text","text":"d"},{"type":"tool_use","tool_use_id":"u"}],"seen":3,"stop_reason":"tool_use","model":"m","usage":{"input_tokens":1,"output_tokens":2}}`,
		},
		{"notice", `{"code":"x","text":"y"}`, `{"code":"x","text":"y"}`},
		{"message.user", `{"text":"damaged"}`, `{"parts":[{"type":"text","text":"damaged"}]}`},
	}
	first := int64(0)
	for i, c := range cases {
		ch := journal.NewChange(testID(1))
		ch.Events = []journal.Draft{{Type: holdfast.EventType(c.typ), Turn: "t", Agent: []holdfast.ChildID{"", "a1"}[min(i, 1)]}}
		if c.typ == "turn.queued" {
			ch.Events[0].Agent = ""
		}
		done, err := s.Commit(t.Context(), journal.Encoded{Change: ch, Data: [][]byte{[]byte(c.now)}})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = done.Events[0].Seq
		}
	}
	damaged := first + int64(len(cases)) - 1
	check := func(s *opened) {
		t.Helper()
		events, err := s.Events(t.Context(), testID(1), first-1, 100)
		if err != nil || len(events) != len(cases) {
			t.Fatalf("%d events, %v", len(events), err)
		}
		for i, e := range events {
			if broken := e.Type == holdfast.EventDamaged; broken != (e.Seq == damaged) || !broken && string(e.Data) != cases[i].now {
				t.Errorf("#%d is %s %s", e.Seq, e.Type, e.Data)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	db := plain(t, path)
	p, err := schema.Of(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE events SET turn = 'x' WHERE id = ?`, 1<<32|damaged); err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), 17); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases[:len(cases)-1] {
		var was string
		if err := db.QueryRowContext(t.Context(), `SELECT data FROM events WHERE id = ?`, 1<<32|(first+int64(i))).Scan(&was); err != nil || was != c.old {
			t.Errorf("%s was %s, %v", c.typ, was, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	check(openAt(t, Config{Path: path, Warn: func(error) {}}))
	v, err := Verify(t.Context(), path)
	if err != nil || len(v.Problems) != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}
