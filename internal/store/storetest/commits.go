package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

var createCases = []testCase{
	{"answers the row and its events as they are read later", func(e *env) {
		id := holdfast.SessionID(e.newID())
		c := creation(id)
		c.Create.Env = map[string]string{"TOKEN": "secret", "A": "b"}
		c.Create.Given.SealedEnv = []byte{0, 1, 255}
		bounds := journal.Bounds{
			Network: []string{}, Limits: map[string]string{"pids": "64"}, Rules: map[string][]string{"deny": {"Read(/workspace/secrets/**)", "Bash"}},
		}
		c.Create.Given.Bounds = bounds.Clone()
		c.Create.FilesSeeded, c.Create.HadFiles, c.Create.BoxUID = true, true, 4_000_000_000
		c.Create.Source = &holdfast.Source{From: "dir here"}
		done := e.commit(c)
		want := *row()
		want.ID, want.Number, want.Revision, want.LastSeq = id, done.Row.Number, 1, 1
		want.Env = map[string]string{"TOKEN": "***", "A": "***"}
		want.Given.Bounds = &bounds
		want.Given.SealedEnv, want.FilesSeeded, want.HadFiles, want.BoxUID = []byte{0, 1, 255}, true, true, 4_000_000_000
		want.Source = &holdfast.Source{From: "dir here"}
		if !reflect.DeepEqual(done.Row, want) {
			e.Fatalf("committed %+v\nwant %+v", done.Row, want)
		}
		if got := e.row(id); !reflect.DeepEqual(got, want) {
			e.Fatalf("stored %+v\nwant %+v", got, want)
		}
		if got := e.log(id); !reflect.DeepEqual(got, done.Events) {
			e.Fatalf("stored %+v\nanswered %+v", got, done.Events)
		}
	}},
	{"numbers sessions upwards and never again", func(e *env) {
		a, b := e.row(e.newSession()), e.row(e.newSession())
		if a.Number < 1 || b.Number <= a.Number {
			e.Fatalf("numbers %d, %d", a.Number, b.Number)
		}
		e.move(b.ID, holdfast.StatusEnded)
		e.ok(e.Store.DeleteSession(e.ctx, b.ID))
		if c := e.row(e.newSession()); c.Number <= b.Number {
			e.Fatalf("number %d of a deleted session came back as %d", b.Number, c.Number)
		}
	}},
	{"refuses an id that exists, whatever else the change says", func(e *env) {
		id := e.newSession()
		e.refuse(creation(id), holdfast.KindConflict, string(id))
	}},
	{"takes a first turn, a walk and a patch in the same change", func(e *env) {
		id := holdfast.SessionID(e.newID())
		c := creation(id)
		c.Status = []holdfast.Status{holdfast.StatusPaused}
		c.Turns = []journal.TurnChange{{ID: holdfast.TurnID(e.newID()), To: holdfast.TurnRunning, Number: 1, MessageSeq: 1}}
		title := "patched"
		c.Set = &journal.RowPatch{Title: &title}
		r := e.commit(c).Row
		equal(e, "status", r.Status, holdfast.StatusPaused)
		equal(e, "title", e.row(id).Title, "patched")
		equal(e, "last turn", e.row(id).LastTurn, 1)
		equal(e, "revision", e.row(id).Revision, 1)
	}},
	{"fills in times that are missing", func(e *env) {
		id := holdfast.SessionID(e.newID())
		c := creation(id)
		c.Create.CreatedAt, c.Create.LastActiveAt = time.Time{}, time.Time{}
		e.commit(c)
		r := e.row(id)
		if d := time.Since(r.CreatedAt); d < 0 || d > time.Hour || !r.LastActiveAt.Equal(r.CreatedAt) {
			e.Fatalf("created %s, active %s", r.CreatedAt, r.LastActiveAt)
		}
	}},
	{"refuses a status that does not exist", func(e *env) {
		for _, st := range []holdfast.Status{"", "ACTIVE", "sleeping"} {
			c := creation(holdfast.SessionID(e.newID()))
			c.Create.Status = st
			e.refuse(c, holdfast.KindInvalid, fmt.Sprintf("%q", st))
		}
	}},
	{"refuses a row for another session", func(e *env) {
		c := creation(holdfast.SessionID(e.newID()))
		c.Create.ID = holdfast.SessionID(e.newID())
		e.refuse(c, holdfast.KindInvalid, string(c.Create.ID))
	}},
	{"refuses an event of a child agent that cannot be one", func(e *env) {
		id := e.newSession()
		for _, d := range []journal.Draft{
			{Type: holdfast.EventNotice, Agent: "a/b"}, {Type: holdfast.EventTurnCompleted, Agent: "a"}, {Type: holdfast.EventSessionPaused, Agent: "a"},
		} {
			c := journal.NewChange(id)
			c.Events = []journal.Draft{d}
			e.refuse(c, holdfast.KindInvalid, string(d.Agent))
		}
	}},
	{"refuses a change without a session", func(e *env) {
		_, err := e.try(creation(""))
		e.isKind(err, holdfast.KindInvalid)
	}},
}

