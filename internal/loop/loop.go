package loop

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Entry is a fact to be recorded: an event without its number.
type Entry struct {
	Type holdfast.EventType
	// Data is the payload type of Type.
	Data any
}

// Recorder keeps what happens. Safe for concurrent use.
type Recorder interface {
	// Record makes the entries durable, in order and all or none, before it
	// returns. The context does not end with the turn's. After an error the loop
	// records nothing more and returns it.
	Record(ctx context.Context, entries ...Entry) error
	// Delta shows what is not recorded (yet). It must not block.
	Delta(typ holdfast.EventType, data any)
}

// Boxes is where tools act. Safe for concurrent use.
type Boxes interface {
	// Box is the connected box, started if need be; the same one until it is lost.
	Box(ctx context.Context) (*sandbox.Box, error)
	// Life says which box, in which life, a connection speaks to, and whether the
	// connection still stands.
	Life(box *sandbox.Box) (id holdfast.BoxID, boot string, alive bool)
	// Outcome asks what became of a recorded intent: the box to issue the call to
	// again, under its id, or lost when nobody can know.
	Outcome(ctx context.Context, started holdfast.ToolStarted) (box *sandbox.Box, lost bool, err error)
	// Release lets the box forget calls whose outcome is recorded.
	Release(box *sandbox.Box, calls ...holdfast.CallID)
}

// Joined is a user message that joined a running turn.
type Joined struct {
	Seq  int64
	Text string
}

// Meter guards what a turn may use up. Safe for concurrent use.
type Meter interface {
	// Bounded reports whether there is any budget.
	Bounded() bool
	// Reserve sets aside what a model call may use up at the most, or refuses it;
	// settle is called once, before the call's outcome is recorded.
	Reserve(most holdfast.Usage) (settle func(used holdfast.Usage, answered bool), err error)
	// Park waits until a time; its error ends the run.
	Park(ctx context.Context, until time.Time) error
}

// Hooks hear of what happens in a turn. With hooks an answer of the model is
// recorded before its calls are decided. Safe for concurrent use.
type Hooks interface {
	// Fire runs the hooks for an event. What they said is recorded with the next
	// record.
	Fire(ctx context.Context, in hook.Input) hook.Result
	// Said are the texts for the model since it was called last; those of Decide
	// are among them.
	Said() []string
	// Waits reports whether any hook would run for an event. If none would, the caller does
	// not look for the data of the event, such as the files that a command changed.
	Waits(in hook.Input) bool
}

// Env is what surrounds one turn. Recorder, Policy and, with tools that act in a
// box, Boxes and NewCall are required.
type Env struct {
	Recorder Recorder
	Boxes    Boxes
	Policy   policy.Decider
	// Steered returns the messages that joined the turn after a log entry; nil is
	// none. It is asked before each model call.
	Steered func(ctx context.Context, after int64) ([]Joined, error)
	// NewCall mints the id of a mutating call.
	NewCall func() (holdfast.CallID, error)
	// Meter guards the turn's budgets; may be nil.
	Meter Meter
	// Hooks hear of tool calls; may be nil.
	Hooks Hooks
	// At marks kill points for crash tests; may be nil.
	At func(point string)
}

// The loop's defaults.
const (
	DefaultParallel = 4
	DefaultMaxSteps = 200
	// maxContent is where a tool's result is cut, in bytes, whatever the tool thinks.
	maxContent = 1 << 20
	// boxPatience is how long a commit waits for a box so that the intent can be
	// part of it.
	boxPatience = 20 * time.Millisecond
	// afterCancel is how long a cancelled turn may take to settle its calls.
	afterCancel = 15 * time.Second
)

// Loop runs turns. It is immutable once used and safe for concurrent use.
type Loop struct {
	Provider model.Provider
	Tools    *Toolset
	// Parallel bounds the tools that only read and run at once; 0 is DefaultParallel.
	Parallel int
	// MaxSteps bounds the model calls of a turn; 0 is DefaultMaxSteps.
	MaxSteps int
	Retry    Retry
	// MaxTokens bounds each answer; 0 leaves it to the provider.
	MaxTokens int
	// Book prices the calls; may be nil.
	Book model.Book
	// Now and Rand (in [0,1)) are required.
	Now  func() time.Time
	Rand func() float64
}

// run is one turn under way.
type run struct {
	*Loop
	env    Env
	c      Conversation
	batch  batch
	caller caller
	teller teller
	// warm is true once the box answered in this turn, so it will answer at once.
	warm bool
	// noBox is the error of a box that could not be started; it ends the turn.
	noBox error
}

