package claude

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// run is one Run: a turn from where its log stands to its end. One goroutine owns
// it; decisions are taken beside it and come back over channels.
type run struct {
	r    *Runtime
	t    runtime.Turn
	host runtime.Host

	state holdfast.AgentState
	mem   memory
	process
	story
	speech
	besides

	// due waits for the next commit, out is sent after it; dirty says that the
	// state has changed. weight is the size of the lines that said what is due.
	due    []journal.Draft
	out    [][]byte
	dirty  bool
	weight int
}

// process is the CLI that the turn runs on.
type process struct {
	box  *sandbox.Box
	link *link
	// plan and facts are of the start that this run made, at began.
	plan  *plan
	facts facts
	began time.Time
	// warming: it is started, and nothing more.
	warming bool
	// lost counts how often the pipe broke.
	lost int
	// stale says why the CLI that runs cannot be gone on with, refused why it did not
	// take the transcript that it was given.
	stale, refused string
}

// story is what the log says of the turn.
type story struct {
	seq      int64
	messages []said
	uses     map[string]*use
	// inputs is the size of the inputs of uses.
	inputs int
	// effects: a tool was started.
	effects bool
	parked  time.Time
	steps   int
	used    holdfast.Usage
	text    string
	stop    string
	ended   bool
	// warnings are notices of the turn that an agent has to get when it starts.
	warnings []string
	// others: messages of turns that the agent was given nothing of.
	others int64
}

// speech is what the CLI says in this attempt.
type speech struct {
	asm assembler
	// offset is the end of the newest line that was dealt with.
	offset int64
	// own is what the CLI said last that no model said.
	own string
	// shown: deltas went out that no answer in the log stands for.
	shown bool
	// notices counts those about lines that say nothing.
	notices int
	// mirrored is the newest line of an answer that the transcript holds.
	mirrored string
	// halted: the CLI was told to stop. over is the result that ends the run, fail
	// what it means.
	halted bool
	over   *line
	fail   error
	// tail ends the wait for the transcript, deferred that for the rest of an answer.
	tail, deferred <-chan time.Time
}

// besides is what is done beside the loop: in order for each agent, and back over
// decided.
type besides struct {
	decided  chan verdict
	flushes  chan chan error
	quit     chan struct{}
	order    map[string]chan struct{}
	deciding map[string]bool
	calling  map[string]bool
	wg       sync.WaitGroup
	// saved is what hooks said before a tool call, until it can be told.
	saved []string
}

// said is a message of the turn's user.
type said struct {
	seq  int64
	text string
}

// use is a tool use of the turn.
type use struct {
	id, agent string
	name      string
	input     json.RawMessage
	rewritten json.RawMessage
	call      holdfast.CallID
	state     useState
	reason    string
	began     time.Time
	// orphan: its agent ended before it was decided.
	orphan bool
	// result is what a tool of the server came to.
	result *holdfast.ToolFinished
}

type useState int

const (
	requested useState = iota + 1
	started
	denied
	answered
)

// Require implements runtime.Requirer.
func (r *Runtime) Require(trust holdfast.Trust) error {
	if err := runtime.NeedsBox(op, Name, trust); err != nil {
		return err
	}
	_, err := r.cfg.Program()
	return err
}

// Run implements runtime.Runtime.
func (r *Runtime) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	if t.Session.Trust == holdfast.Trusted {
		return runtime.Result{}, holdfast.Errorf(holdfast.KindInvalid, op, "the runtime claude runs in a sandbox, and session %s is trusted", t.Session.ID).
			WithHint("holdfast session update %s --trust untrusted", t.Session.ID)
	}
	x := r.newRun(t, host)
	if err := x.load(ctx); err != nil {
		return runtime.Result{}, err
	}
	if x.finished() {
		if ctx.Err() != nil {
			return runtime.Result{}, context.Cause(ctx)
		}
		return x.result(nil), nil
	}
	// Decisions end with the run.
	inner, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		close(x.quit)
		x.wg.Wait()
	}()
	for {
		err := x.attempt(inner, ctx)
		if x.link != nil {
			x.link.detach()
		}
		again, err := x.judge(ctx, err)
		if !again {
			if err != nil {
				return runtime.Result{}, err
			}
			x.answerOpen("the agent did not say what came of it", true)
			return x.result(x.due), nil
		}
	}
}

func (r *Runtime) newRun(t runtime.Turn, host runtime.Host) *run {
	return &run{
		r: r, t: t, host: host, story: story{uses: map[string]*use{}},
		besides: besides{
			decided: make(chan verdict, 16), flushes: make(chan chan error), quit: make(chan struct{}),
			order: map[string]chan struct{}{}, deciding: map[string]bool{}, calling: map[string]bool{},
		},
	}
}

