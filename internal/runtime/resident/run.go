package resident

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// steerEvery is the interval at which a run asks for messages that joined the turn.
	steerEvery = 100 * time.Millisecond
	// batch is the most lines after a first one that share its commit.
	batch = 256
	// quietTime is how long an agent must have been silent before the run detaches from it to wait
	// for a decision; waitEvery is the interval at which the run then looks for messages.
	quietTime, waitEvery = 5 * time.Second, time.Second
	// mostLost is how often the connection to the box may break in one run.
	mostLost = 20
	// mostInputs is the most bytes of the inputs of a turn's tool uses.
	mostInputs = 64 << 20
)

// errWaits is the error of an attempt that ended because the agent waits for a decision.
var errWaits = errors.New("the agent waits for a decision")

// errGone is the error of an attempt whose attachment ended without the run detaching.
var errGone = errors.New("the connection to the agent has ended")

// Config is what all runs of one runtime share. All fields but MostLine and Unreadable are required.
type Config struct {
	// Runtime is the runtime's name, Op the operation of its errors.
	Runtime, Op string
	// Agent is the agent's name in errors; Hint is the hint of the error that it cannot be started.
	Agent, Hint string
	Now         func() time.Time
	// Handshake is how long an agent may take to become ready, Grace how long to stop after an
	// interrupt.
	Handshake, Grace time.Duration
	// MostLine is the most bytes of a line of the agent; 0 means the default of Lines.
	MostLine int
	// Unreadable converts the error of output that cannot be read; nil leaves it unchanged.
	Unreadable func(error) error
}

// Host is what a run needs of the engine; runtime.Host implements it.
type Host interface {
	Keeper
	Log(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error]
	AgentStates(ctx context.Context) ([]holdfast.AgentState, error)
	Steered(ctx context.Context, after int64) ([]holdfast.Event, error)
	Box(ctx context.Context) (*sandbox.Box, error)
	Release(box *sandbox.Box, calls ...holdfast.CallID)
	NewCall() (holdfast.CallID, error)
	At(point string)
}

// Run carries out one turn on an agent in a box. A Dialect works with its parts. Make one with
// New, call LoadState and LoadLog, then Drive. Only one goroutine may use it.
type Run struct {
	// Box and Link are those of the newest attachment; nil before the first one, and while the run waits without one.
	Box  *sandbox.Box
	Link *Link

	Recorder  *Recorder
	Outbox    *Outbox
	Uses      *Ledger
	Account   *Account
	Decisions *Decisions

	// States are the states of the session's agents of all runtimes.
	States []holdfast.AgentState
	// Offset is the offset after the newest line that was handled.
	Offset int64
	// Ready is true once the agent accepts messages. The Dialect sets it.
	Ready bool
	// GiveBack gives the box back until the next call of Host.Box; nil keeps it.
	GiveBack func()
	// Halted is true once the agent was told to stop.
	Halted bool
	// Others is the number of messages of other turns that the agent does not know: they came after the
	// newest event in its conversation.
	Others int

	cfg   *Config
	host  Host
	turn  holdfast.TurnID
	began time.Time
	over  bool
	heard Heard
	// release are the calls of processes that have ended. After the next commit the box may forget them.
	release []holdfast.CallID
}

// New makes a Run for a turn. A run that only warms an agent has an empty turn id.
func New(cfg *Config, turn holdfast.TurnID, host Host) *Run {
	r := &Run{
		cfg: cfg, turn: turn, host: host, Recorder: NewRecorder(host, turn), Outbox: new(Outbox), Account: new(Account), Decisions: NewDecisions(),
	}
	r.Uses = NewLedger(cfg.Now, r.Recorder.Add)
	return r
}

// LoadState reads the states of the session's agents. It makes the current one of this runtime
// the state of the run, and reports whether there is one.
func (r *Run) LoadState(ctx context.Context) (found bool, err error) {
	ctx, cancel := late(ctx)
	defer cancel()
	if r.States, err = r.host.AgentStates(ctx); err != nil {
		return false, err
	}
	s := Current(r.States, r.cfg.Runtime)
	if s != nil {
		r.Recorder.State = *s
	}
	return s != nil, nil
}

// Current returns the state of the agent of a runtime with which the next turn continues, or nil.
func Current(states []holdfast.AgentState, runtime string) *holdfast.AgentState {
	for i, s := range states {
		if s.Runtime == runtime && s.Health == holdfast.HealthCurrent {
			return &states[i]
		}
	}
	return nil
}

