package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/retell"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// untaken is how many bytes of handled output may be unrecorded before a commit: the box buffers unrecorded
// output, and needs room for more.
const untaken = 256 << 10

// goOn is the prompt for an agent whose last answer was cut off while a tool call waited for a
// decision.
const goOn = "<system-reminder>Your last answer was cut off: the sandbox was stopped while a tool call waited for permission. Tool calls of that answer were not carried out. Go on with what the user asked for.</system-reminder>"

// refPrompt is the name (Ref) under which the outbox stores the prompt's line, so that it can be generated again.
const refPrompt = "prompt"

// run is one turn on an agent: the Dialect of resident.Run.
type run struct {
	r       *Runtime
	t       runtime.Turn
	host    runtime.Host
	turn    *resident.Run
	agent   *agent
	greeter *greeter
	speech  *speech
	calls   *calls

	// completed is the number of the session's completed turns.
	completed int64
	// why is the reason why no running process can be used.
	why string
	// answer is the agent's answer to the prompt, until Advance has handled it.
	answer *jsonrpc.Message
	// broken is the prompt that was unanswered when the agent's process ended. harmless is true if that
	// prompt had had no effect.
	broken   *prompt
	harmless bool
	// garbage is the number of output lines so far that were not protocol messages.
	garbage int
}

var _ resident.Dialect = (*run)(nil)

func (r *Runtime) newRun(t runtime.Turn, host runtime.Host) *run {
	turn := resident.New(&r.run, t.ID, host)
	turn.GiveBack = t.GiveBack
	x := &run{r: r, t: t, host: host, turn: turn, why: "the session has no agent of this runtime yet"}
	x.agent = &agent{rec: turn.Recorder, out: turn.Outbox}
	x.greeter = &greeter{
		runtime: r.Name(), session: t.Session.ID, cwd: t.Place.Workspace, profile: &r.cfg.Profile, agent: x.agent,
		states: func() []holdfast.AgentState { return turn.States },
	}
	x.speech = &speech{agent: x.agent, model: t.Session.Model, host: host, turn: turn}
	x.calls = &calls{
		profile: r.cfg.Profile.Name, agent: x.agent, t: &x.t, host: host, turn: turn, speech: x.speech, flush: x.flush,
		deciding: map[string]bool{}, warned: map[string]bool{},
	}
	return x
}

func (x *run) flush(ctx context.Context) error { return x.turn.Flush(ctx, x) }

