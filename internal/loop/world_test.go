package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// world is everything around a loop: a log, boxes that die, tools that act.
type world struct {
	t *testing.T

	mu sync.Mutex
	// commits are the records, one slice a transaction; deltas what was shown.
	commits [][]loop.Entry
	deltas  []loop.Entry
	// order is what happened, as words.
	order []string

	// box is the live box; nil is none. lives counts the boxes there were.
	box   *sandbox.Box
	lives map[*sandbox.Box]int
	// ran counts the effects of each call; running tools wait for a word on hold.
	ran   map[holdfast.CallID]int
	calls int

	// Knobs.
	recordErr func(n int) error
	boxErr    error
	boxWait   time.Duration
	outcome   func(s holdfast.ToolStarted) (*sandbox.Box, bool, error)
	tools     map[string]func(ctx context.Context, c tool.Call) (tool.Result, error)
	decide    func(policy.Request) (policy.Decision, error)
	// scope, if set, answers Scope.
	scope  func(policy.Request) (policy.Scope, error)
	joined []loop.Joined
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, lives: map[*sandbox.Box]int{}, ran: map[holdfast.CallID]int{},
		tools: map[string]func(context.Context, tool.Call) (tool.Result, error){},
	}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order = append(w.order, fmt.Sprintf(format, args...))
}

// Record implements loop.Recorder.
func (w *world) Record(ctx context.Context, entries ...loop.Entry) error {
	if err := ctx.Err(); err != nil {
		w.t.Errorf("recorded under a context that ended: %v", err)
	}
	w.mu.Lock()
	n := len(w.commits)
	w.mu.Unlock()
	if w.recordErr != nil {
		if err := w.recordErr(n); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits = append(w.commits, append([]loop.Entry(nil), entries...))
	w.order = append(w.order, "record")
	return nil
}

// Delta implements loop.Recorder.
func (w *world) Delta(typ holdfast.EventType, data any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deltas = append(w.deltas, loop.Entry{Type: typ, Data: data})
}

// Box implements loop.Boxes.
func (w *world) Box(ctx context.Context) (*sandbox.Box, error) {
	if w.boxWait > 0 {
		t := time.NewTimer(w.boxWait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boxErr != nil {
		return nil, w.boxErr
	}
	if w.box == nil {
		w.box = new(sandbox.Box)
		w.lives[w.box] = len(w.lives) + 1
	}
	return w.box, nil
}

// Life implements loop.Boxes.
func (w *world) Life(box *sandbox.Box) (holdfast.BoxID, string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "s-box", fmt.Sprint("boot", w.lives[box]), box == w.box
}

// Outcome implements loop.Boxes.
func (w *world) Outcome(ctx context.Context, s holdfast.ToolStarted) (*sandbox.Box, bool, error) {
	w.note("outcome")
	if w.outcome != nil {
		return w.outcome(s)
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.box == nil || s.Boot != fmt.Sprint("boot", w.lives[w.box]) {
		return nil, true, nil
	}
	return w.box, false, nil
}

// Release implements loop.Boxes.
func (w *world) Release(_ *sandbox.Box, calls ...holdfast.CallID) {
	for _, c := range calls {
		w.note("release %s", c)
	}
}

// Decide implements policy.Decider.
func (w *world) Decide(_ context.Context, req policy.Request) (policy.Decision, error) {
	if w.decide != nil {
		return w.decide(req)
	}
	return policy.Decision{Verdict: policy.Allowed, By: "test"}, nil
}

// Scope implements policy.Decider.
func (w *world) Scope(_ context.Context, req policy.Request) (policy.Scope, error) {
	if w.scope != nil {
		return w.scope(req)
	}
	return policy.Scope{}, nil
}

// die ends the live box.
func (w *world) die() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.box = nil
}

// effect does what a call does, once in a call's life.
func (w *world) effect(id holdfast.CallID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ran[id]++
	w.order = append(w.order, "run "+string(id))
}

// fake is a tool of the world; without a function of its own it answers its input.
type fake struct {
	w    *world
	spec tool.Spec
}

func (f fake) Spec() tool.Spec { return f.spec }

func (f fake) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	if (f.spec.Effect == tool.Mutate) != (c.ID != "") {
		f.w.t.Errorf("%s has call id %q", f.spec.Name, c.ID)
	}
	if (f.spec.Where == tool.InServer) != (c.Box == nil) {
		f.w.t.Errorf("%s has box %v", f.spec.Name, c.Box)
	}
	if c.Started != nil && c.ID != "" {
		c.Started()
	}
	f.w.mu.Lock()
	do := f.w.tools[f.spec.Name]
	f.w.mu.Unlock()
	if do != nil {
		return do(ctx, c)
	}
	if c.ID != "" {
		f.w.effect(c.ID)
	} else {
		f.w.note("%s %s", f.spec.Name, c.Input)
	}
	return tool.Result{Content: f.spec.Name + string(c.Input), Outcome: holdfast.ExitOK}, nil
}

// loop is a loop over the scripted model with Bash, Write (mutating), Read, Grep
// (reading), Note (reading in the server) and Post (mutating there).
func (w *world) loop() *loop.Loop {
	var tools []tool.Tool
	for _, s := range []tool.Spec{
		{Name: "Read", Effect: tool.Read, Where: tool.InBox},
		{Name: "Grep", Effect: tool.Read, Where: tool.InBox},
		{Name: "Bash", Effect: tool.Mutate, Where: tool.InBox},
		{Name: "Write", Effect: tool.Mutate, Where: tool.InBox},
		{Name: "Note", Effect: tool.Read, Where: tool.InServer},
		{Name: "Post", Effect: tool.Mutate, Where: tool.InServer},
	} {
		tools = append(tools, fake{w: w, spec: s})
	}
	set, err := loop.NewToolset(tools...)
	if err != nil {
		w.t.Fatal(err)
	}
	return &loop.Loop{
		Provider: scripted.New(), Tools: set, Now: time.Now, Rand: func() float64 { return 0.5 },
		Retry: loop.Retry{Base: time.Millisecond},
	}
}

func (w *world) env() loop.Env {
	return loop.Env{
		Recorder: w, Boxes: w, Policy: w,
		Steered: func(_ context.Context, after int64) ([]loop.Joined, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			var out []loop.Joined
			for _, j := range w.joined {
				if j.Seq > after {
					out = append(out, j)
				}
			}
			return out, nil
		},
		NewCall: func() (holdfast.CallID, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls++
			return holdfast.CallID(fmt.Sprintf("call-%d", w.calls)), nil
		},
		At: func(point string) { w.note("at %s", point) },
	}
}

func conversation(text string) loop.Conversation {
	return loop.Conversation{
		Session: "s1", Mode: holdfast.ModeDefault, Model: "scripted", Seen: 2,
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: text}}}},
	}
}

