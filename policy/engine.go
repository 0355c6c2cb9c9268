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

// Config is what an Engine decides by, or one layer of it. The zero value leaves
// everything to the modes.
type Config struct {
	// Rules are the standing rules. Those of allow never lift one of deny.
	Rules RuleSet
	// Granted are allow rules for what would otherwise be asked of the approver:
	// the answers that were given before, for longer than once.
	Granted []Rule
	// Tools are the tools that agents are offered besides the standard ones. Modes, rules
	// and sandbox settings use their registration, in all layers.
	Tools []Tool
	// Sandbox refuses what it does not allow, in every mode. Nil allows all.
	Sandbox *check.Settings
	// Refuse, if not empty, is why every call is denied: where settings are that
	// cannot be read, nobody knows what they would deny.
	Refuse string
	// Tighten leaves out what would allow: allow rules, grants and the sandbox's
	// automatic approval. It is for settings that an agent can write.
	Tighten bool
	// Callback is asked before the mode; nil has no opinion. It has Patience
	// (default a minute), then the call is denied.
	Callback Policy
	Patience time.Duration
	// Approver is asked what nobody else may decide; without one that is denied.
	Approver Approver
}

// Approver answers for a person. Safe for concurrent use.
type Approver interface {
	// Approve answers a call that asked wants asked; it may wait for as long as the
	// person takes. What is not Allowed is denied. An error means that nobody
	// decided, as when ctx ended; the call is neither allowed nor denied then.
	Approve(ctx context.Context, req Request, asked Decision) (Decision, error)
}

// Engine is the one place that decides. It does not change once made and may be
// used by many at once; the zero value leaves everything to the modes.
type Engine struct {
	refuse    string
	tools     tools
	rules     RuleSet
	granted   RuleSet
	sandboxes []sandboxed
	callbacks []callback
	approver  Approver
	// walls are the denied paths that a child agent's box enforces anyway; nil if the
	// engine is not a child's.
	walls *walls
}

// sandboxed are the sandbox settings of one layer.
type sandboxed struct {
	settings check.Settings
	// checker is for the usual directories.
	checker *check.Checker
	// approves: what the settings approve by themselves counts.
	approves bool
	// child holds a child agent's own settings, before they were narrowed; nil if the
	// settings are those of the whole box.
	child *check.Settings
}

type callback struct {
	Policy
	patience time.Duration
}

// New makes an engine of one layer. Settings that make no sense are invalid.
func New(cfg Config) (*Engine, error) { return new(Engine).With(cfg) }

// With is the engine and one more layer: a call has to pass the rules and the
// sandbox settings of all of them; the callbacks are asked in order, and the
// newest approver. The engine itself stays as it is.
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

// Lint is what the sandbox settings of the layers say that means nothing here, or is
// probably not meant so.
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

// Step is one opinion on the way to a decision.
type Step struct {
	// Stage is who was asked: hooks, bounds (what is too long to be judged), settings (those that cannot be read), deny rules, ask rules, sandbox, callback, allow
	// rules, mode, granted, approver.
	Stage    string `json:"stage"`
	Verdict  string `json:"verdict"`
	Reason   string `json:"reason,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Rewrites bool   `json:"rewrites,omitempty"`
}

// Trace is how a decision came about, stage by stage; the last one decided.
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

// Explains is a decision with the way there, in the words of the API.
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

// Explain is Decide with the way there. The order is fixed: hooks, deny rules, ask
// rules, sandbox, callback, allow rules, mode, granted rules, approver. What hooks
// allow still has to pass the rules and the sandbox; what they want asked is asked
// whatever the others say. An input that was rewritten is held against rules and
// sandbox once more.
func (e *Engine) Explain(ctx context.Context, req Request) (Decision, Trace, error) {
	return e.explain(ctx, req, true)
}

// Rehearse is Explain that asks nobody: the verdict is Asked where a person would
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

// add records a stage and gives its decision back.
func (t *Trace) add(stage string, d Decision) Decision {
	*t = append(*t, Step{Stage: stage, Verdict: d.Verdict.String(), Reason: d.Reason, Rule: d.Rule, Rewrites: d.Input != nil})
	return d
}

// opinion is everything but the approver. Where hooks rewrote the input, req has
// it afterwards, and so has the decision.
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

// fixed asks what neither hooks nor callbacks may overrule.
func (e *Engine) fixed(c *call, t *Trace) Decision {
	if d := c.outsized(); d.Verdict != NoOpinion {
		return t.add("bounds", d)
	}
	if e.refuse != "" {
		return t.add("settings", Decision{Verdict: Denied, By: "settings", Reason: e.refuse})
	}
	if d := t.add("deny rules", e.rules.denies(c)); d.Verdict != NoOpinion {
		return d
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

// opinions asks callbacks, allow rules and mode, until one has an opinion. Of
// several callbacks every one is asked, and the strictest counts.
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

// approve asks a person, unless one answered before for longer than once; with
// nobody to ask the call is denied. What is asked for is the call as it would run.
// Without disturb the question stands.
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
		// The person rewrote the call into another one that wants to be asked.
		d.Verdict = Denied
		d.Reason += ", and the answer was for another input"
	}
	return d, nil
}

// ask guards a policy that others wrote: a panic is a denial, and so is no answer
// in time, even of one that does not look at its context.
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
				a = answer{d: deny(by, "it failed: %v", v)}
			}
			got <- a
		}()
		a.d, a.err = evaluate(limited, p.Policy, req)
	}()
	select {
	case a := <-got:
		if a.err != nil && ctx.Err() == nil {
			return deny(by, "it failed: %s", a.err), nil
		}
		if a.d.By == "" && a.d.Verdict != NoOpinion {
			a.d.By = by
		}
		return a.d, a.err
	case <-limited.Done():
		if err := context.Cause(ctx); err != nil {
			return Decision{}, err
		}
		return deny(by, "no answer within %s", p.patience), nil
	}
}

// sandbox holds a call against the sandbox settings of every layer, and approves
// Bash where one says so and a sandbox of the system is in force.
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

// letsOut reports whether every layer with sandbox settings, and at least one, lets
// the model ask for a command outside.
func (e *Engine) letsOut() bool {
	return len(e.sandboxes) > 0 && !slices.ContainsFunc(e.sandboxes, func(s sandboxed) bool { return !s.settings.AllowUnsandboxedCommands })
}

func (s *sandboxed) holds(c *call) Decision {
	checker := s.checker
	if o := options(c.req); o.Cwd != usualCwd || o.Home != usualHome || o.FS != nil {
		var err error
		if checker, err = check.New(s.settings, o); err != nil {
			return deny("sandbox", "the sandbox settings make no sense: %s", err)
		}
	}
	if !c.readable {
		return deny("sandbox", "the input cannot be read")
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

// category is what IgnoreViolations calls a denial.
func category(of Subject, code check.Code) string {
	switch {
	case of == SubjectURL:
		return "network"
	case of == SubjectCommand && code != check.CodeDeniedPath && code != check.CodeOutside:
		return "command"
	}
	return "file"
}