// Run carries a turn from where the conversation stands to its result. When ctx
// ends, it cancels the running tools, records an answer to every open tool use
// and returns ctx's cause. A failed model call is unauthenticated, busy, invalid
// or unavailable by its class; too many steps are too_large; a failed record, and
// the error of a box that cannot be had, are returned as they came. With an error
// the Result tells only Seen, Usage, Steps and Messages.
func (l *Loop) Run(ctx context.Context, c Conversation, env Env) (Result, error) {
	if l.Provider == nil || l.Tools == nil || l.Now == nil || l.Rand == nil || env.Recorder == nil || env.Policy == nil {
		return Result{}, holdfast.Errorf(holdfast.KindInvalid, "loop", "a loop needs Provider, Tools, Now, Rand, Recorder and Policy")
	}
	if env.At == nil {
		env.At = func(string) {}
	}
	r := &run{
		Loop: l, env: env, c: c,
		batch: batch{ctx: context.WithoutCancel(ctx), rec: env.Recorder, boxes: env.Boxes, at: env.At},
	}
	r.caller = caller{loop: l, meter: env.Meter, rec: env.Recorder, at: env.At, batch: &r.batch}
	r.teller = teller{hooks: env.Hooks, batch: &r.batch}
	res, err := r.goOn(ctx)
	res.Seen, res.Usage, res.Steps, res.Messages = r.c.Seen, r.c.Usage, r.c.Steps, r.c.Messages
	return res, err
}

// goOn answers what is pending and lets the steps follow.
func (r *run) goOn(ctx context.Context) (Result, error) {
	c := r.c
	if len(c.Pending) > 0 {
		if err := r.answer(ctx, c.Pending); err != nil {
			return Result{}, err
		}
		r.c.Pending = nil
	}
	r.say(c.Joined...)
	switch {
	case ctx.Err() != nil:
	case c.Parked.After(r.Now()):
		// Nobody was asked yet after the wait that the log tells of.
		if err := r.caller.wait(ctx, c.Parked); err != nil {
			return Result{}, err
		}
	case c.Reissue:
		r.batch.add(holdfast.EventNotice, holdfast.Notice{
			Code: NoticeReissued,
			Text: "the model is asked again after an interruption of the server; what it had begun to say is void",
		})
		if err := r.batch.flush(); err != nil {
			return Result{}, err
		}
	}
	return r.steps(ctx)
}

// steps alternates model calls and tool calls.
func (r *run) steps(ctx context.Context) (Result, error) {
	limit := r.MaxSteps
	if limit == 0 {
		limit = DefaultMaxSteps
	}
	for {
		if err := r.listen(ctx); err != nil {
			return Result{}, err
		}
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		if r.c.Steps >= limit {
			return Result{}, holdfast.Errorf(holdfast.KindTooLarge, "agent", "the turn took %d model calls, its limit", r.c.Steps).
				WithHint("send another message to let the agent go on")
		}
		a, err := r.caller.ask(ctx, &r.c)
		if err != nil {
			return Result{}, err
		}
		r.c.Steps++
		if len(a.uses) == 0 {
			final := a.entries(&r.c)
			r.c.Messages = append(r.c.Messages, model.Message{Role: model.Assistant, Blocks: a.blocks})
			return Result{Final: final, Text: a.text(), StopReason: a.stop}, nil
		}
		r.batch.entries = append(r.batch.entries, a.entries(&r.c)...)
		r.c.Messages = append(r.c.Messages, model.Message{Role: model.Assistant, Blocks: a.blocks})
		if err := r.answer(ctx, a.uses); err != nil {
			return Result{}, err
		}
	}
}

// listen takes in the messages that joined the turn.
func (r *run) listen(ctx context.Context) error {
	if r.env.Steered == nil || ctx.Err() != nil {
		return nil
	}
	joined, err := r.env.Steered(ctx, r.c.Seen)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	for _, j := range joined {
		r.say(j.Text)
		r.c.Seen = max(r.c.Seen, j.Seq)
	}
	return nil
}

// say adds user texts to the conversation.
func (r *run) say(texts ...string) {
	for _, t := range texts {
		r.c.Messages = AppendUser(r.c.Messages, model.Block{Type: model.Text, Text: t})
	}
}

// AppendUser adds blocks of the user, to the last message when that is the
// user's. It writes into msgs, never into the blocks of a message.
func AppendUser(msgs []model.Message, blocks ...model.Block) []model.Message {
	if n := len(msgs); n > 0 && msgs[n-1].Role == model.User {
		msgs[n-1].Blocks = append(slices.Clip(msgs[n-1].Blocks), blocks...)
		return msgs
	}
	return append(msgs, model.Message{Role: model.User, Blocks: blocks})
}
