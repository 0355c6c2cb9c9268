package claude

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

const (
	// mostLine is the most bytes of a line of the CLI.
	mostLine = 12 << 20
	// handshakeTime is how long the CLI may take to answer its first request.
	handshakeTime = 60 * time.Second
	// haltTime is how long the CLI may take to stop after an interrupt.
	haltTime = 5 * time.Second
	// tailTime is how long the end of a turn waits at most for the last answer in the mirrored transcript.
	tailTime = 500 * time.Millisecond
	// mostStarts is the most starts of the CLI in one turn, not counting a start whose transcript was refused or whose
	// box was stopped.
	mostStarts = 2
)

// refHello is the name (Ref) under which the outbox stores the handshake's line, so that it can be generated again.
const refHello = "hello"

// run is one turn on the CLI: the Dialect of resident.Run.
type run struct {
	r    *Runtime
	t    runtime.Turn
	host runtime.Host
	turn *resident.Run

	mem     memory
	letters *letters
	inbox   *inbox
	asks    *requests
	speech  *speech

	// plan and facts are those from which this run started the CLI; plan is nil if it has not.
	plan  *plan
	facts facts
	// warming is true if the run only starts the CLI, without a turn.
	warming bool
	// stale says why the running CLI cannot be used any more. refused says why the CLI did not accept the
	// transcript that it was started with.
	stale, refused string

	// model is the CLI's model before a change that was sent while it was unknown whether the CLI runs.
	model string
	// awaited is the uuid of the newest answer's last line: the end of the turn waits for it in the mirrored
	// transcript.
	awaited string
	// over is the result line that ends the run; fail is the error that this line reports, or nil.
	over *line
	fail error
}

var _ resident.Dialect = (*run)(nil)

// Require implements runtime.Requirer.
func (r *Runtime) Require(trust holdfast.Trust) error {
	_, err := r.cfg.Program(trust)
	return err
}

// Run implements runtime.Runtime.
func (r *Runtime) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
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
	for {
		if err := x.waitParked(ctx); err != nil && ctx.Err() == nil {
			return runtime.Result{}, err
		}
		switch err := x.turn.Drive(ctx, x); {
		case err == nil:
			return x.result(x.turn.Recorder.Due()), nil
		case !errors.Is(err, errParked):
			return runtime.Result{}, err
		}
	}
}

// errNoWarm is why Warm starts no agent: the history must be sent together with the first prompt.
var errNoWarm = errors.New("the agent is started only with its next prompt, because that prompt must contain its history")

// Warm implements runtime.Warmer: it starts the CLI up to the end of the handshake.
func (r *Runtime) Warm(ctx context.Context, t runtime.Turn, host runtime.Host) error {
	x := r.newRun(t, host)
	x.warming = true
	if err := x.load(ctx); err != nil {
		return err
	}
	return x.turn.Warm(ctx, x)
}

func (r *Runtime) newRun(t runtime.Turn, host runtime.Host) *run {
	turn := resident.New(&r.run, t.ID, host)
	turn.GiveBack = t.GiveBack
	x := &run{r: r, t: t, host: host, turn: turn}
	x.letters = &letters{turn: t.ID, account: turn.Account, out: turn.Outbox, folder: t.Folder}
	x.inbox = &inbox{out: turn.Outbox, rec: turn.Recorder}
	mcp := &server{host: host, turn: turn, inbox: x.inbox, tools: r.cfg.Host, flush: x.flush, calling: map[string]bool{}}
	x.asks = &requests{t: &x.t, host: host, turn: turn, inbox: x.inbox, server: mcp, flush: x.flush, deciding: map[string]bool{}}
	x.speech = &speech{t: &x.t, host: host, turn: turn, letters: x.letters, inbox: x.inbox, asks: x.asks, flush: x.flush}
	x.asks.asm = &x.speech.asm
	return x
}

// flush commits the events that wait, and then sends the lines that had to wait for that commit.
func (x *run) flush(ctx context.Context) error { return x.turn.Flush(ctx, x) }

// load reads the turn from the log and the agent's state.
func (x *run) load(ctx context.Context) error {
	if _, err := x.turn.LoadState(ctx); err != nil {
		return err
	}
	s := &x.turn.Recorder.State
	if err := resident.Decode(s, op, &x.mem); err != nil {
		return err
	}
	x.letters.list, x.inbox.list, x.turn.Outbox.Sent, x.speech.leaf = x.mem.Sent, x.mem.Pending, x.mem.Out, x.mem.Leaf
	after := s.Upto
	if x.mem.Turn == x.t.ID {
		after = x.mem.From
	}
	if err := x.turn.LoadLog(ctx, after, false); err != nil || x.warming {
		return err
	}
	if x.mem.Turn != x.t.ID {
		x.begin()
	}
	return nil
}

