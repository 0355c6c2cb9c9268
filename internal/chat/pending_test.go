package chat

import (
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestPendingTurns: a message waits until it is answered, its turn is open until it ends,
// and an end that the log reports first is not forgotten.
func TestPendingTurns(t *testing.T) {
	p := newPending()
	want := func(when, status string, none bool) {
		t.Helper()
		if got := p.status(false)[0].Text; got != status || p.none() != none {
			t.Errorf("%s: %q, none %v", when, got, p.none())
		}
	}
	want("at first", "nothing runs", true)
	p.sent()
	p.sent()
	p.sent()
	p.sent()
	want("sent", "4 messages on the way to the server", false)
	p.over("t1")
	if !p.confirmed("t1") || p.confirmed("t2") || p.confirmed("t3") {
		t.Error("which turns have ended is forgotten")
	}
	p.answered()
	want("confirmed and refused", "a turn runs, 1 message waits", false)
	p.over("t2")
	want("one ended", "a turn runs", false)
	p.over("t3")
	p.over("another client's")
	want("all ended", "nothing runs", true)
	if len(p.ended) != 0 {
		t.Errorf("%v is kept while nothing waits", p.ended)
	}
}

// TestOpenQuestions: the oldest comes first, each once, and the end of its turn closes it.
func TestOpenQuestions(t *testing.T) {
	var q questions
	for i, a := range []holdfast.Approval{{ID: "q1", Turn: "t1"}, {ID: "q2", Turn: "t2"}, {ID: "q1"}, {ID: "q3", Turn: "t1"}} {
		if got := q.add(a); got != (i != 2) {
			t.Errorf("%s was added: %v", a.ID, got)
		}
	}
	for _, c := range []struct {
		close func()
		next  holdfast.ApprovalID
	}{{func() {}, "q1"}, {func() { q.settled("q1") }, "q2"}, {func() { q.over("t1") }, "q2"}, {func() { q.settled("q2") }, ""}} {
		c.close()
		if a, ok := q.first(); a.ID != c.next || ok != (c.next != "") {
			t.Errorf("%q is first, not %q", a.ID, c.next)
		}
	}
}
