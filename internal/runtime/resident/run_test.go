package resident

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// engine is a Host without boxes.
type engine struct {
	keeper
	boxes int
}

var errNoBox = holdfast.Errorf(holdfast.KindUnavailable, "pool", "no box starts")

func (e *engine) Log(context.Context, int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		for _, ev := range e.events {
			if !yield(ev, nil) {
				return
			}
		}
	}
}
func (e *engine) AgentStates(context.Context) ([]holdfast.AgentState, error) { return nil, nil }
func (e *engine) Steered(context.Context, int64) ([]holdfast.Event, error)   { return nil, nil }
func (e *engine) Release(*sandbox.Box, ...holdfast.CallID)                   {}
func (e *engine) NewCall() (holdfast.CallID, error)                          { return "call", nil }
func (e *engine) At(string)                                                  {}
func (e *engine) Box(ctx context.Context) (*sandbox.Box, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	e.boxes++
	return nil, errNoBox
}

func (e *engine) types() (out []string) {
	for _, ev := range e.events {
		out = append(out, string(ev.Type))
	}
	return out
}

// parrot is a Dialect that records what it hears.
type parrot struct {
	r *Run
	// hears is what a line is; work that a prompt is under way.
	hears Heard
	work  bool
	again bool
	// waits makes Work return Waiting; decide is called by Advance without an attachment.
	waits  bool
	decide func()
	cuts   []Cause
	gone   []string
}

func (p *parrot) Work() Work {
	switch {
	case p.waits:
		return Waiting
	case p.work:
		return Answering
	}
	return Idle
}

func (p *parrot) Advance(context.Context) (over bool, _ error) {
	if p.r.Link == nil {
		p.decide()
	}
	return false, nil
}

func (p *parrot) Stale(context.Context) (string, error) { return "", nil }
func (p *parrot) Start(context.Context) (Start, error)  { return Start{}, nil }
func (p *parrot) Resume(context.Context, []Sent) error  { return nil }
func (p *parrot) Halt(context.Context) (bool, error)    { return false, nil }
func (p *parrot) Cut(why Cause)                         { p.cuts, p.work = append(p.cuts, why), false }

func (p *parrot) Snapshot() holdfast.AgentState {
	s := p.r.Recorder.State
	s.Generation, s.Taken = 1, p.r.Offset
	return s
}

func (p *parrot) Gone(how string, _ Work, _ bool) bool {
	p.gone = append(p.gone, how)
	return p.again
}

func (p *parrot) Hear(_ context.Context, l Line) (Heard, error) {
	p.r.Recorder.Add(holdfast.EventNotice, holdfast.Notice{Text: string(l.Text[:min(10, len(l.Text))])})
	p.r.Uses.Request(string(l.Text[:1]), "Write", l.Text)
	return p.hears, nil
}

// newRun is a run of the turn t whose agent was given a prompt.
func newRun(t *testing.T) (*engine, *parrot, *Run) {
	t.Helper()
	h := new(engine)
	cfg := &Config{Runtime: "parrot", Op: "parrot", Agent: "the parrot", Hint: "feed it", Now: time.Now, Handshake: time.Minute, Grace: time.Minute}
	r := New(cfg, "t", h)
	r.Link = &Link{In: sandbox.NewFeed(), lines: make(chan Line, 100)}
	r.Ready = true
	r.Recorder.State = holdfast.AgentState{Generation: 1, Call: "c", Box: "b", Boot: "x"}
	return h, &parrot{r: r, work: true}, r
}

// TestI19_TheInputsOfATurnAreBounded: an agent cannot fill the server's memory with calls
// that it never makes.
func TestI19_TheInputsOfATurnAreBounded(t *testing.T) {
	_, d, r := newRun(t)
	for i := range 100 {
		text := slices.Concat([]byte{byte('0' + i)}, make([]byte, 8<<20))
		if err := r.take(t.Context(), d, Line{Text: text}); holdfast.IsKind(err, holdfast.KindTooLarge) {
			return
		} else if err != nil || i*8<<20 > mostInputs+8<<20 {
			t.Fatalf("%d inputs: %v", i, err)
		}
	}
}

