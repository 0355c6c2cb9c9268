package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/webhook"
)

// tell returns a change to a session with one event of each given type.
func tell(id holdfast.SessionID, types ...holdfast.EventType) journal.Change {
	c := journal.NewChange(id)
	for i, t := range types {
		c.Events = append(c.Events, journal.Draft{Type: t, Turn: "t", Agent: child(t), Data: map[string]int{"i": i}})
	}
	return c
}

// child returns the child agent to which tell assigns an event of type t; empty for the session itself.
func child(t holdfast.EventType) holdfast.ChildID {
	if t == holdfast.EventToolDenied {
		return "a1"
	}
	return ""
}

// due returns up to 100 deliveries to a webhook that are due within the next hour, without those that an earlier one of the
// same session holds back.
func (e *env) due(hook string) []webhook.Delivery {
	e.Helper()
	out, err := e.Store.Deliveries(e.ctx, hook, time.Now().Add(time.Hour), 100)
	e.ok(err)
	return out
}

// dueAs returns the deliveries of due as text: for each the name of its session and its sequence
// number.
func (e *env) dueAs(hook string, names map[holdfast.SessionID]string) string {
	e.Helper()
	var out []string
	for _, d := range e.due(hook) {
		out = append(out, fmt.Sprintf("%s%d", names[d.Session], d.Seq))
	}
	return strings.Join(out, " ")
}

