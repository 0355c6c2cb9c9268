package native

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// Name is the runtime's name in sessions and agents.
const Name = "native"

const op = "native"

// readAfterCancel is how long the log of a cancelled turn may take to read.
const readAfterCancel = 15 * time.Second

// Config configures a Runtime. Provider, Now and Rand are required.
type Config struct {
	Provider model.Provider
	// Tools in the order in which they are offered.
	Tools []tool.Tool
	// Parallel bounds the reading tools that run at once (default 4), MaxSteps the
	// model calls of a turn (default 200).
	Parallel, MaxSteps int
	Retry              loop.Retry
	// MaxTokens bounds each answer; 0 leaves it to the provider.
	MaxTokens int
	// Book prices the calls; nil leaves them without a price.
	Book model.Book
	Now  func() time.Time
	// Rand is in [0,1), for the jitter of retries.
	Rand func() float64
	// Sessions (default 256) and Bytes (default 16 MiB) bound the conversations
	// kept in memory between turns.
	Sessions int
	Bytes    int64
}

// Runtime implements runtime.Runtime. Make one with New.
type Runtime struct {
	loop  loop.Loop
	cache *cache
}

// New makes the runtime. A missing part, or tools that do not go together, are
// invalid.
func New(cfg Config) (*Runtime, error) {
	if cfg.Provider == nil || cfg.Now == nil || cfg.Rand == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "Provider, Now and Rand are required")
	}
	tools, err := loop.NewToolset(cfg.Tools...)
	if err != nil {
		return nil, err
	}
	if cfg.Sessions <= 0 {
		cfg.Sessions = 256
	}
	if cfg.Bytes <= 0 {
		cfg.Bytes = 16 << 20
	}
	return &Runtime{
		loop: loop.Loop{
			Provider: cfg.Provider, Tools: tools, Parallel: cfg.Parallel, MaxSteps: cfg.MaxSteps,
			Retry: cfg.Retry, MaxTokens: cfg.MaxTokens, Book: cfg.Book, Now: cfg.Now, Rand: cfg.Rand,
		},
		cache: newCache(cfg.Sessions, cfg.Bytes),
	}, nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return Name }

// Forget implements runtime.Runtime.
func (r *Runtime) Forget(id holdfast.SessionID) { r.cache.drop(id) }

// Run implements runtime.Runtime.
func (r *Runtime) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	h, err := r.load(ctx, t, host)
	if err != nil {
		return runtime.Result{}, err
	}
	c := h.conversation(t.Again)
	steers := slices.Clone(h.steers)
	done := runtime.Result{Seen: h.seq, Text: h.text, StopReason: h.stop, Usage: h.usage, Steps: h.steps}
	ended := h.spoke && len(c.Joined) == 0
	r.cache.put(t.Session.ID, h)
	if ended {
		if ctx.Err() != nil {
			return runtime.Result{}, context.Cause(ctx)
		}
		return done, nil
	}
	c.Session, c.Mode, c.Model = t.Session.ID, t.Session.Mode, t.Session.Model
	c.System = systemPrompt(t)
	env := &env{host: host, turn: t.ID, folder: t.Folder}
	around := loop.Env{
		Recorder: env, Boxes: env, Policy: env, Steered: env.steered, NewCall: host.NewCall, At: host.At,
	}
	if t.Meter != nil {
		around.Meter = t.Meter
	}
	if t.Hooks != nil {
		around.Hooks = t.Hooks
		if c.Joined, err = joined(ctx, host, t.Folder, steers); err != nil {
			return runtime.Result{}, err
		}
	}
	res, err := r.loop.Run(ctx, c, around)
	return runtime.Result{
		Final: env.drafts(res.Final), Seen: res.Seen, Text: res.Text, StopReason: res.StopReason,
		Usage: res.Usage, Steps: res.Steps,
	}, err
}

// joined are the messages that joined the turn and have no place yet, as the
// hooks for them left them: one may have come after the last time they were run.
func joined(ctx context.Context, host runtime.Host, f *folder.Folder, steers []loop.Joined) ([]string, error) {
	if len(steers) == 0 {
		return nil, nil
	}
	if ctx.Err() != nil {
		// Nothing is said to a model any more.
		return nil, nil
	}
	events, err := host.Steered(ctx, steers[0].Seq-1)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ev := range events {
		if ev.Seq > steers[len(steers)-1].Seq {
			break
		}
		var m holdfast.UserMessage
		if err := ev.Decode(&m); err != nil {
			return nil, err
		}
		out = append(out, f.Expand(m.Text))
	}
	return out, nil
}

// load is the session's history with the log read to its end.
func (r *Runtime) load(ctx context.Context, t runtime.Turn, host runtime.Host) (*history, error) {
	h := r.cache.take(t.Session.ID)
	h.folder = t.Folder
	err := h.read(ctx, host)
	if err != nil && ctx.Err() != nil {
		// The open calls of a cancelled turn still want their answers.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), readAfterCancel)
		defer cancel()
		*h = history{folder: t.Folder}
		err = h.read(late, host)
	}
	if err == nil && (!h.live || h.turn != t.ID) {
		err = holdfast.Errorf(holdfast.KindInternal, op, "turn %s is not the one under way in the log", holdfast.Quote(string(t.ID)))
	}
	if err != nil {
		r.cache.drop(t.Session.ID)
		return nil, err
	}
	return h, nil
}

// read folds what the log has beyond what is folded. A gap is internal.
func (h *history) read(ctx context.Context, host runtime.Host) error {
	for e, err := range host.Log(ctx, h.seq) {
		if err != nil {
			return err
		}
		if e.Seq != h.seq+1 {
			return holdfast.Errorf(holdfast.KindInternal, op, "log entry %d follows %d", e.Seq, h.seq)
		}
		if err := h.apply(e); err != nil {
			return err
		}
	}
	return nil
}