// TestI19_WhatWaitsForACommitIsBounded: events wait for company, but not many large ones;
// without Hold or Later they do not wait.
func TestI19_WhatWaitsForACommitIsBounded(t *testing.T) {
	for hears, most := range map[Heard]int{Hold: mostWeight/(1<<20) + 1, Later: mostWeight/(1<<20) + 1, Commit: mostWeight/(1<<20) + 1} {
		h, d, r := newRun(t)
		d.hears = hears
		for range 50 {
			r.Link.lines <- Line{Text: []byte(strings.Repeat("x", 1<<20))}
		}
		for together := 0; len(r.Link.lines) > 0; {
			before := len(h.events)
			if err := r.take(t.Context(), d, <-r.Link.lines); err != nil {
				t.Fatal(err)
			}
			together = max(together, (len(h.events)-before)/2, len(r.Recorder.Due())/2)
			if together > most+1 {
				t.Fatalf("%d: %d lines of 1 MiB wait or share a commit", hears, together)
			}
		}
		if waits := len(r.Recorder.Due()) > 0; waits && hears == Commit || len(h.events) == 0 {
			t.Errorf("%d: %d events are recorded, %d wait", hears, len(h.events), len(r.Recorder.Due()))
		}
	}
	h, d, r := newRun(t)
	d.hears = Over
	if err := r.take(t.Context(), d, Line{Text: []byte("x")}); err != nil || len(h.events) > 0 {
		t.Errorf("the end of a turn is recorded in front of it: %v", err)
	}
}

// TestHZ12_SentAfterTheCommit: a line for the agent waits for the commit of what is due,
// and is not sent when that is refused.
func TestHZ12_SentAfterTheCommit(t *testing.T) {
	h, d, r := newRun(t)
	r.Outbox.Add([]byte("yes"), "")
	r.Uses.Start(r.Uses.Request("u", "Bash", nil), "call", "b", "x")
	h.fail = errors.New("full")
	if err := r.Flush(t.Context(), d); !errors.Is(err, h.fail) || r.Link.In.Next() != 0 {
		t.Errorf("%d bytes were sent: %v", r.Link.In.Next(), err)
	}
}

// TestTheEndOfAnAttempt: what becomes of a turn, of its tool uses and of its agent.
func TestTheEndOfAnAttempt(t *testing.T) {
	stop := errors.New("stop")
	for _, c := range []struct {
		name   string
		err    error
		link   error
		cancel bool
		again  bool
		// goes: another attempt follows.
		goes bool
		says string
		last string
		cut  Cause
	}{
		{name: "it is over", last: "tool.started"},
		{name: "left", err: Leave(stop), says: "stop", last: "tool.started"},
		{name: "failed", err: stop, says: "stop", last: "tool.unknown", cut: Failed},
		{name: "interrupted", err: stop, cancel: true, says: "context canceled", last: "tool.finished", cut: Interrupted},
		{name: "left when it was interrupted", err: Leave(stop), cancel: true, says: "context canceled", last: "tool.finished", cut: Interrupted},
		{name: "the pipe broke", err: errGone, link: sandbox.ErrLost, goes: true, last: "tool.started"},
		{name: "the process ended", err: errGone, says: "in the middle of the turn", last: "tool.unknown", cut: Lost},
		{name: "the process ended before it did anything", err: errGone, again: true, goes: true, last: "notice", cut: Lost},
		{name: "a line is too long", err: errGone, link: holdfast.Errorf(holdfast.KindTooLarge, "x", "a long line"), says: "a long line", last: "tool.unknown", cut: Failed},
	} {
		h, d, r := newRun(t)
		d.again = c.again
		r.Uses.Start(r.Uses.Request("u", "Bash", nil), "call", "b", "x")
		if err := r.Flush(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		r.Link.err = c.link
		ctx, cancel := context.WithCancel(t.Context())
		if c.cancel {
			cancel()
		}
		goes, err := r.judge(ctx, d, c.err, new(int))
		cancel()
		if goes != c.goes && err == nil || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: goes on %v: %v", c.name, goes, err)
		}
		if got := h.types(); got[len(got)-1] != c.last {
			t.Errorf("%s: recorded %q", c.name, got)
		}
		if c.cut == "" && len(d.cuts) > 0 || c.cut != "" && !slices.Equal(d.cuts, []Cause{c.cut}) {
			t.Errorf("%s: cut %q", c.name, d.cuts)
		}
		if died := c.cut == Lost; died != (r.Recorder.State.Call == "") {
			t.Errorf("%s: the state names the process %q", c.name, r.Recorder.State.Call)
		}
	}
}