// load reads what the log and the state say of the turn.
func (x *run) load(ctx context.Context) error {
	if ctx.Err() != nil {
		// The open calls of a cancelled turn still want their answers.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
		defer cancel()
		ctx = late
	}
	states, err := x.host.AgentStates(ctx)
	if err != nil {
		return err
	}
	x.facts.states = states
	if cur := currentOf(states); cur != nil {
		x.state = *cur
	}
	if x.mem, err = remember(&x.state); err != nil {
		return err
	}
	after := x.state.Upto
	if x.mem.Turn == x.t.ID {
		after = x.mem.From
	}
	live := false
	for ev, err := range x.host.Log(ctx, after) {
		if err != nil {
			return err
		}
		x.seq = ev.Seq
		if ev.Turn != x.t.ID {
			if ev.Type == holdfast.EventMessageUser && ev.Agent == "" && ev.Seq > x.state.Upto {
				x.others++
			}
			continue
		}
		if ev.Type == holdfast.EventTurnStarted {
			live = true
		}
		if err := x.learn(ev); err != nil {
			return err
		}
	}
	if x.warming {
		return nil
	}
	if !live || x.ended {
		return holdfast.Errorf(holdfast.KindInternal, op, "turn %s is not the one under way in the log", holdfast.Quote(string(x.t.ID)))
	}
	if x.mem.Turn != x.t.ID {
		x.begin()
	}
	return nil
}

// begin makes the memory one of this turn.
func (x *run) begin() {
	m := &x.mem
	m.Turn, m.Known, m.Starts, m.Parked, m.Parks = x.t.ID, x.state.Turns, 0, false, 0
	if len(x.messages) > 0 {
		m.From = x.messages[0].seq - 1
	}
	// Messages of a turn that ended without its result: the CLI may be at them still.
	if slices.ContainsFunc(m.Sent, func(s sent) bool { return !s.Done }) || m.opens() {
		x.stale = "it was busy when the last turn ended"
	}
	m.Prefaced = m.Prefaced && !x.begunAny()
	m.Sent = nil
	m.Pending = slices.DeleteFunc(m.Pending, pending.open)
}

// learn takes in an event of the turn.
func (x *run) learn(ev holdfast.Event) error {
	if ev.Agent != "" {
		return nil
	}
	switch ev.Type {
	case holdfast.EventMessageUser:
		var m holdfast.UserMessage
		if err := ev.Decode(&m); err != nil {
			return err
		}
		x.messages = append(x.messages, said{ev.Seq, m.Text()})
	case holdfast.EventHookRan:
		var ran holdfast.HookRan
		if err := ev.Decode(&ran); err != nil {
			return err
		}
		for i := range x.messages {
			if ran.MessageSeq != 0 && x.messages[i].seq == ran.MessageSeq {
				x.messages[i].text = hook.Prompted(x.messages[i].text, ran)
			}
		}
	case holdfast.EventMessageAssistant:
		var m holdfast.AssistantMessage
		if err := ev.Decode(&m); err != nil {
			return err
		}
		x.steps, x.used, x.stop, x.parked = x.steps+1, x.used.Add(m.Usage), m.StopReason, time.Time{}
		var text []string
		for _, p := range m.Parts {
			if s := p.Shown(); s != "" {
				text = append(text, s)
			}
		}
		x.text = strings.Join(text, "\n")
	case holdfast.EventNotice:
		var n holdfast.Notice
		if err := ev.Decode(&n); err != nil {
			return err
		}
		if n.Code == noticeParked && n.Until != nil {
			x.parked = *n.Until
		}
		if n.Code == holdfast.NoticeFilesAtRisk {
			x.warnings = append(x.warnings, n.Text)
		}
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		x.ended = true
	default:
		return x.learnUse(ev)
	}
	return nil
}

