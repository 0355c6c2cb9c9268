package loop

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Entry is an event to be recorded, without its number.
type Entry struct {
	Type holdfast.EventType
	// Data is the payload type of Type.
	Data any
}

// Recorder records the events of a turn. Safe for concurrent use.
type Recorder interface {
	// Record makes the entries durable before it returns, in order, all or none. ctx does not end
	// when the turn is cancelled. After an error the loop records nothing more and returns the error.
	Record(ctx context.Context, entries ...Entry) error
	// Delta sends text that is not recorded, or not yet, to live readers. It must not block.
	Delta(typ holdfast.EventType, data any)
}

// Boxes gives access to the box in which tools act. Safe for concurrent use.
type Boxes interface {
	// Box returns the connected box and starts it if necessary; it returns the same one until that is
	// lost.
	Box(ctx context.Context) (*sandbox.Box, error)
	// Life identifies the box of a connection: its id and, as boot, the start of it that the connection
	// reached. alive tells whether the connection is still open.
	Life(box *sandbox.Box) (id holdfast.BoxID, boot string, alive bool)
	// Outcome finds the box that may have received a call whose intent was recorded. The caller issues the
	// call to it again under the same id. lost is true if the call's result cannot be known any more.
	Outcome(ctx context.Context, started holdfast.ToolStarted) (box *sandbox.Box, lost bool, err error)
	// Release lets the box forget calls whose results are recorded.
	Release(box *sandbox.Box, calls ...holdfast.CallID)
}

// Joined is a user message that joined a running turn.
type Joined struct {
	Seq  int64
	Text string
}

// Env gives a turn access to everything outside the loop. Recorder and Policy are required. Boxes is
// required if a tool acts in a box, NewCall if a tool changes something.
type Env struct {
	Recorder Recorder
	Boxes    Boxes
	Policy   policy.Decider
	// Steered returns the user messages after an event number that joined the running turn. It is called
	// before each model call. A nil Steered means that no message can join.
	Steered func(ctx context.Context, after int64) ([]Joined, error)
	// NewCall returns a new id for a mutating call.
	NewCall func() (holdfast.CallID, error)
	// Meter keeps the turn within its budgets; may be nil.
	Meter model.Meter
	// Hooks runs hooks for tool calls; may be nil.
	Hooks hook.Turn
	// Unsaved becomes the field Unsaved of each tool.Call, by which a tool asks for unsaved texts of files;
	// may be nil.
	Unsaved tool.Unsaved
	// At is called at certain points of the loop with the name of the point, for crash tests; may be nil.
	At func(point string)
}

// The loop's defaults.
const (
	DefaultParallel = 4
	DefaultMaxSteps = 200
	// maxContent is the largest result of a tool, in bytes; the rest is cut off.
	maxContent = 1 << 20
	// boxPatience is how long a batch is held back while a box starts, so that the intent can be recorded with it.
	boxPatience = 20 * time.Millisecond
	// afterCancel is how long a cancelled turn may wait for the results of its calls.
	afterCancel = 15 * time.Second
)

// Loop runs turns. It is immutable once used and safe for concurrent use.
type Loop struct {
	Provider model.Provider
	Tools    *Toolset
	// Parallel is how many read-only tools may run at once; 0 means DefaultParallel.
	Parallel int
	// MaxSteps is the largest number of model calls of a turn; 0 means DefaultMaxSteps.
	MaxSteps int
	Retry    Retry
	// MaxTokens is the largest size of each answer; 0 leaves it to the provider.
	MaxTokens int
	// Book prices the calls; may be nil.
	Book model.Book
	// Now and Rand (in [0,1)) are required.
	Now  func() time.Time
	Rand func() float64
}

// run is the state of one turn while Run runs it.
type run struct {
	*Loop
	env    Env
	c      Conversation
	batch  batch
	caller caller
	teller teller
	// warm is true once a box has been obtained in this turn, so that Box returns at once.
	warm bool
	// noBox is the error with which a box could not be started; it ends the turn.
	noBox error
}

// Run continues a turn from the conversation to its result. When ctx ends, it cancels the running
// tools, records an answer to every open tool use, and returns ctx's cause. A failed model call is
// unauthenticated, denied, busy, invalid or unavailable by its class; too many steps are too_large.
// Errors of Record, and of a box that cannot be started, keep their kind and text. With an error,
// only Seen, Usage, Steps and Messages of the Result are set.
func (l *Loop) Run(ctx context.Context, c Conversation, env Env) (Result, error) {
	if l.Provider == nil || l.Tools == nil || l.Now == nil || l.Rand == nil || env.Recorder == nil || env.Policy == nil {
		return Result{}, holdfast.Errorf(holdfast.KindInvalid, "loop", "the agent loop needs Provider, Tools, Now, Rand, Recorder and Policy")
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

// goOn carries out the pending tool uses, and then alternates model calls and tool calls to the end of the turn.
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
		// The log has the notice of this wait and no model call after it: wait for what remains of it.
		if err := r.caller.wait(ctx, c.Parked); err != nil {
			return Result{}, err
		}
	case c.Reissue:
		r.batch.add(holdfast.EventNotice, holdfast.Notice{
			Code: NoticeReissued,
			Text: "the model is asked again after an interruption of the server; the text that it had begun is void",
		})
		if err := r.batch.flush(); err != nil {
			return Result{}, err
		}
	}
	return r.steps(ctx)
}

// steps alternates model calls and tool calls until an answer has no tool use.
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
			return Result{}, holdfast.Errorf(holdfast.KindTooLarge, "agent", "the turn took %d model calls, the most that a turn may take", r.c.Steps).
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

// listen adds the messages that joined the turn to the conversation.
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

// AppendUser adds user blocks to the last message if that is the user's, or else as a new message.
// It changes msgs, but not the blocks of its messages.
func AppendUser(msgs []model.Message, blocks ...model.Block) []model.Message {
	if n := len(msgs); n > 0 && msgs[n-1].Role == model.User {
		msgs[n-1].Blocks = append(slices.Clip(msgs[n-1].Blocks), blocks...)
		return msgs
	}
	return append(msgs, model.Message{Role: model.User, Blocks: blocks})
}