// TestATurnWithoutABoxFails: what a former server left open is answered.
func TestATurnWithoutABoxFails(t *testing.T) {
	h, d, r := newRun(t)
	r.Link = nil
	r.Uses.Request("u", "Bash", nil)
	if err := r.Drive(t.Context(), d); !errors.Is(err, errNoBox) || h.boxes != 1 {
		t.Errorf("%d boxes were asked for: %v", h.boxes, err)
	}
	if got := h.types(); got[len(got)-1] != "tool.finished" || r.Uses.Open() {
		t.Errorf("recorded %q", got)
	}
}

// TestAnAgentLeftAtWorkIsLookedFor: a turn that is interrupted before anybody attached to
// its agent ends the agent that a former server left at work. One that cannot be ended
// stays in the state.
func TestAnAgentLeftAtWorkIsLookedFor(t *testing.T) {
	for _, work := range []bool{true, false} {
		h, d, r := newRun(t)
		r.Link, d.work = nil, work
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Drive(ctx, d); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if looked := h.boxes > 0; looked != work || r.Recorder.State.Call != "c" || len(d.gone) > 0 {
			t.Errorf("at work %v: the box was looked for %d times, the state names %q", work, h.boxes, r.Recorder.State.Call)
		}
	}
}

// TestALostPipeIsBounded: a box whose pipe breaks again and again fails the turn.
func TestALostPipeIsBounded(t *testing.T) {
	_, d, r := newRun(t)
	r.Link.err = sandbox.ErrLost
	n, lost := 0, 0
	for again := true; again; n++ {
		if again, _ = r.judge(t.Context(), d, errGone, &lost); n > mostLost+1 {
			t.Fatal("it goes on for ever")
		}
	}
	if n != mostLost+1 {
		t.Errorf("the pipe broke %d times", n)
	}
}

// TestDecided: a decision is recorded once, with its intent before the answer; one that
// nobody took because the server is leaving leaves the run as it stands.
func TestDecided(t *testing.T) {
	yes := policy.Decision{Verdict: policy.Allowed}
	known := holdfast.Errorf(holdfast.KindInvalid, "x", "no opinion")
	for _, c := range []struct {
		name        string
		d           policy.Decision
		err         error
		state       UseState
		halted      bool
		allowed, ok bool
		leaves      bool
		recorded    string
	}{
		{name: "allowed", d: yes, allowed: true, ok: true, recorded: "tool.requested tool.allowed tool.started"},
		{name: "denied", d: policy.Decision{Verdict: policy.Denied}, ok: true, recorded: "tool.requested tool.denied"},
		{name: "failed", d: yes, err: known, ok: true, recorded: "tool.requested tool.denied"},
		{name: "undecided", err: &policy.Undecided{Err: known}, leaves: true, recorded: "tool.requested"},
		{name: "not recorded", err: errors.New("full"), leaves: true, recorded: "tool.requested"},
		{name: "asked again", d: yes, state: Started, allowed: true, ok: true, recorded: "tool.requested"},
		{name: "over", d: yes, state: Answered, recorded: "tool.requested"},
		{name: "halted", d: yes, halted: true, recorded: "tool.requested"},
	} {
		h, d, r := newRun(t)
		u := r.Uses.Request("u", "Bash", nil)
		u.State = max(u.State, c.state)
		r.Halted = c.halted
		allowed, ok, err := r.Decided(t.Context(), u, c.d, c.err)
		var left *leaving
		if allowed != c.allowed || ok != c.ok || errors.As(err, &left) != c.leaves || !c.leaves && err != nil {
			t.Errorf("%s: allowed %v, ok %v: %v", c.name, allowed, ok, err)
		}
		if err := r.Flush(t.Context(), d); err != nil || strings.Join(h.types(), " ") != c.recorded {
			t.Errorf("%s: recorded %q, %v", c.name, h.types(), err)
		}
	}
}