// learnUse takes in an event of a tool use.
func (x *run) learnUse(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventToolRequested:
		var d holdfast.ToolRequested
		if err := ev.Decode(&d); err != nil {
			return err
		}
		agent := ""
		if i := strings.LastIndexByte(d.ToolUseID, agentMark); i >= 0 {
			agent = d.ToolUseID[:i]
		}
		x.know(use{id: d.ToolUseID, agent: agent, name: d.Name, input: d.Input})
	case holdfast.EventToolAllowed, holdfast.EventToolDenied:
		var d holdfast.ToolDecision
		if err := ev.Decode(&d); err != nil {
			return err
		}
		if u := x.uses[d.ToolUseID]; u != nil {
			u.rewritten = d.Input
			if ev.Type == holdfast.EventToolDenied {
				u.state, u.reason = denied, d.Reason
			}
		}
	case holdfast.EventToolStarted:
		var d holdfast.ToolStarted
		if err := ev.Decode(&d); err != nil {
			return err
		}
		x.effects = true
		if u := x.uses[d.ToolUseID]; u != nil {
			u.state, u.call, u.began = started, d.Call, ev.Time
		}
	case holdfast.EventToolFinished, holdfast.EventToolUnknown:
		var d holdfast.ToolFinished
		if err := ev.Decode(&d); err != nil {
			return err
		}
		if u := x.uses[d.ToolUseID]; u != nil {
			u.state = answered
			if ev.Type == holdfast.EventToolFinished {
				u.result, u.orphan = &d, d.Call == "" && d.Outcome == holdfast.ExitCanceled
			}
		}
	}
	return nil
}

// unsent are the turn's messages that the CLI was not told yet.
func (x *run) unsent() []said {
	return slices.DeleteFunc(slices.Clone(x.messages), func(m said) bool {
		return slices.ContainsFunc(x.mem.Sent, func(s sent) bool { return s.Seq == m.seq })
	})
}

// finished reports that everything that was said in the turn is answered.
func (x *run) finished() bool {
	return len(x.mem.Sent) > 0 && !x.mem.Parked && len(x.unsent()) == 0 && !slices.ContainsFunc(x.mem.Sent, func(s sent) bool { return !s.Done })
}

// result is how the turn ended well.
func (x *run) result(final []journal.Draft) runtime.Result {
	res := runtime.Result{Final: final, Text: x.text, StopReason: x.stop, Usage: x.used, Steps: x.steps}
	for i := range res.Final {
		res.Final[i].Turn = x.t.ID
	}
	for _, s := range x.mem.Sent {
		res.Seen = max(res.Seen, s.Seq)
	}
	s := x.snapshot()
	s.Turns, s.Upto = x.mem.Known+1, math.MaxInt64
	res.States = []holdfast.AgentState{s}
	return res
}

// snapshot is the state as it stands.
func (x *run) snapshot() holdfast.AgentState {
	s := x.state
	s.Taken, s.Upto = x.safe(), max(x.seq, s.Upto)
	s.Data = bytesOf(x.mem)
	return s
}

func bytesOf(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return raw
}

// safe is up to where the CLI's output is accounted for: an answer that is not
// complete is read again.
func (x *run) safe() int64 {
	if o := x.asm.open; o != nil {
		return o.from
	}
	return x.offset
}

// add puts an event into the next commit.
func (x *run) add(typ holdfast.EventType, data any) {
	x.due = append(x.due, journal.Draft{Type: typ, Turn: x.t.ID, Data: data})
}

func (x *run) notice(code, text string) {
	x.add(holdfast.EventNotice, holdfast.Notice{Code: code, Text: text})
}

// lateTime is how long the log of a cancelled turn may take.
const lateTime = 15 * time.Second

// flush commits what is due, and then sends what waits for that.
func (x *run) flush(ctx context.Context) error {
	if len(x.due) > 0 || x.dirty {
		if ctx.Err() != nil {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
			defer cancel()
			ctx = late
		}
		s := x.snapshot()
		var states []holdfast.AgentState
		if s.Generation > 0 {
			states = append(states, s)
		}
		events, err := x.host.Keep(ctx, states, x.due...)
		if err != nil {
			return err
		}
		if n := len(events); n > 0 {
			x.seq = events[n-1].Seq
		}
		x.state, x.due, x.dirty, x.weight = s, nil, false, 0
		if x.link != nil {
			x.link.taken.Store(s.Taken)
		}
	}
	out := x.out
	x.out = nil
	if len(out) == 0 || x.link == nil {
		return nil
	}
	return x.link.out.Add(out...)
}

func (r *Runtime) uuid() (string, error) { return holdfast.NewUUID(r.cfg.Now(), r.cfg.Rand) }

// modelOf is a session's model as the CLI calls it.
func modelOf(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "anthropic/"):
		return strings.TrimPrefix(name, "anthropic/"), nil
	case name == "scripted", name == "":
		return scriptedModel, nil
	case strings.HasPrefix(name, "claude-"):
		return name, nil
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, op, "the runtime claude has no model %s", holdfast.Quote(name)).
		WithHint("holdfast session update --model anthropic/NAME")
}

// scriptedModel is what the CLI asks for in sessions of the scripted model.
const scriptedModel = "claude-sonnet-5-5"