// begin resets the memory for this turn.
func (x *run) begin() {
	m := &x.mem
	m.Turn, m.Known, m.Starts, m.Parked, m.Parks = x.t.ID, x.turn.Recorder.State.Turns, 0, false, 0
	if all := x.turn.Account.Messages; len(all) > 0 {
		m.From = all[0].Seq - 1
	}
	// If the previous turn ended without a result, the CLI may still work on that turn's messages.
	if x.letters.open() || x.inbox.opens() {
		x.stale = "it was busy when the last turn ended"
	}
	m.Prefaced = m.Prefaced && !x.letters.begun()
	x.letters.list = nil
	x.inbox.drop(pending.open)
}

// finished reports whether every message of the turn was sent and answered.
func (x *run) finished() bool {
	return len(x.letters.list) > 0 && !x.mem.Parked && len(x.letters.unsent()) == 0 && !x.letters.open()
}

// result returns the result of a turn that succeeded.
func (x *run) result(final []journal.Draft) runtime.Result {
	a := x.turn.Account
	_, last := x.letters.seen()
	s := x.Snapshot()
	s.Turns, s.Upto = x.mem.Known+1, math.MaxInt64
	return runtime.Result{
		Final: final, Seen: last, Text: a.Text, StopReason: a.Stop, Usage: a.Used, Steps: a.Steps, States: []holdfast.AgentState{s},
	}
}

// Snapshot implements resident.Dialect. The lines of an incomplete answer are read again after a crash.
func (x *run) Snapshot() holdfast.AgentState {
	s := x.turn.Recorder.State
	s.Taken, s.Upto = x.turn.Offset, max(x.turn.Recorder.Seq, s.Upto)
	if o := x.speech.asm.open; o != nil {
		s.Taken = o.from
	}
	x.mem.Sent, x.mem.Pending, x.mem.Out, x.mem.Leaf = x.letters.list, x.inbox.list, x.turn.Outbox.Sent, x.speech.leaf
	s.Data = resident.Marshal(x.mem)
	return s
}

// Stale implements resident.Dialect.
func (x *run) Stale(context.Context) (string, error) {
	if x.letters.forgetAhead() {
		x.mem.Model = x.model
	}
	x.model = x.mem.Model
	switch {
	case x.stale != "":
		return x.stale, nil
	case x.turn.Others > 0:
		return "another runtime has run turns since", nil
	case x.mem.Prefaced && !x.letters.begun():
		return "it has not begun with the prompt that contains the history", nil
	}
	if !x.mem.Shaken || x.mem.Parked || x.warming || len(x.letters.list) > 0 || x.inbox.opens() {
		return "", nil
	}
	// If the CLI still runs, it only waits for the next message. So send the new messages before this is known.
	err := x.prompts()
	x.letters.sentAhead()
	return "", err
}

// Resume implements resident.Dialect.
func (x *run) Resume(ctx context.Context, lost []resident.Sent) error {
	x.turn.Ready = x.mem.Shaken
	for _, s := range lost {
		x.turn.Recorder.Touch()
		switch s.Ref {
		case "":
			x.turn.Outbox.Add(s.Line, "")
		case refHello:
			x.turn.Outbox.Add(x.hello(), refHello)
		default:
			x.letters.again(s.Ref)
		}
	}
	x.asks.pursueAll(ctx)
	ahead := x.letters.arrived()
	if x.mem.Shaken && (ahead || len(x.letters.list) == 0) {
		x.receipt(holdfast.TierLive)
		if !ahead && !x.turn.Outbox.Queued() {
			return nil // the receipt of the start is committed with the next prompt
		}
	}
	if len(x.letters.list) > 0 || x.turn.Outbox.Queued() {
		return x.flush(ctx)
	}
	return nil
}

// hello returns the first line for the CLI: the handshake.
func (x *run) hello() []byte {
	t := &x.t
	return handshake(t.Instructions, cli.Agents(t.Folder), len(x.r.cfg.Host) > 0)
}

// tell sends the CLI the messages that were not sent yet, and commits that at the same time. A
// reminder is in no log, so it is committed first.
func (x *run) tell(ctx context.Context) error {
	if x.mem.Parked {
		if err := x.setModel(); err != nil {
			return err
		}
		x.mem.Parked = false
		x.letters.send(x.turn.Recorder.State.Call, 0, int64(-x.mem.Parks), goOn)
		x.turn.Recorder.Touch()
		if err := x.flush(ctx); err != nil {
			return err
		}
	}
	if err := x.prompts(); err != nil {
		return err
	}
	if err := x.turn.Link.In.Add(x.turn.Outbox.Take()...); err != nil {
		return err
	}
	return x.flush(ctx)
}