// TestHZ15_ARunWaitsWithoutItsBox: while the agent waits for a decision, the run gives its box
// back, attaches to nothing, and claims the box again only once a decision is made. What needs no
// agent is done meanwhile.
func TestHZ15_ARunWaitsWithoutItsBox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, r := newRun(t)
		back, apart := 0, 0
		r.GiveBack = func() { back++ }
		d.waits = true
		answered := make(chan struct{})
		d.decide = func() {
			r.Decisions.Go("a", func() (Then, error) {
				if err := r.Decisions.Call(t.Context(), func(context.Context) error { apart++; return nil }); err != nil {
					t.Error(err)
				}
				<-answered
				return func(context.Context) error { return nil }, nil
			})
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Drive(t.Context(), d) }()
		<-time.After(24 * time.Hour)
		synctest.Wait()
		if back != 1 || apart != 1 || h.boxes != 0 || r.Link != nil {
			t.Errorf("after a day: given back %d times, %d commits, %d boxes claimed", back, apart, h.boxes)
		}
		close(answered)
		if err := <-ended; !errors.Is(err, errNoBox) || h.boxes == 0 {
			t.Errorf("once it is answered: %v, %d boxes claimed", err, h.boxes)
		}
	})
}

// TestHZ15_AFailedDecisionNeedsNoBox: at the server's end, runs that wait claim no boxes.
func TestHZ15_AFailedDecisionNeedsNoBox(t *testing.T) {
	h, d, r := newRun(t)
	errEnds := errors.New("the server ends")
	r.GiveBack = func() {}
	d.waits = true
	d.decide = func() {
		r.Decisions.Go("a", func() (Then, error) {
			return func(context.Context) error { return Leave(errEnds) }, errEnds
		})
	}
	if err := r.Drive(t.Context(), d); !errors.Is(err, errEnds) || h.boxes != 0 || len(d.gone) != 0 {
		t.Errorf("%v, %d boxes claimed, ended agents %q", err, h.boxes, d.gone)
	}
}

// TestHZ15_ALateDecisionCountsOnce: a decision that was made after the agent had ended counts for
// the use that asks for the same call again, and for no other.
func TestHZ15_ALateDecisionCountsOnce(t *testing.T) {
	_, _, r := newRun(t)
	input := []byte(`{"command":"date"}`)
	first := r.Uses.Request("a", "Bash", input)
	r.Uses.End("the agent ended", false)
	if _, ok, err := r.Decided(t.Context(), first, policy.Decision{Verdict: policy.Allowed}, nil); ok || err != nil {
		t.Errorf("a decision on an ended use: %t, %v", ok, err)
	}
	other := r.Uses.Request("o", "Bash", []byte(`{"command":"rm"}`))
	if r.Uses.Before(other) != nil {
		t.Error("another call took the decision")
	}
	// The agent may give out the same id again.
	again := r.Uses.Request("a", "Bash", []byte(`{ "command": "date" }`))
	if o := r.Uses.Before(again); o != first || o.Decision == nil || o.Decision.Verdict != policy.Allowed {
		t.Errorf("the same call has the earlier use %+v", o)
	}
	if more := r.Uses.Request("b", "Bash", input); r.Uses.Before(more) != nil {
		t.Error("a second call took the decision, too")
	}
}