// LoadLog reads the events of the turn after an event number. If the turn is not running
// according to the log, it returns KindInternal. If parts is true, an answer that comes while tool
// uses are open is the rest of the previous answer.
func (r *Run) LoadLog(ctx context.Context, after int64, parts bool) error {
	outer := ctx
	ctx, cancel := late(ctx)
	defer cancel()
	for ev, err := range r.host.Log(ctx, after) {
		if err != nil {
			return err
		}
		r.Recorder.Seq = ev.Seq
		if ev.Turn != r.turn {
			if ev.Type == holdfast.EventMessageUser && ev.Agent == "" && ev.Seq > r.Recorder.State.Upto {
				r.Others++
			}
			continue
		}
		if ev.Agent != "" {
			continue // skip an event of a child agent
		}
		if err := errors.Join(r.Account.Fold(ev, parts && r.Uses.Open()), r.Uses.Fold(ev)); err != nil {
			return err
		}
	}
	if r.turn != "" && (!r.Account.Live || r.Account.Ended) {
		return holdfast.Errorf(holdfast.KindInternal, r.cfg.Op, "turn %s is not running, according to the session's log", holdfast.Quote(string(r.turn)))
	}
	return r.rejoin(outer)
}

// rejoin fetches the messages that joined the turn from the host, in the place of those from the log: a message
// may have been recorded after hooks ran the last time, and Steered runs them. If ctx ends meanwhile, these
// messages stay out, because the turn ends.
func (r *Run) rejoin(ctx context.Context) error {
	if len(r.Account.Messages) < 2 {
		return nil
	}
	r.Account.Messages = r.Account.Messages[:1]
	if err := r.Steer(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// late returns ctx, or, if ctx has ended, a context for lateTime more: the open tool uses of a cancelled turn
// still need outcomes.
func late(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), lateTime)
}

// Drive continues the turn until it is over, with several processes of the agent one after another if needed.
// Afterwards it detaches from the agent. An agent that has answered runs on; one that is still busy with a failed or
// cancelled turn is ended.
func (r *Run) Drive(ctx context.Context, d Dialect) error {
	inner, stop := r.begin(ctx)
	defer stop()
	for lost := 0; ; {
		err := r.wait(inner, ctx, d)
		if err == nil {
			err = r.attempt(inner, ctx, d)
		}
		r.detach()
		again, err := r.judge(ctx, d, err, &lost)
		if err != nil || !again {
			return err
		}
	}
}

// Warm starts the agent, unless one runs, and detaches from it when it is ready.
func (r *Run) Warm(ctx context.Context, d Dialect) (err error) {
	if r.Box, err = r.host.Box(ctx); err != nil {
		return err
	}
	if s := &r.Recorder.State; s.Call != "" && s.Boot == r.Box.Boot() {
		return nil // a process is stored for this start of the box; the next turn finds out whether it still runs
	}
	inner, stop := r.begin(ctx)
	defer stop()
	if err = r.start(inner, d); err == nil {
		err = r.converse(inner, ctx, d)
	}
	r.detach()
	if err != nil && r.Link != nil {
		r.end(ctx, d)
	}
	return errors.Join(err, r.Flush(ctx, d))
}

// begin returns the context for decisions, and a function that ends them and detaches from the
// agent.
func (r *Run) begin(ctx context.Context) (context.Context, func()) {
	inner, cancel := context.WithCancel(ctx)
	return inner, func() {
		cancel()
		r.Decisions.Stop()
		r.Decisions = NewDecisions()
		r.detach()
	}
}

