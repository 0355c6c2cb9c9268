// Package agent runs an agent inside a Go program: a model, tools, and a policy that decides
// which calls may run.
//
// An Agent keeps its conversation in memory. The server of Holdfast runs the same loop over
// a log that survives crashes. The package imports the vocabulary, packages model, tool,
// hook, policy and sandbox, and internal/loop, of which it shows nothing. Invariant: no tool runs
// that the policy did not allow, and each call that changes something is reported before it
// runs.
package agent

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Config is what an agent is made of. Provider and Policy are required.
type Config struct {
	Provider model.Provider
	// Model is the name of the model, as the provider knows it.
	Model string
	// System are the agent's instructions; may be empty.
	System string
	Tools  []tool.Tool
	// Policy decides each call of a tool.
	Policy policy.Decider
	// Mode is the permission mode that Policy is told; empty is default.
	Mode holdfast.Mode
	// Hooks hear of tool calls, and may refuse or rewrite them before Policy decides. Only
	// functions run; a command or an address fails. Nil is none.
	Hooks *hook.Registry
	// Box gives the box in which tools with tool.InBox act: the same one until it is lost.
	// Without it such tools are refused by New.
	Box func(ctx context.Context) (*sandbox.Box, error)
	// Events is told what happens, in order, each before the agent goes on: data is the
	// payload type of typ. Text and tool output are told as they appear, as deltas. Nil
	// tells nobody. It must not call the agent.
	Events func(typ holdfast.EventType, data any)
}

// Answer is what an agent said to a message.
type Answer struct {
	Text       string
	StopReason string
	// Usage is what all model calls of the answer used, in tokens; Steps counts them.
	Usage holdfast.Usage
	Steps int
}

// Agent holds a conversation. It is safe for concurrent use; messages are answered one
// after the other.
type Agent struct {
	loop   *loop.Loop
	cfg    Config
	mu     sync.Mutex // held while a message is answered
	spoken []model.Message
}

// New makes an agent that has said nothing yet. A Config that lacks something, or has tools
// that cannot be offered together, is invalid.
func New(cfg Config) (*Agent, error) {
	const op = "agent.New"
	if cfg.Provider == nil || cfg.Policy == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "an agent needs a Provider and a Policy")
	}
	if cfg.Mode == "" {
		cfg.Mode = holdfast.ModeDefault
	}
	if _, err := holdfast.ParseMode(string(cfg.Mode)); err != nil {
		return nil, err
	}
	for _, t := range cfg.Tools {
		if s := t.Spec(); s.Where == tool.InBox && cfg.Box == nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, op, "tool %s acts in a box, and there is none", holdfast.Quote(s.Name)).
				WithHint("set Config.Box")
		}
	}
	set, err := loop.NewToolset(cfg.Tools...)
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, loop: &loop.Loop{Provider: cfg.Provider, Tools: set, Now: time.Now, Rand: mathrand.Float64}}, nil
}

// Say sends a message and returns what the agent answers once it is done with its tools.
// When ctx ends, running tools are cancelled and ctx's cause is returned. A failed model call
// is unauthenticated, busy, invalid or unavailable by its class; more than 200 model calls
// are too_large. After an error the agent knows the message and what it did; the next
// message goes on from there.
func (a *Agent) Say(ctx context.Context, text string) (Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	env := loop.Env{Recorder: &told{events: a.cfg.Events}, Boxes: boxes{a.cfg.Box}, Policy: a.cfg.Policy, NewCall: newCall}
	if a.cfg.Hooks != nil {
		h := &hooks{Decider: a.cfg.Policy, registry: a.cfg.Hooks}
		env.Policy, env.Hooks = h, h
	}
	res, err := a.loop.Run(ctx, loop.Conversation{
		Mode: a.cfg.Mode, Model: a.cfg.Model, System: a.cfg.System,
		Messages: loop.AppendUser(a.spoken, model.Block{Type: model.Text, Text: text}),
	}, env)
	a.spoken = answered(res.Messages)
	if err == nil && a.cfg.Events != nil {
		for _, e := range res.Final {
			a.cfg.Events(e.Type, e.Data)
		}
	}
	return Answer{Text: res.Text, StopReason: res.StopReason, Usage: res.Usage, Steps: res.Steps}, err
}

// answered leaves out an answer at the end whose tool uses have no answers, after a failure: a
// model takes no conversation with such a gap.
func answered(messages []model.Message) []model.Message {
	if n := len(messages); n > 0 && messages[n-1].Role == model.Assistant {
		for _, b := range messages[n-1].Blocks {
			if b.Type == model.ToolUse {
				return messages[:n-1]
			}
		}
	}
	return messages
}

func newCall() (holdfast.CallID, error) {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	return holdfast.CallID(id), err
}

// told is a log that is only shown.
type told struct {
	events func(typ holdfast.EventType, data any)
	mu     sync.Mutex // tools that only read run side by side
}

func (t *told) Record(_ context.Context, entries ...loop.Entry) error {
	for _, e := range entries {
		t.Delta(e.Type, e.Data)
	}
	return nil
}

func (t *told) Delta(typ holdfast.EventType, data any) {
	if t.events == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events(typ, data)
}

// boxes gives the loop the box of a Config.
type boxes struct {
	get func(ctx context.Context) (*sandbox.Box, error)
}

func (b boxes) Box(ctx context.Context) (*sandbox.Box, error) { return b.get(ctx) }

func (boxes) Life(box *sandbox.Box) (holdfast.BoxID, string, bool) {
	select {
	case <-box.Done():
		return box.ID(), box.Boot(), false
	default:
		return box.ID(), box.Boot(), true
	}
}

// Outcome finds the box again that a call was meant for; another life of it knows nothing.
func (b boxes) Outcome(ctx context.Context, started holdfast.ToolStarted) (*sandbox.Box, bool, error) {
	box, err := b.get(ctx)
	if err != nil {
		return nil, false, err
	}
	return box, box.Boot() != started.Boot, nil
}

func (boxes) Release(box *sandbox.Box, calls ...holdfast.CallID) { box.Release(calls...) }

// hooks are the Config's hooks as the loop wants them, and run before the policy decides.
type hooks struct {
	policy.Decider
	registry *hook.Registry

	mu   sync.Mutex
	said []string // for the model
}

// Decide tells the hooks of a call, and the policy of what they came to.
func (h *hooks) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	req.Hooks = h.Fire(ctx, hook.Input{
		Event: hook.PreToolUse, ToolName: req.Tool, ToolInput: req.Input, ToolUseID: req.CallID, Mode: req.Mode,
	}).Decision()
	return h.Decider.Decide(ctx, req)
}

func (h *hooks) Fire(ctx context.Context, in hook.Input) hook.Result {
	res := h.registry.Run(ctx, in, hook.Places{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, res.Context...)
	return res
}

func (h *hooks) Said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	said := h.said
	h.said = nil
	return said
}

func (h *hooks) Waits(in hook.Input) bool { return h.registry.HasHooks(in.Event) }