func script(s string) loop.Conversation { return conversation("<script>" + s + "</script>") }

// run runs a script to its result.
func (w *world) run(s string) loop.Result {
	w.t.Helper()
	res, err := w.loop().Run(w.t.Context(), script(s), w.env())
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// shape is the types of each commit, in short.
func (w *world) shape() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, c := range w.commits {
		var types []string
		for _, e := range c {
			types = append(types, short(e))
		}
		out = append(out, strings.Join(types, " "))
	}
	return strings.Join(out, " | ")
}

func short(e loop.Entry) string {
	_, name, _ := strings.Cut(string(e.Type), ".")
	switch d := e.Data.(type) {
	case holdfast.ToolFinished:
		if d.Outcome != holdfast.ExitOK {
			name += ":" + string(d.Outcome)
		}
	case holdfast.Notice:
		name = d.Code
	case holdfast.Thinking:
		name = "thinking"
	}
	return name
}

// entries are all recorded payloads of a type.
func entries[T any](w *world) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []T
	for _, c := range w.commits {
		for _, e := range c {
			if d, ok := e.Data.(T); ok {
				out = append(out, d)
			}
		}
	}
	return out
}

// check holds the invariants of a log: every requested use is answered once, a
// mutating call ran only after its intent and at most once, and payloads marshal.
func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	answers, started := map[string]int{}, map[holdfast.CallID]bool{}
	requested := 0
	for _, c := range w.commits {
		for _, e := range c {
			if _, err := json.Marshal(e.Data); err != nil {
				w.t.Errorf("%s does not marshal: %v", e.Type, err)
			}
			switch d := e.Data.(type) {
			case holdfast.ToolRequested:
				requested++
				answers[d.ToolUseID] += 0
			case holdfast.ToolDecision:
				if e.Type == holdfast.EventToolDenied {
					answers[d.ToolUseID]++
				}
			case holdfast.ToolStarted:
				started[d.Call] = true
			case holdfast.ToolFinished:
				answers[d.ToolUseID]++
			case holdfast.ToolUnknown:
				answers[d.ToolUseID]++
			}
		}
	}
	if requested > 0 && requested != len(answers) {
		w.t.Errorf("%d requested, %d answered: %v", requested, len(answers), answers)
	}
	for id, n := range answers {
		if n != 1 {
			w.t.Errorf("use %s has %d answers", id, n)
		}
	}
	for id, n := range w.ran {
		if n != 1 || !started[id] {
			w.t.Errorf("call %s ran %d times, intent %v", id, n, started[id])
		}
	}
}

func has(s, sub string) bool { return strings.Contains(s, sub) }

var errStop = errors.New("stop it")
