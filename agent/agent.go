// Package agent runs an agent inside a Go program: a model, tools, and a policy that decides
// which calls may run.
//
// An Agent stores its conversation in memory only. The server of Holdfast runs the same loop
// over a log that survives crashes. The package imports the vocabulary, packages model, tool,
// hook, policy and sandbox, and internal/loop, which is not part of its API. Invariant: a tool
// runs only if the policy allowed the call, and each call that changes something is reported
// to Config.Events before it runs.
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

// Config configures an Agent. Provider and Policy are required.
type Config struct {
	Provider model.Provider
	// Model is the name of the model, as the provider knows it.
	Model string
	// System are the agent's instructions; may be empty.
	System string
	Tools  []tool.Tool
	// Policy decides whether each tool call may run.
	Policy policy.Decider
	// Mode is the permission mode in the requests to Policy; empty means ModeDefault.
	Mode holdfast.Mode
	// Hooks run on tool calls, and may refuse or rewrite them before Policy decides. Only hooks
	// that are Go functions run; those with a command or URL never do. Nil means no hooks.
	Hooks *hook.Registry
	// Box returns the box for tools with Where tool.InBox. It must return the same box until
	// that box is lost. Without Box, New refuses such tools.
	Box func(ctx context.Context) (*sandbox.Box, error)
	// Events, if set, is called with each event in order, before the agent continues. data has
	// the payload type of typ. Text and tool output come as deltas while they are produced.
	// Events must not call the agent.
	Events func(typ holdfast.EventType, data any)
}

// Answer is an agent's answer to a message.
type Answer struct {
	Text       string
	StopReason string
	// Usage sums up the usage of all model calls for the answer; Steps is the number of those calls.
	Usage holdfast.Usage
	Steps int
}

// Agent has one conversation, with messages that are answered one after the other. It is safe
// for concurrent use.
type Agent struct {
	loop   *loop.Loop
	cfg    Config
	mu     sync.Mutex // held while the agent answers a message
	spoken []model.Message
}

// New returns an agent with an empty conversation. It fails with invalid if cfg lacks a required
// field or has tools that cannot be offered together.
func New(cfg Config) (*Agent, error) {
	const op = "agent.New"
	if cfg.Provider == nil || cfg.Policy == nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "an agent needs a Provider and a Policy")
	}
	if cfg.Mode == "" {
		cfg.Mode = holdfast.ModeDefault
	}
	if _, err := holdfast.Parse[holdfast.Mode](string(cfg.Mode)); err != nil {
		return nil, err
	}
	for _, t := range cfg.Tools {
		if s := t.Spec(); s.Where == tool.InBox && cfg.Box == nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, op, "tool %s acts in a box, but the agent has no box", holdfast.Quote(s.Name)).
				WithHint("set Config.Box")
		}
	}
	set, err := loop.NewToolset(cfg.Tools...)
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, loop: &loop.Loop{Provider: cfg.Provider, Tools: set, Now: time.Now, Rand: mathrand.Float64}}, nil
}

// Say sends a message and returns the agent's answer, after all its tool calls. When ctx ends,
// running tools are canceled and ctx's cause is returned. If a model call fails, the error's kind
// is unauthenticated, denied, busy, invalid or unavailable, depending on the failure's class; if the
// answer takes more than 200 model calls, it is too_large. After an error the conversation has the
// message and the completed steps; the next message continues from there.
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

// answered returns the messages without the model's last answer if that answer has tool calls,
// whose results are missing because of a failure: a model accepts no conversation with such a gap.
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

// told is the loop's recorder. It stores nothing and passes events and deltas to Config.Events.
type told struct {
	events func(typ holdfast.EventType, data any)
	mu     sync.Mutex // guards events, because tools that only read run concurrently
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

// boxes provides the box of a Config to the loop.
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

// Outcome returns the box for a call that was started before, and whether it has been restarted
// since: then the box does not know the call.
func (b boxes) Outcome(ctx context.Context, started holdfast.ToolStarted) (*sandbox.Box, bool, error) {
	box, err := b.get(ctx)
	if err != nil {
		return nil, false, err
	}
	return box, box.Boot() != started.Boot, nil
}

func (boxes) Release(box *sandbox.Box, calls ...holdfast.CallID) { box.Release(calls...) }

// hooks adapts the Config's hooks to the loop, and runs them before the policy decides.
type hooks struct {
	policy.Decider
	registry *hook.Registry

	mu   sync.Mutex
	said []string // texts of hooks for the model
}

// Decide runs the hooks for a call, and passes their decision to the policy.
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
