package native

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// Name is the runtime's name in sessions and agents.
const Name = "native"

const op = "native"

// readAfterCancel is how long reading the log of a cancelled turn may take.
const readAfterCancel = 15 * time.Second

// Config configures a Runtime. Provider, Now and Rand are required.
type Config struct {
	Provider model.Provider
	// Tools are the tools that agents may use, in the order in which the model gets them.
	Tools []tool.Tool
	// Parallel is the most read-only tools that run at once (default 4), MaxSteps the most model
	// calls of a turn (default 200).
	Parallel, MaxSteps int
	Retry              loop.Retry
	// MaxTokens is the most tokens of an answer; 0 leaves it to the provider.
	MaxTokens int
	// Book holds the prices of model calls; without it, calls have no price.
	Book model.Book
	// Unsaved returns the function by which a tool asks for unsaved texts of a session's files (see
	// tool.Call); nil if no editor is connected.
	Unsaved func(holdfast.SessionID) tool.Unsaved
	Now     func() time.Time
	// Rand returns a number in [0,1), for the jitter of retries.
	Rand func() float64
}

// Runtime implements runtime.Runtime. Make one with New.
type Runtime struct {
	loop    loop.Loop
	unsaved func(holdfast.SessionID) tool.Unsaved
}

// New makes the runtime. It returns KindInvalid if a required field of cfg is missing, or if a tool is
// incomplete or has the name of another one.
func New(cfg Config) (*Runtime, error) {
	if cfg.Provider == nil || cfg.Now == nil || cfg.Rand == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "Provider, Now and Rand of the native runtime's Config are required")
	}
	tools, err := loop.NewToolset(cfg.Tools...)
	if err != nil {
		return nil, err
	}
	return &Runtime{
		unsaved: cfg.Unsaved,
		loop: loop.Loop{
			Provider: cfg.Provider, Tools: tools, Parallel: cfg.Parallel, MaxSteps: cfg.MaxSteps,
			Retry: cfg.Retry, MaxTokens: cfg.MaxTokens, Book: cfg.Book, Now: cfg.Now, Rand: cfg.Rand,
		},
	}, nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return Name }

// Run implements runtime.Runtime.
func (r *Runtime) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	h, c, err := load(ctx, t, host)
	if err != nil {
		return runtime.Result{}, err
	}
	if h.spoke && len(c.Joined) == 0 {
		if ctx.Err() != nil {
			return runtime.Result{}, context.Cause(ctx)
		}
		return runtime.Result{Seen: c.Seen, Text: h.text, StopReason: h.stop, Usage: c.Usage, Steps: c.Steps}, nil
	}
	c.Session, c.Mode, c.Model = t.Session.ID, t.Session.Mode, t.Session.Model
	c.System = systemPrompt(t)
	env := &env{Host: host, turn: t.ID, folder: t.Folder}
	around := loop.Env{
		Recorder: env, Boxes: env, Policy: env, Steered: env.steered, NewCall: host.NewCall, At: host.At,
		Meter: t.Meter, Hooks: t.Hooks,
	}
	if r.unsaved != nil {
		around.Unsaved = r.unsaved(t.Session.ID)
	}
	if t.Hooks != nil {
		if c.Joined, err = env.joined(ctx, h.steers); err != nil {
			return runtime.Result{}, err
		}
	}
	res, err := r.loop.Run(ctx, c, around)
	return runtime.Result{
		Final: env.drafts(res.Final), Seen: res.Seen, Text: res.Text, StopReason: res.StopReason,
		Usage: res.Usage, Steps: res.Steps,
	}, err
}

// joined returns the texts of the messages steers, which joined the turn, after it has run the hooks for
// them: a message may have arrived after hooks ran the last time.
func (e *env) joined(ctx context.Context, steers []loop.Joined) ([]string, error) {
	if len(steers) == 0 || ctx.Err() != nil {
		return nil, nil
	}
	var out []string
	list, err := e.steered(ctx, steers[0].Seq-1)
	for _, j := range list {
		if j.Seq <= steers[len(steers)-1].Seq {
			out = append(out, j.Text)
		}
	}
	return out, err
}

// load returns the state of the session, after reading its log to the end.
func load(ctx context.Context, t runtime.Turn, host runtime.Host) (h *history, at loop.Conversation, err error) {
	take := func(c *conversation.Conversation) error {
		if !c.Turn.Live || c.Turn.ID != t.ID {
			return holdfast.Errorf(holdfast.KindInternal, op, "turn %s is not running, according to the session's log", holdfast.Quote(string(t.ID)))
		}
		now := *read(c, t.Folder)
		now.steers = slices.Clone(now.steers)
		h, at = &now, now.stands(c, t.Again)
		return nil
	}
	err = host.Conversation(ctx, take)
	if err != nil && ctx.Err() != nil {
		// The open calls of a cancelled turn still need outcomes.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), readAfterCancel)
		defer cancel()
		err = host.Conversation(late, take)
	}
	return h, at, err
}