var commitCases = []testCase{
	{"numbers events densely and keeps them as they are", func(e *env) {
		id := e.newSession()
		for i := range 20 {
			c := journal.NewChange(id)
			c.Events = events(i % 4)
			for j := range c.Events {
				c.Events[j].Turn = holdfast.TurnID("turn-" + num(i))
				c.Events[j].Agent = holdfast.ChildID([]string{"", "child-" + num(i)}[j%2])
			}
			done := e.commit(c)
			equal(e, "events", len(done.Events), i%4)
			equal(e, "last seq", done.Row.LastSeq, e.row(id).LastSeq)
		}
		log := e.log(id)
		equal(e, "events", len(log), 31)
		equal(e, "turn", log[30].Turn, "turn-19")
		equal(e, "child agents", log[30].Agent+log[29].Agent, "child-19")
		equal(e, "data", string(log[30].Data), `{"i":2}`)
		if log[30].Time.Location() != time.UTC || log[30].Time.Nanosecond()%1e6 != 0 {
			e.Fatalf("time %v is not UTC in milliseconds", log[30].Time)
		}
	}},
	{"refuses an unknown session", func(e *env) {
		c := journal.NewChange(holdfast.SessionID(e.newID()))
		c.Events = events(1)
		e.refuse(c, holdfast.KindNotFound, string(c.Session))
	}},
	{"compares the revision", func(e *env) {
		id := e.newSession()
		title := "x"
		for _, rev := range []int64{2, 7, -1} {
			c := journal.NewChange(id)
			c.Revision, c.Set, c.Events = rev, &journal.RowPatch{Title: &title}, events(1)
			e.refuse(c, holdfast.KindConflict, "revision 1", num(int(rev)))
		}
		c := journal.NewChange(id)
		c.Revision, c.Set = 1, &journal.RowPatch{Title: &title}
		equal(e, "revision", e.commit(c).Row.Revision, 2)
		e.refuse(c, holdfast.KindConflict, "revision 2")
	}},
	{"compares the newest sequence number, 0 included", func(e *env) {
		id := holdfast.SessionID(e.newID())
		c := creation(id)
		c.Events = nil
		e.commit(c)
		first := journal.NewChange(id)
		first.LastSeq, first.Events = 0, events(2)
		e.commit(first)
		e.refuse(first, holdfast.KindConflict, "#2", "#0")
		for _, seq := range []int64{1, 3} {
			first.LastSeq = seq
			e.refuse(first, holdfast.KindConflict, "#"+num(int(seq)))
		}
		first.LastSeq = 2
		equal(e, "last seq", e.commit(first).Row.LastSeq, 4)
	}},
	{"raises the revision with the record, not with the log", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Events = events(3)
		equal(e, "after events", e.commit(c).Row.Revision, 1)
		e.move(id, holdfast.StatusPaused)
		equal(e, "after a status", e.row(id).Revision, 2)
		c = journal.NewChange(id)
		c.Turns = []journal.TurnChange{{ID: holdfast.TurnID(e.newID()), To: holdfast.TurnQueued, Number: 1}}
		equal(e, "after a turn", e.commit(c).Row.Revision, 3)
		yes := true
		c = journal.NewChange(id)
		c.Set = &journal.RowPatch{HadFiles: &yes}
		equal(e, "after a field", e.commit(c).Row.Revision, 4)
	}},
	{"patches the fields that are named and no other", func(e *env) {
		id := e.newSession()
		title, model, errText, yes, uid := "T", "M", "E", true, uint32(4_000_000_000)
		mode, trust, tags := holdfast.ModePlan, holdfast.Trusted, []string{"a", "b", "a"}
		source := holdfast.Source{From: "dir somewhere", Complete: true, Start: "0123"}
		want := e.row(id)
		for _, p := range []struct {
			patch journal.RowPatch
			apply func()
		}{
			{journal.RowPatch{Title: &title}, func() { want.Title = title }},
			{journal.RowPatch{Tags: &tags}, func() { want.Tags = tags }},
			{journal.RowPatch{Mode: &mode}, func() { want.Mode = mode }},
			{journal.RowPatch{Model: &model}, func() { want.Model = model }},
			{journal.RowPatch{Trust: &trust}, func() { want.Trust = trust }},
			{journal.RowPatch{Runtime: &model}, func() { want.Runtime = model }},
			{journal.RowPatch{Error: &errText}, func() { want.Error = errText }},
			{journal.RowPatch{FilesSeeded: &yes}, func() { want.FilesSeeded = yes }},
			{journal.RowPatch{HadFiles: &yes}, func() { want.HadFiles = yes }},
			{journal.RowPatch{Source: &source}, func() { want.Source = &source }},
			{journal.RowPatch{BoxUID: &uid}, func() { want.BoxUID = uid }},
			{journal.RowPatch{Tags: &[]string{}}, func() { want.Tags = []string{} }},
			{journal.RowPatch{}, func() {}},
		} {
			c := journal.NewChange(id)
			c.Set = &p.patch
			p.apply()
			want.Revision++
			if got := e.commit(c).Row; !reflect.DeepEqual(got, want) {
				e.Fatalf("answered %+v\nwant %+v", got, want)
			}
			if got := e.row(id); !reflect.DeepEqual(got, want) {
				e.Fatalf("stored %+v\nwant %+v", got, want)
			}
		}
	}},
	{"walks each pair of statuses as the table says", func(e *env) {
		for _, from := range holdfast.Words[holdfast.Status]() {
			for _, to := range append(holdfast.Words[holdfast.Status](), from) {
				id := holdfast.SessionID(e.newID())
				c := creation(id)
				c.Create.Status = from
				e.commit(c)
				walk := journal.NewChange(id)
				walk.Status, walk.Events = []holdfast.Status{to}, events(1)
				if !from.CanBecome(to) {
					e.refuse(walk, holdfast.KindConflict, string(from), string(to))
					continue
				}
				e.commit(walk)
				equal(e, "status", e.row(id).Status, to)
			}
		}
	}},
	{"checks every step of a walk", func(e *env) {
		id := e.newSession()
		e.move(id, holdfast.StatusPaused, holdfast.StatusStarting, holdfast.StatusActive)
		equal(e, "status", e.row(id).Status, holdfast.StatusActive)
		equal(e, "revision", e.row(id).Revision, 2)
		c := journal.NewChange(id)
		c.Status = []holdfast.Status{holdfast.StatusPaused, holdfast.StatusActive}
		e.refuse(c, holdfast.KindConflict, "paused", "active")
		c.Status = []holdfast.Status{holdfast.StatusPaused, "asleep"}
		e.refuse(c, holdfast.KindInvalid, `"asleep"`)
	}},
	{"writes all of a change or nothing", func(e *env) {
		id := e.newSession()
		turn, title := holdfast.TurnID(e.newID()), "never"
		full := func() journal.Change {
			c := journal.NewChange(id)
			c.Status = []holdfast.Status{holdfast.StatusPaused}
			c.Set = &journal.RowPatch{Title: &title}
			c.Turns = []journal.TurnChange{{ID: turn, To: holdfast.TurnQueued, Number: 1}}
			c.Events = events(3)
			c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k", Hash: "h", Ref: string(turn)}
			return c
		}
		c := full()
		c.Turns = append(c.Turns, journal.TurnChange{ID: holdfast.TurnID(e.newID()), To: holdfast.TurnQueued, Number: 3})
		e.refuse(c, holdfast.KindConflict, "3")
		c = full()
		c.Turns = append(c.Turns, journal.TurnChange{ID: "nobody", From: holdfast.TurnRunning, To: holdfast.TurnFailed})
		e.refuse(c, holdfast.KindNotFound, "nobody")
		c = full()
		c.Status = append(c.Status, holdfast.StatusError)
		e.refuse(c, holdfast.KindConflict)
		c = full()
		c.Events = append(c.Events, journal.Draft{Data: 1})
		e.refuse(c, holdfast.KindInvalid)
		// The valid change is accepted: the refused changes have not stored its idempotency key or anything else.
		equal(e, "duplicate", e.commit(full()).Duplicate, "")
		equal(e, "last seq", e.row(id).LastSeq, 4)
	}},
	{"refuses payloads that are no JSON", func(e *env) {
		id := e.newSession()
		for _, data := range []string{"", "{", "{}{}", "\xff", `"` + "\xff" + `"`, `"` + "\x00" + `"`} {
			c := journal.NewChange(id)
			c.Events = events(1)
			before := e.snapshot(id)
			_, err := e.Store.Commit(e.ctx, journal.Encoded{Change: c, Data: [][]byte{[]byte(data)}})
			e.isKind(err, holdfast.KindInvalid, "notice")
			equal(e, "session", e.snapshot(id), before)
		}
		c := journal.NewChange(id)
		c.Events = events(2)
		_, err := e.Store.Commit(e.ctx, journal.Encoded{Change: c, Data: [][]byte{[]byte("{}")}})
		e.isKind(err, holdfast.KindInternal)
	}},
	{"keeps an event of 10 MB and one of 1 byte", func(e *env) {
		id := e.newSession()
		big := strings.Repeat("ä", 5<<20)
		c := journal.NewChange(id)
		c.Events = []journal.Draft{{Type: holdfast.EventMessageUser, Data: big}, {Type: holdfast.EventNotice, Data: 1}}
		e.commit(c)
		var got string
		log := e.log(id)
		e.ok(log[1].Decode(&got))
		if got != big || string(log[2].Data) != "1" {
			e.Fatalf("%d bytes came back as %d, then %q", len(big), len(got), log[2].Data)
		}
	}},
	{"does nothing for an empty change but answers the row", func(e *env) {
		id := e.newSession()
		before := e.snapshot(id)
		done := e.commit(journal.NewChange(id))
		if !reflect.DeepEqual(done.Row, e.row(id)) || len(done.Events) != 0 {
			e.Fatalf("answered %+v", done)
		}
		equal(e, "session", e.snapshot(id), before)
	}},
	{"gives each answer a row of its own", func(e *env) {
		id := e.newSession()
		done := e.commit(journal.NewChange(id))
		done.Row.Tags[0] = "changed by the caller"
		equal(e, "tag", e.commit(journal.NewChange(id)).Row.Tags[0], "one")
	}},
	{"numbers commits upwards over all sessions, and never again", func(e *env) {
		a, b := e.newSession(), e.newSession()
		last := int64(0)
		next := func(c journal.Change) {
			e.Helper()
			if n := e.commit(c).Number; n <= last {
				e.Fatalf("number %d after %d", n, last)
			} else {
				last = n
			}
		}
		for round := range 3 {
			for _, id := range []holdfast.SessionID{a, b, a} {
				c := journal.NewChange(id)
				c.Events = events(1 + round)
				next(c)
			}
			equal(e, "number without events", e.commit(journal.NewChange(a)).Number, 0)
			c := journal.NewChange(b)
			c.LastSeq, c.Events = 0, events(1)
			e.refuse(c, holdfast.KindConflict)
			c = journal.NewChange(b)
			c.Events, c.Key = events(1), &journal.Key{Scope: "turn:" + string(b), Value: "k" + num(round), Hash: "h", Ref: "r"}
			next(c)
			equal(e, "number of a duplicate", e.commit(c).Number, 0)
			e.Store = e.Reopen(e.T)
		}
		for _, id := range []holdfast.SessionID{a, b} {
			e.move(id, holdfast.StatusEnded)
			e.ok(e.Store.DeleteSession(e.ctx, id))
		}
		e.Store = e.Reopen(e.T)
		next(creation(holdfast.SessionID(e.newID())))
	}},
	{"is on disk when it is answered", func(e *env) {
		id := e.newSession()
		turn := holdfast.TurnID(e.newID())
		c := journal.NewChange(id)
		c.Events = events(50)
		c.Turns = []journal.TurnChange{{ID: turn, To: holdfast.TurnRunning, Number: 1, MessageSeq: 2}}
		c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k", Hash: "h", Ref: string(turn)}
		e.commit(c)
		before, epoch := e.snapshot(id), e.Store.Epoch()
		e.Store = e.Reopen(e.T)
		equal(e, "session", e.snapshot(id), before)
		equal(e, "duplicate", e.commit(c).Duplicate, string(turn))
		if e.Store.Epoch() <= epoch {
			e.Fatalf("epoch %d after %d", e.Store.Epoch(), epoch)
		}
	}},
}