// prompts adds the messages that were not sent yet to the outbox, after a change of the model if there is one.
func (x *run) prompts() error {
	if err := x.setModel(); err != nil {
		return err
	}
	f := x.t.Folder
	for _, m := range x.letters.unsent() {
		text := f.Qualify(m.Text)
		if len(x.letters.list) == 0 && x.plan != nil && x.plan.preface != "" {
			// The CLI does not recognize a command that comes after other text, so replace the command by its text.
			text = x.plan.preface + f.Expand(m.Text)
		}
		x.letters.send(x.turn.Recorder.State.Call, m.Seq, m.Seq, text)
		x.turn.Recorder.Touch()
	}
	return nil
}

// setModel tells the CLI the session's model if that has changed.
func (x *run) setModel() error {
	model, err := modelOf(x.t.Session.Model)
	if err != nil || model == x.mem.Model {
		return err
	}
	x.mem.Model = model
	x.turn.Outbox.Add(control("hf-model", object{"subtype": "set_model", "model": model}), "")
	return nil
}

// Advance implements resident.Dialect. Messages are sent before the handshake is answered: the
// CLI reads the handshake first, and if it does not answer, the run ends.
func (x *run) Advance(ctx context.Context) (over bool, err error) {
	switch {
	case x.turn.Link == nil:
		x.asks.pursueAll(ctx)
		return false, nil
	case x.warming && x.mem.Shaken, x.turn.Halted && x.over != nil:
		return true, nil
	case x.warming, x.turn.Halted:
		return false, nil
	}
	if x.over != nil {
		if leaf := x.speech.leaf; leaf != "" && x.speech.mirrored != leaf {
			if x.awaited != leaf {
				x.awaited = leaf
				x.turn.Decisions.After(tailTime, func(context.Context) error {
					x.speech.mirrored = leaf
					return nil
				})
			}
			return false, nil
		}
		if x.fail != nil {
			return false, x.fail
		}
		if err := x.turn.Steer(ctx); err != nil {
			return false, err
		}
		if len(x.letters.unsent()) == 0 {
			x.turn.Uses.End("the agent did not report the outcome of this tool use", false)
			x.inbox.list = nil
			return true, nil
		}
		x.over = nil
	}
	if len(x.letters.unsent()) == 0 && !x.mem.Parked {
		return false, nil
	}
	return false, x.tell(ctx)
}

// Halt implements resident.Dialect.
func (x *run) Halt(context.Context) (bool, error) {
	if x.over != nil || !x.letters.open() {
		return false, nil
	}
	return true, x.turn.Link.In.Add(control("hf-interrupt", object{"subtype": "interrupt", "cancel_queued": true}))
}

// Work implements resident.Dialect.
func (x *run) Work() resident.Work {
	switch {
	case !x.letters.open():
		return resident.Idle
	case x.mem.Shaken && !x.mem.Parked && x.over == nil && x.speech.asm.open == nil && len(x.letters.unsent()) == 0 && x.asks.wait():
		return resident.Waiting
	}
	return resident.Answering
}

// Cut implements resident.Dialect.
func (x *run) Cut(why resident.Cause) {
	x.speech.cut(why)
	x.inbox.list = nil
}

// Gone implements resident.Dialect.
func (x *run) Gone(how string, work resident.Work, byItself bool) (again bool) {
	if byItself && x.plan != nil && x.plan.resume != "" && !x.mem.Shaken && x.refused == "" {
		// The CLI refused the transcript, so start it next without that transcript.
		x.refused = clip.Counted(how, 300)
		x.mem.Starts--
	}
	waited := work == resident.Waiting
	if waited {
		// The CLI's transcript holds the messages, so the next process gets only a reminder to continue.
		x.letters.done()
		if x.mem.Parked = true; !byItself {
			x.mem.Starts-- // not counted as a failed start: the box was stopped, which may happen often
		}
	}
	x.speech.asm, x.stale = assembler{}, ""
	x.restarted()
	return (waited || !x.turn.Uses.Began()) && x.mem.Starts < mostStarts
}

// restarted clears the fields that describe the previous process.
func (x *run) restarted() {
	x.mem.Shaken, x.speech.leaf = false, ""
	if !x.mem.Parked {
		x.letters.list = nil
	}
	x.inbox.list = nil
}

// modelOf returns the CLI's name of a session's model.
func modelOf(name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "anthropic/"):
		return strings.TrimPrefix(name, "anthropic/"), nil
	case name == "scripted", name == "":
		return scriptedModel, nil
	case strings.HasPrefix(name, "claude-"):
		return name, nil
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, op, "the runtime claude cannot use the model %s", holdfast.Quote(name)).
		WithHint("holdfast session update SESSION --model anthropic/NAME")
}

// scriptedModel is the model that the CLI requests in sessions of the scripted model.
const scriptedModel = "claude-sonnet-5-5"
