package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Config configures an Engine, or one layer of it. With the zero value the permission mode
// alone decides.
type Config struct {
	// Rules are the standing rules. An allow rule never overrules a deny rule.
	Rules RuleSet
	// Granted are allow rules from earlier answers of the approver. They allow calls for
	// which the approver would otherwise be asked.
	Granted []Rule
	// Tools are the tools that agents are offered besides the standard ones. Modes, rules
	// and sandbox settings use their registration, in all layers.
	Tools []Tool
	// Sandbox denies calls that it does not allow, in every mode. Nil denies none.
	Sandbox *check.Settings
	// AgentDirs are directories to which file tools get no access.
	AgentDirs []AgentDir
	// Refuse, if not empty, is the reason for which every call is denied. It is set if
	// settings cannot be read, because they might deny any call.
	Refuse string
	// Tighten ignores everything in the layer that would allow calls: allow rules, grants
	// and the sandbox's automatic approval. It is for settings that an agent can write.
	Tighten bool
	// Callback is asked before the allow rules and the mode; nil has no opinion. If it has
	// not answered after Patience (default one minute), the call is denied.
	Callback Policy
	Patience time.Duration
	// Approver is asked about calls whose verdict is Asked; without one they are denied.
	Approver Approver
}

// Approver gets a person's answers on tool calls. Safe for concurrent use.
type Approver interface {
	// Approve returns the answer on a call for which the decision asked requires one; it may
	// wait for as long as the person takes. Any verdict but Allowed denies the call. An error
	// means that no decision was made, for example because ctx ended; the call is then
	// neither allowed nor denied.
	Approve(ctx context.Context, req Request, asked Decision) (Decision, error)
}

// Engine decides tool calls from its layers of configuration. It never changes and is safe
// for concurrent use. With the zero value the permission mode alone decides.
type Engine struct {
	refuse    string
	tools     tools
	rules     RuleSet
	granted   RuleSet
	sandboxes []sandboxed
	agentDirs []AgentDir
	callbacks []callback
	approver  Approver
	// walls are the denied paths that the box of a child agent enforces already; nil unless
	// the engine is for a child agent.
	walls *walls
}

// sandboxed are the sandbox settings of one layer.
type sandboxed struct {
	settings check.Settings
	// checker applies the settings with the default working and home directories.
	checker *check.Checker
	// approves is true if the settings may approve Bash calls automatically; it is false in layers
	// made with Config.Tighten.
	approves bool
	// child holds a child agent's own settings, before they were narrowed; nil if the
	// settings are those of the whole box.
	child *check.Settings
}

type callback struct {
	Policy
	patience time.Duration
}

// New returns an engine of one layer. It fails if the tools or sandbox settings are invalid.
func New(cfg Config) (*Engine, error) { return new(Engine).With(cfg) }

// With returns a copy of the engine with one more layer. A call has to pass the rules, agent
// directories and sandbox settings of all layers; all callbacks are asked, in order; the approver is that of
// the newest layer that has one.
func (e *Engine) With(cfg Config) (*Engine, error) {
	out := *e
	var err error
	if out.tools, err = e.tools.with(cfg.Tools); err != nil {
		return nil, err
	}
	if cfg.Tighten {
		cfg.Rules.Allow, cfg.Granted = nil, nil
	}
	out.rules = RuleSet{
		Allow: slices.Concat(e.rules.Allow, cfg.Rules.Allow),
		Ask:   slices.Concat(e.rules.Ask, cfg.Rules.Ask),
		Deny:  slices.Concat(e.rules.Deny, cfg.Rules.Deny),
	}
	if out.refuse == "" {
		out.refuse = cfg.Refuse
	}
	out.granted.Allow = slices.Concat(e.granted.Allow, cfg.Granted)
	for _, d := range cfg.AgentDirs {
		if err := d.check(); err != nil {
			return nil, err
		}
	}
	out.agentDirs = slices.Concat(e.agentDirs, cfg.AgentDirs)
	if cfg.Sandbox != nil {
		if err := cfg.Sandbox.Unsupported(); err != nil {
			return nil, err
		}
		c, err := check.New(*cfg.Sandbox, options(Request{}))
		if err != nil {
			return nil, err
		}
		out.sandboxes = append(slices.Clip(e.sandboxes), sandboxed{settings: *cfg.Sandbox, checker: c, approves: !cfg.Tighten})
	}
	if cfg.Callback != nil {
		c := callback{cfg.Callback, cfg.Patience}
		if c.patience == 0 {
			c.patience = time.Minute
		}
		out.callbacks = append(slices.Clip(e.callbacks), c)
	}
	if cfg.Approver != nil {
		out.approver = cfg.Approver
	}
	return &out, nil
}