var keyCases = []testCase{
	{"happens once for the same request", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Events = events(1)
		c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k1", Hash: "h1", Ref: "t1"}
		equal(e, "first", e.commit(c).Duplicate, "")
		before := e.snapshot(id)
		c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k1", Hash: "h1", Ref: "t2"}
		done := e.commit(c)
		equal(e, "second", done.Duplicate, "t1")
		equal(e, "events", len(done.Events), 0)
		equal(e, "session", e.snapshot(id), before)
	}},
	{"is known before it is used again, also after a restart", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k1", Hash: "h1", Ref: "t1"}
		ref, err := e.Store.KeyRef(e.ctx, *c.Key)
		e.ok(err)
		equal(e, "a new key", ref, "")
		e.commit(c)
		e.Store = e.Reopen(e.T)
		ref, err = e.Store.KeyRef(e.ctx, journal.Key{Scope: c.Key.Scope, Value: "k1", Hash: "h1"})
		e.ok(err)
		equal(e, "a used key", ref, "t1")
		_, err = e.Store.KeyRef(e.ctx, journal.Key{Scope: c.Key.Scope, Value: "k1", Hash: "h2"})
		e.isKind(err, holdfast.KindConflict, `"k1"`)
		e.move(id, holdfast.StatusEnded)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		ref, err = e.Store.KeyRef(e.ctx, *c.Key)
		e.ok(err)
		equal(e, "the key of a deleted session", ref, "")
	}},
	{"is conflict for another request, quoting the key", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Events = events(1)
		c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k\"1", Hash: "h1", Ref: "t1"}
		e.commit(c)
		c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k\"1", Hash: "h2", Ref: "t1"}
		e.refuse(c, holdfast.KindConflict, `"k\"1"`)
	}},
	{"comes before every other check", func(e *env) {
		id := holdfast.SessionID(e.newID())
		c := creation(id)
		c.Key = &journal.Key{Scope: "session.create", Value: "k", Hash: "h", Ref: string(id)}
		e.commit(c)
		equal(e, "the same create", e.commit(c).Duplicate, string(id))
		other := creation(holdfast.SessionID(e.newID()))
		other.Key = c.Key
		equal(e, "with another id", e.commit(other).Duplicate, string(id))
		_, err := e.Store.Row(e.ctx, other.Session)
		e.isKind(err, holdfast.KindNotFound)
	}},
	{"is unique within its scope only", func(e *env) {
		a, b := e.newSession(), e.newSession()
		for i, id := range []holdfast.SessionID{a, b} {
			c := journal.NewChange(id)
			c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k", Hash: num(i), Ref: "t" + num(i)}
			equal(e, "duplicate", e.commit(c).Duplicate, "")
		}
	}},
	{"is not used up by a refused change", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Key = &journal.Key{Scope: "turn:" + string(id), Value: "k", Hash: "h", Ref: "t"}
		c.Revision = 99
		e.refuse(c, holdfast.KindConflict)
		c.Revision = 0
		equal(e, "duplicate", e.commit(c).Duplicate, "")
	}},
	{"must be complete", func(e *env) {
		id := e.newSession()
		for _, k := range []journal.Key{{Scope: "s", Ref: "r"}, {Value: "v", Ref: "r"}, {Scope: "s", Value: "v"}} {
			c := journal.NewChange(id)
			c.Key = &k
			e.refuse(c, holdfast.KindInvalid)
		}
	}},
}