var outboxCases = []testCase{
	{"holds what was committed for each receiver, also after a restart", func(e *env) {
		id := e.newSession()
		e.commit(tell(id, holdfast.EventNotice, holdfast.EventBoxOOM, holdfast.EventBoxLost))
		e.Store = e.Reopen(e.T)
		ev := e.log(id)[2]
		for _, hook := range []string{"one", "two"} {
			got := e.due(hook)
			if len(got) != 1 || got[0].Hook != hook || got[0].Attempts != 0 || !got[0].Created.Equal(ev.Time) {
				e.Fatalf("%s: %+v", hook, got)
			}
			g := got[0].Event
			if g.Session != id || g.Seq != ev.Seq || g.Type != ev.Type || g.Turn != "t" || g.Agent != child(g.Type) || string(g.Data) != string(ev.Data) || !g.Time.Equal(ev.Time) {
				e.Fatalf("%s: %+v, event %+v", hook, g, ev)
			}
		}
		equal(e, "nobody", len(e.due("three")), 0)
	}},
	{"a copied event keeps its time, and neither a webhook nor the audit log gets it", func(e *env) {
		id := e.newSession()
		records := len(e.chain())
		at := time.UnixMilli(1_600_000_000_123).UTC()
		c := tell(id, holdfast.EventBoxOOM, holdfast.EventToolDenied, holdfast.EventBoxOOM)
		c.Events[0].Copied, c.Events[1].Copied = at, at
		e.commit(c)
		for range 2 {
			log := e.log(id)[1:]
			if !log[0].Time.Equal(at) || !log[1].Time.Equal(at) || log[2].Time.Equal(at) {
				e.Fatalf("times %s, %s, %s", log[0].Time, log[1].Time, log[2].Time)
			}
			due := e.due("one")
			if len(due) != 1 || due[0].Seq != log[2].Seq {
				e.Fatalf("deliveries %+v", due)
			}
			for _, r := range e.chain()[records:] {
				if r.Seq == log[0].Seq || r.Seq == log[1].Seq {
					e.Fatalf("audit record %+v", r)
				}
			}
			e.Store = e.Reopen(e.T)
		}
	}},
	{"a refused change delivers nothing", func(e *env) {
		id := e.newSession()
		c := tell(id, holdfast.EventBoxOOM)
		c.LastSeq = 99
		e.refuse(c, holdfast.KindConflict)
		equal(e, "deliveries", len(e.due("one")), 0)
	}},
	{"gives one of a session at a time, in order, until it has failed often", func(e *env) {
		a, b := e.newSession(), e.newSession()
		names := map[holdfast.SessionID]string{a: "a", b: "b"}
		e.commit(tell(a, holdfast.EventBoxOOM, holdfast.EventBoxOOM, holdfast.EventSessionError))
		e.commit(tell(b, holdfast.EventBoxOOM))
		equal(e, "due", e.dueAs("one", names), "a2 b2")
		first := e.due("one")[0]
		e.ok(e.Store.Delivered(e.ctx, first.Row))
		e.ok(e.Store.Delivered(e.ctx, first.Row))
		equal(e, "due", e.dueAs("one", names), "a3 b2")
		equal(e, "the other", e.dueAs("two", names), "a2 b2")
		later := time.Now().Add(2 * time.Hour)
		second := e.due("one")[0]
		for range webhook.HoldTries - 1 {
			e.ok(e.Store.RetryDelivery(e.ctx, second.Row, later))
		}
		equal(e, "while it fails", e.dueAs("one", names), "b2")
		e.ok(e.Store.RetryDelivery(e.ctx, second.Row, later))
		equal(e, "when it failed often", e.dueAs("one", names), "a4 b2")
		got, err := e.Store.Deliveries(e.ctx, "one", later, 1)
		e.ok(err)
		if len(got) != 1 || got[0].Row != second.Row || got[0].Attempts != webhook.HoldTries {
			e.Fatalf("oldest first: %+v", got)
		}
	}},
	{"says when the next is due", func(e *env) {
		next := func() (time.Time, bool) {
			at, ok, err := e.Store.NextDelivery(e.ctx, "one")
			e.ok(err)
			return at, ok
		}
		if _, ok := next(); ok {
			e.Fatal("an empty outbox has a next one")
		}
		id := e.newSession()
		e.commit(tell(id, holdfast.EventBoxOOM, holdfast.EventBoxOOM))
		later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		e.ok(e.Store.RetryDelivery(e.ctx, e.due("one")[0].Row, later))
		// The session's second delivery must wait for its first, so the next delivery is due at later.
		if at, ok := next(); !ok || !at.Equal(later) {
			e.Fatalf("next %v %v, want %v", at, ok, later)
		}
	}},
	{"what is given up goes with its notice, or not at all", func(e *env) {
		id := e.newSession()
		e.commit(tell(id, holdfast.EventBoxOOM))
		c := tell(id, holdfast.EventNotice, holdfast.EventBoxOOM)
		c.Undelivered = []int64{e.due("one")[0].Row}
		bad := c
		bad.LastSeq = 99
		e.refuse(bad, holdfast.KindConflict)
		equal(e, "deliveries", len(e.due("one")), 1)
		e.commit(c)
		equal(e, "deliveries", len(e.due("one")), 0)
		equal(e, "the other's", len(e.due("two")), 1)
		equal(e, "log", len(e.log(id)), 4)
	}},
	{"outlives its session, and goes with its receiver", func(e *env) {
		id := e.newSession()
		e.commit(tell(id, holdfast.EventBoxOOM))
		e.move(id, holdfast.StatusEnded)
		e.ok(e.Store.DeleteSession(e.ctx, id))
		equal(e, "deliveries", len(e.due("one")), 1)
		n, err := e.Store.ForgetDeliveries(e.ctx, []string{"one", "x"})
		e.ok(err)
		equal(e, "forgotten", n, 1)
		equal(e, "kept", len(e.due("one")), 1)
		equal(e, "gone", len(e.due("two")), 0)
		n, err = e.Store.ForgetDeliveries(e.ctx, nil)
		e.ok(err)
		equal(e, "forgotten", n, 1)
	}},
	{"bounds what a delivery holds", func(e *env) {
		id := e.newSession()
		c := journal.NewChange(id)
		c.Events = []journal.Draft{{Type: holdfast.EventSessionError, Data: map[string]string{"id": "a", "text": strings.Repeat("x", 1<<20)}}}
		e.commit(c)
		if got := e.due("one"); len(got) != 1 || len(got[0].Data) > 1000 || !strings.Contains(string(got[0].Data), `"id":"a","text":{"sha256":"`) {
			e.Fatalf("%.200s", got[0].Data)
		}
	}},
}
