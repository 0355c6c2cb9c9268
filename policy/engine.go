package policy

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Config is what an Engine decides by. The zero value leaves everything to the
// modes.
type Config struct {
	// Rules are the standing rules. Those of allow never lift one of deny.
	Rules RuleSet
	// Sandbox refuses what it does not allow, in every mode. Nil allows all.
	Sandbox *check.Settings
	// Callback is asked before the mode; nil has no opinion. It has Patience
	// (default a minute), then the call is denied.
	Callback Policy
	Patience time.Duration
	// Approver is asked what nobody else may decide; without one that is denied.
	Approver Policy
}

// Engine is the one place that decides. It does not change after New and may be
// used by many at once.
type Engine struct {
	cfg Config
	// checker is for the usual directories; nil without sandbox settings.
	checker *check.Checker
}

// New makes an engine. Settings that make no sense are invalid.
func New(cfg Config) (*Engine, error) {
	if cfg.Patience == 0 {
		cfg.Patience = time.Minute
	}
	e := &Engine{cfg: cfg}
	if cfg.Sandbox != nil {
		var err error
		if e.checker, err = check.New(*cfg.Sandbox, options(Request{})); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func options(req Request) check.Options { return check.Options{Cwd: req.cwd(), Home: req.home()} }

// Step is one opinion on the way to a decision.
type Step struct {
	// Stage is who was asked: deny rules, ask rules, sandbox, callback, allow rules,
	// mode, approver.
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

// Decide implements Decider.
func (e *Engine) Decide(ctx context.Context, req Request) (Decision, error) {
	d, _, err := e.Explain(ctx, req)
	return d, err
}

// Explain is Decide with the way there. The order is fixed: deny rules, ask rules,
// sandbox, callback, allow rules, mode, approver. An input that was rewritten is
// held against rules and sandbox once more.
func (e *Engine) Explain(ctx context.Context, req Request) (Decision, Trace, error) {
	var t Trace
	c := newCall(req)
	d := e.fixed(c, &t)
	if d.Verdict == NoOpinion {
		var err error
		if d, err = e.opinions(ctx, c, &t); err != nil {
			return Decision{}, t, err
		}
	}
	if d.Verdict != Asked {
		return d, t, nil
	}
	d, err := e.approve(ctx, req, d, &t)
	return d, t, err
}

// add records a stage and gives its decision back.
func (t *Trace) add(stage string, d Decision) Decision {
	*t = append(*t, Step{Stage: stage, Verdict: d.Verdict.String(), Reason: d.Reason, Rule: d.Rule, Rewrites: d.Input != nil})
	return d
}

// fixed asks what no callback may overrule.
func (e *Engine) fixed(req *call, t *Trace) Decision {
	if d := t.add("deny rules", e.cfg.Rules.denies(req)); d.Verdict != NoOpinion {
		return d
	}
	checked := e.sandbox(req)
	if checked.Verdict == Denied {
		return t.add("sandbox", checked)
	}
	if d := t.add("ask rules", e.cfg.Rules.asks(req)); d.Verdict != NoOpinion {
		return d
	}
	return t.add("sandbox", checked)
}

// opinions asks callback, allow rules and mode, until one has an opinion.
func (e *Engine) opinions(ctx context.Context, req *call, t *Trace) (Decision, error) {
	if e.cfg.Callback != nil {
		d, err := e.ask(ctx, e.cfg.Callback, "callback", req.Request)
		if err != nil {
			return Decision{}, err
		}
		if t.add("callback", d); d.Verdict != NoOpinion {
			return e.again(req.Request, d, t), nil
		}
	}
	if d := t.add("allow rules", e.cfg.Rules.allows(req)); d.Verdict != NoOpinion {
		return d, nil
	}
	return t.add("mode", byMode(req)), nil
}

// again holds a rewritten input against what no callback may overrule.
func (e *Engine) again(req Request, d Decision, t *Trace) Decision {
	if d.Verdict == Denied || d.Input == nil || bytes.Equal(d.Input, req.Input) {
		return d
	}
	req.Input = d.Input
	if f := e.fixed(newCall(req), t); f.Verdict > d.Verdict {
		f.Input = d.Input
		return f
	}
	return d
}

// approve asks a person; with nobody to ask the call is denied.
func (e *Engine) approve(ctx context.Context, req Request, asked Decision, t *Trace) (Decision, error) {
	if e.cfg.Approver == nil {
		d := asked
		d.Verdict = Denied
		d.Reason = fmt.Sprintf("%s, and nobody can be asked; the user can allow it with: holdfast session update %s --mode %s",
			asked.Reason, req.Session, holdfast.ModeBypassPermissions)
		if asked.By != "mode" {
			d.Reason = asked.Reason + ", and nobody can be asked"
		}
		return t.add("approver", d), nil
	}
	if asked.Input != nil {
		req.Input = asked.Input
	}
	d, err := e.cfg.Approver.Evaluate(ctx, req)
	switch {
	case err != nil:
		return Decision{}, err
	case d.Verdict != Allowed:
		d.Verdict = Denied
	case d.Input == nil:
		d.Input = asked.Input
	}
	if d.By == "" {
		d.By = "approver"
	}
	return e.again(req, t.add("approver", d), t), nil
}

// ask guards a policy that others wrote: a panic is a denial, and so is no answer
// in time, even of one that does not look at its context.
func (e *Engine) ask(ctx context.Context, p Policy, by string, req Request) (Decision, error) {
	limited, cancel := context.WithTimeout(ctx, e.cfg.Patience)
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
		a.d, a.err = evaluate(limited, p, req)
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
		return deny(by, "no answer within %s", e.cfg.Patience), nil
	}
}

// sandbox holds a call against the sandbox settings, and approves Bash where they
// say so and a sandbox of the system is in force.
func (e *Engine) sandbox(req *call) Decision {
	if e.cfg.Sandbox == nil {
		return Decision{}
	}
	c := e.checker
	if o := options(req.Request); o.Cwd != usualCwd || o.Home != usualHome {
		var err error
		if c, err = check.New(*e.cfg.Sandbox, o); err != nil {
			return deny("sandbox", "the sandbox settings make no sense: %s", err)
		}
	}
	if !req.readable {
		return deny("sandbox", "the input cannot be read")
	}
	v := check.Verdict{Allowed: true}
	switch req.Tool {
	case "Bash":
		v = c.Command(req.Command)
	case "WebFetch":
		v = c.Domain(hostOf(req.URL))
	case "Read", "Glob", "Grep", "LS", "Write", "Edit":
		p, ok := req.filePath()
		if !ok {
			return deny("sandbox", "the call names no file")
		}
		op := check.Read
		if tools[req.Tool] == edits {
			op = check.Write
		}
		v = c.Path(p, op)
	}
	switch {
	case !v.Allowed:
		return deny("sandbox", "%s: %s", holdfast.Quote(v.Subject), v.Reason)
	case req.Tool == "Bash" && e.cfg.Sandbox.AutoAllowBashIfSandboxed && req.Sandboxed:
		return Decision{Verdict: Allowed, By: "sandbox"}
	}
	return Decision{}
}