// Lint returns warnings about the sandbox settings of all layers: settings that have no
// effect in Holdfast or are probably a mistake.
func (e *Engine) Lint() []string {
	var out []string
	for _, s := range e.sandboxes {
		out = append(out, s.settings.Lint()...)
	}
	return out
}

func options(req Request) check.Options {
	return check.Options{Cwd: req.cwd(), Home: req.home(), FS: req.FS}
}

// Step is the verdict of one stage on the way to a decision.
type Step struct {
	// Stage names the stage: hooks, bounds (the call is too long to be judged), settings (they
	// cannot be read), deny rules, agent directories, ask rules, sandbox, callback, allow rules, mode, granted,
	// approver.
	Stage    string `json:"stage"`
	Verdict  string `json:"verdict"`
	Reason   string `json:"reason,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Rewrites bool   `json:"rewrites,omitempty"`
}

// Trace lists the verdicts of the stages on the way to a decision; the last one decided.
type Trace []Step

func (t Trace) String() string {
	var b strings.Builder
	for _, s := range t {
		fmt.Fprintf(&b, "%-12s %s", s.Stage, s.Verdict)
		if s.Rule != "" {
			fmt.Fprintf(&b, " by %s", s.Rule)
		}
		if s.Reason != "" {
			fmt.Fprintf(&b, ": %s", s.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Explains returns the decision and the trace as the API's PolicyExplanation.
func (t Trace) Explains(d Decision, mode holdfast.Mode) holdfast.PolicyExplanation {
	out := holdfast.PolicyExplanation{Verdict: d.Verdict.String(), By: d.By, Rule: d.Rule, Reason: d.Reason, Mode: mode, Trace: []holdfast.PolicyStep{}}
	for _, s := range t {
		out.Trace = append(out.Trace, holdfast.PolicyStep(s))
	}
	return out
}

// Decide implements Decider.
func (e *Engine) Decide(ctx context.Context, req Request) (Decision, error) {
	d, _, err := e.Explain(ctx, req)
	return d, err
}

// Explain decides a call like Decide and also returns the trace. The order is fixed: hooks, bounds, unreadable
// settings, deny rules, agent directories, denials of the sandbox, ask rules, automatic approval by the sandbox,
// callback, allow rules, mode, granted rules, approver. A call that hooks allow still has to pass the stages up to the
// sandbox; if a hook answers ask, the call requires approval unless one of these stages denies it. A rewritten input is
// checked by these stages again.
func (e *Engine) Explain(ctx context.Context, req Request) (Decision, Trace, error) {
	return e.explain(ctx, req, true)
}

// Rehearse is Explain without asking the approver: the verdict is Asked if a person would
// have to answer.
func (e *Engine) Rehearse(ctx context.Context, req Request) (Decision, Trace, error) {
	return e.explain(ctx, req, false)
}

func (e *Engine) explain(ctx context.Context, req Request, disturb bool) (Decision, Trace, error) {
	var t Trace
	d, err := e.opinion(ctx, &req, &t)
	if err != nil {
		return Decision{}, t, err
	}
	if d.Verdict == Asked {
		d, err = e.approve(ctx, req, d, &t, disturb)
	}
	return d, t, err
}

// add appends the decision of a stage to the trace and returns it.
func (t *Trace) add(stage string, d Decision) Decision {
	*t = append(*t, Step{Stage: stage, Verdict: d.Verdict.String(), Reason: d.Reason, Rule: d.Rule, Rewrites: d.Input != nil})
	return d
}

// opinion runs all stages except the approver. If hooks rewrote the input, both req and the
// decision have the new input afterwards.
func (e *Engine) opinion(ctx context.Context, req *Request, t *Trace) (Decision, error) {
	hooks := req.Hooks
	if hooks.Verdict != NoOpinion || hooks.Input != nil {
		if hooks.By == "" {
			hooks.By = "hook"
		}
		t.add("hooks", hooks)
	}
	if hooks.Verdict == Denied {
		return hooks, nil
	}
	if hooks.Input != nil {
		req.Input = hooks.Input
	}
	c := newCall(ctx, *req, e.tools)
	d, err := c.judged(t, func() Decision { return e.fixed(c, t) })
	byHooks := false
	switch {
	case err != nil:
		return Decision{}, err
	case d.Verdict == Denied:
	case hooks.Verdict == Asked, d.Verdict == NoOpinion && hooks.Verdict == Allowed:
		d, byHooks = hooks, true
	case d.Verdict == NoOpinion:
		if d, err = e.opinions(ctx, c, t); err != nil {
			return Decision{}, err
		}
	}
	if d.Input == nil {
		d.Input = hooks.Input
	}
	if !byHooks {
		d.Updates = slices.Concat(hooks.Updates, d.Updates)
	}
	return d, nil
}

// fixed runs the stages that neither hooks nor callbacks can overrule: bounds, unreadable
// settings, deny rules, agent directories, sandbox and ask rules.
func (e *Engine) fixed(c *call, t *Trace) Decision {
	if d := c.bounds(); d.Verdict != NoOpinion {
		return t.add("bounds", d)
	}
	if e.refuse != "" {
		return t.add("settings", Decision{Verdict: Denied, By: "settings", Reason: e.refuse})
	}
	if d := t.add("deny rules", e.rules.denies(c)); d.Verdict != NoOpinion {
		return d
	}
	if d := ofAgents(e.agentDirs, c); d.Verdict != NoOpinion {
		return t.add("agent directories", d)
	}
	checked := e.sandbox(c)
	if checked.Verdict == Denied {
		return t.add("sandbox", checked)
	}
	if d := t.add("ask rules", e.rules.asks(c)); d.Verdict != NoOpinion {
		return d
	}
	return t.add("sandbox", checked)
}

// opinions runs the callbacks, then the allow rules, then the mode, until one has an opinion.
// All callbacks are asked until one denies; the strictest answer counts.
func (e *Engine) opinions(ctx context.Context, c *call, t *Trace) (Decision, error) {
	var d Decision
	req := c.req
	for _, cb := range e.callbacks {
		said, err := cb.ask(ctx, req)
		if err != nil {
			return Decision{}, err
		}
		t.add("callback", said)
		if said.Verdict == NoOpinion {
			continue
		}
		if said.Input == nil {
			said.Input = d.Input
		} else {
			req.Input = said.Input
		}
		said.Updates = slices.Concat(d.Updates, said.Updates)
		if said.Verdict >= d.Verdict {
			d = said
		} else {
			d.Input, d.Updates = said.Input, said.Updates
		}
		if d.Verdict == Denied {
			return d, nil
		}
	}
	if d.Verdict != NoOpinion {
		return e.again(ctx, c.req, d, t)
	}
	return c.judged(t, func() Decision {
		if d := t.add("allow rules", e.rules.allows(c)); d.Verdict != NoOpinion {
			return d
		}
		return t.add("mode", byMode(c))
	})
}

// approve asks the approver about the call as it would run, unless a granted rule allows the call; if only the mode
// asks, an allow rule does, too. Without an approver, and in mode dontAsk, the call is denied. If disturb is false
// nobody is asked, and the verdict remains Asked.
func (e *Engine) approve(ctx context.Context, req Request, asked Decision, t *Trace, disturb bool) (Decision, error) {
	if asked.Input != nil {
		req.Input = asked.Input
	}
	c := newCall(ctx, req, e.tools)
	d, err := c.judged(t, func() Decision { return e.lifts(asked).allows(c) })
	switch {
	case err != nil || d.Verdict == Denied:
		return d, err
	case d.Verdict == Allowed:
		d.By, d.Input, d.Updates = "granted rule", asked.Input, asked.Updates
		return t.add("granted", d), nil
	}
	if req.Mode == holdfast.ModeDontAsk {
		d := asked
		d.Verdict = Denied
		d.Reason = fmt.Sprintf("%s, and permission mode %s never asks", asked.Reason, req.Mode)
		return t.add("approver", d), nil
	}
	if !disturb {
		return t.add("approver", asked), nil
	}
	if e.approver == nil {
		d := asked
		d.Verdict = Denied
		d.Reason = fmt.Sprintf("%s, and nobody can be asked; the user can allow it with: holdfast session update %s --mode %s",
			asked.Reason, req.Session, holdfast.ModeBypassPermissions)
		if asked.By != "mode" {
			d.Reason = asked.Reason + ", and nobody can be asked"
		}
		return t.add("approver", d), nil
	}
	d, err = e.approver.Approve(ctx, req, asked)
	switch {
	case err != nil:
		return Decision{}, &Undecided{err}
	case d.Verdict != Allowed:
		d.Verdict = Denied
	case d.Input == nil:
		d.Input = asked.Input
	}
	if d.By == "" {
		d.By = "approver"
	}
	d.Updates = slices.Concat(asked.Updates, d.Updates)
	if d, err = e.again(ctx, req, t.add("approver", d), t); err != nil {
		return Decision{}, err
	}
	if d.Verdict == Asked {
		// The person rewrote the call into one that itself requires approval.
		d.Verdict = Denied
		d.Reason += ", and the approval changed the call into one that requires another approval"
	}
	return d, nil
}

// ask asks a callback, which other people wrote: a panic is a denial, and so is a missing
// answer after the callback's patience, even if the callback ignores its context.
func (p callback) ask(ctx context.Context, req Request) (Decision, error) {
	const by = "callback"
	limited, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	type answer struct {
		d   Decision
		err error
	}
	got := make(chan answer, 1)
	go func() {
		a := answer{}
		defer func() {
			if v := recover(); v != nil {
				a = answer{d: deny(by, "the permission callback failed: %v", v)}
			}
			got <- a
		}()
		a.d, a.err = evaluate(limited, p.Policy, req)
	}()
	select {
	case a := <-got:
		if a.err != nil && ctx.Err() == nil {
			return deny(by, "the permission callback failed: %s", a.err), nil
		}
		if a.d.By == "" && a.d.Verdict != NoOpinion {
			a.d.By = by
		}
		return a.d, a.err
	case <-limited.Done():
		if err := context.Cause(ctx); err != nil {
			return Decision{}, err
		}
		return deny(by, "the permission callback gave no answer within %s", p.patience), nil
	}
}

// sandbox checks a call against the sandbox settings of every layer. It allows a Bash call if
// a layer approves sandboxed commands automatically and the call runs in a sandbox.
func (e *Engine) sandbox(c *call) Decision {
	var out Decision
	if c.wantsOut() && !e.letsOut() {
		return deny("sandbox", "a command outside of the sandbox is allowed only with allowUnsandboxedCommands")
	}
	if d := e.unheld(c); d.Verdict == Denied {
		return d
	}
	for _, s := range e.sandboxes {
		d := s.holds(c)
		if d.Verdict == Denied {
			return d
		}
		if d.Verdict == Allowed && s.approves {
			out = d
		}
	}
	return out
}

// letsOut reports whether a model may ask to run a command outside of the sandbox: at least
// one layer has sandbox settings, and all that have some set AllowUnsandboxedCommands.
func (e *Engine) letsOut() bool {
	return len(e.sandboxes) > 0 && !slices.ContainsFunc(e.sandboxes, func(s sandboxed) bool { return !s.settings.AllowUnsandboxedCommands })
}

func (s *sandboxed) holds(c *call) Decision {
	checker := s.checker
	if o := options(c.req); o.Cwd != usualCwd || o.Home != usualHome || o.FS != nil {
		var err error
		if checker, err = check.New(s.settings, o); err != nil {
			return deny("sandbox", "the sandbox settings are invalid: %s", err)
		}
	}
	if !c.readable {
		return deny("sandbox", "the input of the call cannot be read")
	}
	v := check.Verdict{Allowed: true}
	switch c.tool.Subject {
	case SubjectCommand:
		v = checker.CommandWithin(c.clock.ended, c.Command)
	case SubjectURL:
		v = checker.Domain(hostOf(c.URL))
	case SubjectPath:
		p, ok := c.filePath()
		if !ok {
			return deny("sandbox", "the call names no file")
		}
		op := check.Read
		if c.tool.Class == ClassEdits {
			op = check.Write
		}
		v = checker.Path(p, op)
	}
	switch {
	case !v.Allowed:
		d := deny("sandbox", "%s: %s", holdfast.Quote(v.Subject), v.Reason)
		d.Quiet = s.settings.Ignores(category(c.tool.Subject, v.Code), v.Subject)
		return d
	case c.tool.Subject == SubjectCommand && s.settings.AutoAllowBashIfSandboxed && c.req.Sandboxed && !c.wantsOut():
		return Decision{Verdict: Allowed, By: "sandbox"}
	}
	return Decision{}
}