// wait waits while the agent does nothing until a decision is made. Meanwhile the run is not
// attached and does not hold the box, which may be frozen and stopped (HZ-15). A decision that is
// made takes effect in the next attempt.
func (r *Run) wait(ctx, outer context.Context, d Dialect) error {
	if r.GiveBack == nil || outer.Err() != nil || d.Work() != Waiting {
		return nil
	}
	r.Box, r.Link = nil, nil
	r.GiveBack()
	r.host.At("waits")
	if _, err := d.Advance(ctx); err != nil {
		return err
	}
	steers := time.NewTicker(waitEvery)
	defer steers.Stop()
	for len(r.Decisions.Made) == 0 && d.Work() == Waiting {
		var err error
		select {
		case then := <-r.Decisions.Done():
			r.Decisions.Made = append(r.Decisions.Made, then)
		case then := <-r.Decisions.Apart():
			err = then(ctx)
		case <-steers.C:
			err = r.Steer(ctx)
		case <-outer.Done():
			err = context.Cause(outer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) detach() {
	if r.Link != nil {
		r.Link.Detach()
	}
}

// attempt continues the turn with the process that runs, or with one that it starts, until the
// turn or the attachment ends.
func (r *Run) attempt(ctx, outer context.Context, d Dialect) (err error) {
	if r.Box, err = r.host.Box(ctx); err != nil {
		return err
	}
	live, err := r.reattach(ctx, d)
	if err != nil {
		return err
	}
	if !live {
		if err := r.start(ctx, d); err != nil {
			return err
		}
	}
	return r.converse(ctx, outer, d)
}

// reattach attaches to the process in the state, if it still runs.
func (r *Run) reattach(ctx context.Context, d Dialect) (live bool, err error) {
	s := &r.Recorder.State
	if s.Call == "" {
		return false, nil
	}
	if s.Boot != r.Box.Boot() {
		return false, r.missing(ctx, d, "its sandbox has ended")
	}
	r.Outbox.Attach()
	why, err := d.Stale(ctx)
	if err != nil {
		return false, err
	}
	if why != "" {
		if err := r.kill(ctx); err != nil {
			return false, err
		}
		d.Gone(why, Idle, false)
		r.forget()
		return false, nil
	}
	r.Offset = s.Taken
	r.Link = Attach(ctx, r.Box, s.Call, wire.ExecRequest{}, s.Taken, r.cfg.MostLine)
	if err := r.Link.In.Add(r.Outbox.Take()...); err != nil {
		return false, err
	}
	taken, ok, err := r.Link.Begun(ctx)
	switch {
	case err != nil:
		return false, err
	case ok:
		r.Link.In.Begin(taken)
		return true, d.Resume(ctx, r.Outbox.Begun(taken))
	case r.Link.Lost():
		return false, errGone
	}
	how := r.Link.How()
	r.Link.Detach()
	r.Link = nil
	return false, r.missing(ctx, d, how)
}

// start starts an agent. Its call is committed with the state before the process runs (HZ-12),
// so that the next server finds it.
func (r *Run) start(ctx context.Context, d Dialect) error {
	r.began = r.cfg.Now()
	p, err := d.Start(ctx)
	if err != nil {
		return err
	}
	call, err := r.host.NewCall()
	if err != nil {
		return err
	}
	s := &r.Recorder.State
	*s = p.State
	s.Call, s.Box, s.Boot, s.Taken = call, r.Box.ID(), r.Box.Boot(), 0
	r.Offset, r.Ready, r.Others = 0, false, 0
	r.Outbox.Clear()
	r.Outbox.Attach()
	r.Outbox.Begun(0)
	r.Outbox.Add(p.Hello, p.HelloRef)
	r.Recorder.Touch()
	if err := r.commit(ctx, d); err != nil {
		return err
	}
	r.host.At("agent-intent")
	req, err := p.Prepare(ctx, call)
	if err != nil {
		return err
	}
	r.Link = Attach(ctx, r.Box, call, req, 0, r.cfg.MostLine)
	_, ok, err := r.Link.Begun(ctx)
	switch {
	case err != nil:
		return err
	case ok:
		err := r.Link.In.Add(r.Outbox.Take()...)
		r.host.At("agent-started")
		return err
	case r.Link.Lost():
		return errGone
	}
	return r.startError("cannot be started", r.Link.How())
}

// Receipt records how an agent was started, or that its process still runs (I-31). It fills in
// the agent and its process.
func (r *Run) Receipt(ev holdfast.AgentStarted) {
	s := &r.Recorder.State
	ev.Generation, ev.Runtime, ev.AgentID, ev.Version, ev.Call, ev.Box = s.Generation, s.Runtime, s.AgentID, s.Version, s.Call, s.Box
	if ev.Tier != holdfast.TierLive {
		ev.DurationMS = clock.Milliseconds(r.cfg.Now().Sub(r.began))
	}
	r.Recorder.Add(holdfast.EventAgentStarted, ev)
}

func (r *Run) startError(what, how string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, r.cfg.Op, "the turn cannot run, because %s %s: %s", r.cfg.Agent, what, how).WithHint("%s", r.cfg.Hint)
}

// converse handles the agent's lines, decisions and messages until the turn or the attachment ends.
func (r *Run) converse(ctx, outer context.Context, d Dialect) error {
	steers := time.NewTicker(steerEvery)
	defer steers.Stop()
	shake := time.NewTimer(r.cfg.Handshake)
	defer shake.Stop()
	halt := outer.Done()
	var kill <-chan time.Time
	made := r.Decisions.Made
	r.Decisions.Made = nil
	for _, then := range made {
		if err := then(ctx); err != nil {
			return err
		}
	}
	active := time.Now()
	for {
		over, err := d.Advance(ctx)
		if over || err != nil {
			r.over = over
			return err
		}
		select {
		case l, ok := <-r.Link.Lines():
			if !ok {
				return errors.Join(errGone, r.Flush(ctx, d))
			}
			active = time.Now()
			err = r.take(ctx, d, l)
		case then := <-r.Decisions.Done():
			active = time.Now()
			err = then(ctx)
		case then := <-r.Decisions.Apart():
			err = then(ctx)
		case <-steers.C:
			err = r.tick(ctx, d)
			if err == nil && r.GiveBack != nil && halt != nil && time.Since(active) >= quietTime && d.Work() == Waiting {
				err = cmp.Or(r.Flush(ctx, d), errWaits)
			}
		case <-shake.C:
			if !r.Ready {
				return r.unready(ctx, d)
			}
		case <-halt:
			halt = nil
			stops, err := d.Halt(ctx)
			if !stops || err != nil {
				return errors.Join(context.Cause(outer), err)
			}
			r.Halted = true
			t := time.NewTimer(r.cfg.Grace)
			defer t.Stop()
			kill = t.C
		case <-kill:
			return context.Cause(outer)
		}
		if err != nil {
			return err
		}
	}
}