// load reads the turn from the log and the agent's state.
func (x *run) load(ctx context.Context) error {
	found, err := x.turn.LoadState(ctx)
	if err != nil {
		return err
	}
	if found {
		x.why = "the agent does not run"
		if err := x.agent.decode(); err != nil {
			return err
		}
	}
	after := int64(0)
	err = x.host.Conversation(context.WithoutCancel(ctx), func(c *conversation.Conversation) error {
		x.completed = c.Completed
		if c.Turn.Live && c.Turn.ID == x.t.ID {
			after = c.Turn.Message - 1
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.turn.LoadLog(ctx, after, true)
}

// answered reports whether the agent has answered every message of the turn.
func (x *run) answered() bool {
	return x.agent.exists() && x.agent.data.Prompt == nil && len(x.speech.unsaid()) == 0
}

// result returns the result of a turn whose answer is recorded or waits for the commit with the turn's end.
func (x *run) result() runtime.Result {
	a := x.turn.Account
	res := runtime.Result{
		Final: x.turn.Recorder.Due(), Seen: x.speech.seen(), Text: a.Text, StopReason: a.Stop, Usage: a.Used, Steps: a.Steps,
		States: []holdfast.AgentState{x.agent.snapshot(x.turn.Offset)},
	}
	if res.StopReason == "" {
		res.StopReason = "end_turn"
	}
	return res
}

// Snapshot implements resident.Dialect.
func (x *run) Snapshot() holdfast.AgentState { return x.agent.snapshot(x.turn.Offset) }

// Stale implements resident.Dialect.
func (x *run) Stale(ctx context.Context) (why string, err error) {
	d := &x.agent.data
	switch {
	case d.Model != x.t.Session.Model:
		return "the session's model has changed", nil
	case d.Prompt != nil && d.Prompt.Turn != x.t.ID:
		// The other turn ended before the agent answered its prompt.
		return "a prompt of another turn was under way", nil
	case d.Prompt != nil:
		return "", nil
	}
	// The agent has no prompt to answer, so the end of its process would not be noticed: ask the box.
	calls, err := x.turn.Box.Calls(ctx)
	if err != nil {
		return "", err
	}
	for _, c := range calls {
		if c.Call == x.turn.Recorder.State.Call && c.Status == wire.CallRunning {
			return "", nil
		}
	}
	return "the agent has ended", nil
}

// Start implements resident.Dialect. If the agent can load sessions and its stored session still exists, the new
// process is asked to load it; otherwise the process begins a new session.
func (x *run) Start(ctx context.Context) (resident.Start, error) {
	prog, err := x.r.cfg.Profile.Find(x.t.Session.Trust)
	if err != nil {
		return resident.Start{}, err
	}
	load, missing, err := x.kept(ctx)
	if err != nil {
		return resident.Start{}, err
	}
	if !load && (!x.agent.exists() || missing != "") {
		x.agent.replace(x.r.Name(), x.turn.States, holdfast.HealthLeft)
		if missing != "" {
			x.why = missing
		}
	}
	x.agent.stopped()
	d := &x.agent.data
	d.Model, d.At, d.Tier, d.Reason = x.t.Session.Model, x.t.Place.OnHost(), holdfast.TierInjected, x.why
	if load {
		d.Tier, d.Loading = holdfast.TierOwn, new(replay)
	}
	hello := x.greeter.hello()
	s := x.turn.Recorder.State
	s.Version = prog.Version
	return resident.Start{State: s, Hello: hello, Prepare: func(ctx context.Context, call holdfast.CallID) (wire.ExecRequest, error) {
		p, at := &x.r.cfg.Profile, wire.ListenRequest{Name: ModelListener, Network: "tcp", Address: modelAddress}
		if x.t.PortKey != "" {
			at.Name, at.Address = KeyedModelListener, "127.0.0.1:0"
		}
		address, err := x.turn.Box.Listen(ctx, at)
		return wire.ExecRequest{
			Argv: append(slices.Clone(prog.Argv), p.Args...), Cwd: x.t.Place.Workspace, Stdin: true, Lines: true,
			Env: p.environ(prog, x.t.Place, x.t.Session.Model, "http://"+address, cmp.Or(x.t.PortKey, heldKey), call),
		}, err
	}}, nil
}

// kept reports whether the agent can load its stored session; if not, missing says why. For an
// agent that has not opened a session, load is false and missing is empty.
func (x *run) kept(ctx context.Context) (load bool, missing string, err error) {
	p := &x.r.cfg.Profile
	switch {
	case !x.agent.exists() || x.turn.Recorder.State.AgentID == unnamed:
		return false, "", nil
	case p.State == "" || !x.agent.data.Loads:
		return false, "the agent cannot load a session", nil
	case x.agent.data.At != x.t.Place.OnHost():
		return false, resident.Moved, nil
	}
	_, err = x.turn.Box.Stat(ctx, wire.PathRequest{Path: path.Join(x.t.Place.Home, p.State)})
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return false, "the agent's stored session is gone", nil
	}
	return err == nil, "", err
}

// Resume implements resident.Dialect.
func (x *run) Resume(ctx context.Context, lost []resident.Sent) error {
	x.turn.Ready = x.agent.data.Phase == phaseReady
	for _, s := range lost {
		x.turn.Recorder.Touch()
		line := []byte(s.Line)
		if s.Ref == refPrompt {
			var err error
			if line, _, err = x.prompt(ctx); err != nil {
				return err
			}
		}
		x.turn.Outbox.Add(line, s.Ref)
	}
	if err := x.flush(ctx); err != nil {
		return err
	}
	x.calls.decideAll(ctx)
	return nil
}

// Advance implements resident.Dialect.
func (x *run) Advance(ctx context.Context) (over bool, err error) {
	if x.turn.Link == nil {
		x.calls.decideAll(ctx)
		return false, nil
	}
	if m := x.answer; m != nil {
		if x.turn.Halted {
			return true, nil
		}
		x.answer = nil
		if over, err := x.end(ctx, m); over || err != nil {
			return over, err
		}
	}
	if !x.turn.Ready || x.turn.Halted || x.agent.data.Prompt != nil || len(x.speech.unsaid()) == 0 {
		return false, nil
	}
	return false, x.say(ctx)
}

// prompt returns the line of the current prompt. The line is derived from the log and the agent's state, so it is
// the same each time. told describes the history in it.
func (x *run) prompt(ctx context.Context) (line []byte, told retell.Told, err error) {
	p, a := x.agent.data.Prompt, x.turn.Account
	if first := p.Messages[0]; first == a.Messages[0].Seq && !p.GoOn {
		o := retell.Options{After: p.After, Before: first}
		if told, err = retell.Session(ctx, x.host, o); err != nil {
			return nil, told, err
		}
	}
	var texts []string
	for _, m := range a.Messages {
		if slices.Contains(p.Messages, m.Seq) && !p.GoOn {
			texts = append(texts, m.Text)
		}
	}
	if p.GoOn {
		texts = append(texts, goOn)
	}
	texts = append(texts, a.Asides...)
	for _, w := range a.Warnings {
		texts = append(texts, "<system-reminder>"+w+"</system-reminder>")
	}
	if p.Instructs {
		texts = append(texts, "<system-reminder>\nInstructions of this session's agent:\n"+x.t.Instructions+"\n</system-reminder>")
	}
	line = request(p.ID, acp.AgentMethodSessionPrompt, acp.PromptRequest{
		SessionId: acp.SessionId(x.turn.Recorder.State.AgentID), Prompt: []acp.ContentBlock{acp.TextBlock(told.Prompt(strings.Join(texts, "\n\n")))},
	})
	return line, told, nil
}

// say sends the messages that the agent has not received as one prompt. A new agent also
// receives the instructions of the session's agent, once.
func (x *run) say(ctx context.Context) error {
	d, s := &x.agent.data, &x.turn.Recorder.State
	x.setMode()
	p := &prompt{
		ID: d.Next, Turn: x.t.ID, After: s.Upto,
		GoOn:      d.GoOn,
		Instructs: d.Most == 0 && s.Upto == 0 && strings.TrimSpace(x.t.Instructions) != "",
	}
	for _, m := range x.speech.unsaid() {
		p.Messages = append(p.Messages, m.Seq)
	}
	d.Next++
	d.Prompt = p
	line, told, err := x.prompt(ctx)
	if err != nil {
		return err
	}
	started := holdfast.AgentStarted{
		Tier: d.Tier, Turns: s.Turns + told.Turns, Of: x.completed, Truncated: told.Truncated, Reason: d.Reason,
	}
	switch {
	case d.Tier == "":
		started.Tier = holdfast.TierLive
	case d.Tier == holdfast.TierInjected && told.Block == "":
		started.Tier, started.Reason = holdfast.TierFresh, ""
	}
	x.turn.Receipt(started)
	x.turn.Outbox.Add(line, refPrompt)
	s.Turns, s.Upto = started.Turns, end
	d.Tier, d.Reason, d.GoOn, d.Said = "", "", false, p.Messages[len(p.Messages)-1]
	if err := x.flush(ctx); err != nil {
		return err
	}
	x.host.At("prompted")
	return nil
}

// setMode asks the agent to enter the mode that corresponds to the session's permission mode, if it offers
// that. It does not wait for the answer, because the agent handles the next prompt after this request.
func (x *run) setMode() {
	modes := x.r.cfg.Profile.Modes
	want, ok := modes[x.t.Session.Mode]
	if !ok {
		want = modes[""]
	}
	if !x.agent.offers(want) {
		return
	}
	d := &x.agent.data
	x.turn.Outbox.Add(request(d.Next, acp.AgentMethodSessionSetMode, acp.SetSessionModeRequest{
		SessionId: acp.SessionId(x.turn.Recorder.State.AgentID), ModeId: acp.SessionModeId(want),
	}), "")
	d.Next++
	d.Mode = want
}

// end handles the agent's answer to the prompt. If messages have joined the turn meanwhile, they
// become the next prompt, and the turn is not over.
func (x *run) end(ctx context.Context, m *jsonrpc.Message) (over bool, err error) {
	p, a := x.agent.data.Prompt, x.turn.Account
	var said prompted
	if m.Error == nil && json.Unmarshal(m.Result, &said) != nil {
		m.Error = &jsonrpc.Error{Message: "its answer to the prompt cannot be read"}
	}
	if m.Error != nil {
		x.speech.record("")
		x.turn.Uses.End("the agent's turn failed", false)
		x.agent.unsettle()
		return false, failure(x.r.cfg.Profile.Name, m.Error)
	}
	stop := clip.Counted(said.StopReason, 64)
	if stop == "" {
		stop = "end_turn"
	}
	// The agent reports no outcome any more for calls that are still open: end them before the last answer.
	x.turn.Uses.End("the agent ended its turn", false)
	if !x.speech.record(stop) && len(p.Tools) > 0 {
		a.Text = "" // the text in a.Text came before the agent's last tool call, so it is not the turn's result
	}
	a.Stop = stop
	a.Used = a.Used.Add(said.usage())
	x.agent.settle()
	x.host.At("answered")
	if err := x.turn.Steer(ctx); err != nil {
		return false, err
	}
	if len(x.speech.unsaid()) == 0 {
		return true, nil
	}
	a.Asides, a.Warnings = nil, nil
	return false, x.flush(ctx)
}

// Halt implements resident.Dialect.
func (x *run) Halt(ctx context.Context) (bool, error) {
	if x.Work() == resident.Idle || x.answer != nil {
		return false, nil
	}
	cancel := acp.CancelNotification{SessionId: acp.SessionId(x.turn.Recorder.State.AgentID)}
	x.turn.Outbox.Add(jsonrpc.Message{Method: acp.AgentMethodSessionCancel, Params: resident.Marshal(cancel)}.Encode(), "")
	x.calls.refuseAll()
	x.agent.data.Prompt.Cancelled = true
	x.turn.Recorder.Touch()
	return true, x.flush(ctx)
}

// Work implements resident.Dialect. It never returns Waiting for an agent that cannot load its session, so
// that the agent keeps its box: if the box were stopped, the turn could not continue.
func (x *run) Work() resident.Work {
	d := &x.agent.data
	switch {
	case d.Prompt == nil || d.Prompt.Turn != x.t.ID:
		return resident.Idle
	case d.Phase == phaseReady && d.Loads && x.r.cfg.Profile.State != "" && !d.Prompt.Cancelled && x.answer == nil && x.calls.wait():
		return resident.Waiting
	}
	return resident.Answering
}

// Cut implements resident.Dialect. The agent's text so far is recorded.
func (x *run) Cut(why resident.Cause) {
	p := x.agent.data.Prompt
	if x.Work() == resident.Idle {
		return
	}
	x.broken, x.harmless = p, !p.Produced && len(p.Parts) == 0 && !x.turn.Uses.Open() && !p.Cancelled
	x.speech.record(string(why))
	x.agent.unsettle()
}

// Gone implements resident.Dialect. If the process ended by itself while it loaded its stored session, a new agent
// replaces it. A prompt that had no effect is sent once more. A prompt with a tool call that waited for a decision is
// continued with a reminder, but only once if the process ended by itself.
func (x *run) Gone(how string, work resident.Work, byItself bool) (again bool) {
	d := &x.agent.data
	x.why = how
	loading, broken := d.Loading != nil, x.broken
	x.broken = nil
	x.agent.unsettle()
	x.agent.stopped()
	switch {
	case loading && byItself:
		x.why = "it did not start with its stored session: " + how
		x.agent.quarantine(x.r.Name(), x.turn.States, x.why)
		return true
	case broken == nil:
		return false
	case work == resident.Waiting && (!byItself || d.Tries == 0):
		if byItself {
			d.Tries++
		}
		d.GoOn, d.Said = true, broken.Messages[0]-1
		return true
	case x.harmless && d.Tries == 0:
		d.Tries++
		d.Said = broken.Messages[0] - 1
		return true
	}
	d.Tries = 0
	return false
}
