package policy

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// The policies in this file that do not combine other policies are comparable values: two policies of one kind
// with the same tool names are equal. Tool names are case-sensitive.

type toolAllowlist struct{ names string }

// AllowTools allows the named tools and denies all others; without names it denies all.
func AllowTools(names ...string) Policy { return toolAllowlist{joined(names)} }

// joined returns a set of names as one string, so that sets can be compared with ==.
func joined(names []string) string {
	s := slices.Compact(slices.Sorted(slices.Values(names)))
	return strings.Join(s, "\n")
}

func holds(names, name string) bool {
	return names != "" && slices.Contains(strings.Split(names, "\n"), name)
}

// Evaluate implements Policy.
func (p toolAllowlist) Evaluate(_ context.Context, req Request) (Decision, error) {
	if holds(p.names, req.Tool) {
		return Decision{Verdict: Allowed, By: "tool allowlist"}, nil
	}
	return deny("tool allowlist", "%s is not in allowlist", holdfast.Quote(req.Tool)), nil
}

type toolDenylist struct{ names string }

// DenyTools denies the named tools and allows all others; without names it allows
// all.
func DenyTools(names ...string) Policy { return toolDenylist{joined(names)} }

// Evaluate implements Policy.
func (p toolDenylist) Evaluate(_ context.Context, req Request) (Decision, error) {
	if holds(p.names, req.Tool) {
		return deny("tool denylist", "%s is in denylist", holdfast.Quote(req.Tool)), nil
	}
	return Decision{Verdict: Allowed, By: "tool denylist"}, nil
}

type readOnly struct{}

// ReadOnly allows standard tools that only read and denies all others. Tools of MCP servers
// are denied even if they declare themselves read-only.
func ReadOnly() Policy { return readOnly{} }

// Evaluate implements Policy.
func (readOnly) Evaluate(_ context.Context, req Request) (Decision, error) {
	t, _ := tools(nil).find(req.Tool)
	if t.Name == req.Tool && req.ReadOnly && (t.Class == ClassReads || t.Class == ClassSearches) {
		return Decision{Verdict: Allowed, By: "read only"}, nil
	}
	return deny("read only", "%s is not read-only", holdfast.Quote(req.Tool)), nil
}

type all []Policy

// All asks the policies in order; each gets the input as the previous one rewrote it. The
// first denial is returned at once. Otherwise the result is Asked if any policy answered so,
// else Allowed, also without any policies.
func All(policies ...Policy) Policy { return all(slices.Clone(policies)) }

// Evaluate implements Policy.
func (p all) Evaluate(ctx context.Context, req Request) (Decision, error) {
	d, err := p.gather(ctx, req)
	if err == nil && d.Verdict == NoOpinion {
		d.Verdict, d.By = Allowed, "policies"
	}
	return d, err
}

// gather combines the policies as All does, but returns no opinion if no policy has one.
func (p all) gather(ctx context.Context, req Request) (Decision, error) {
	var out Decision
	for _, q := range p {
		d, err := evaluate(ctx, q, req)
		if err != nil {
			return Decision{}, err
		}
		switch d.Verdict {
		case NoOpinion:
			continue
		case Denied:
			return d, nil
		}
		if d.Input != nil {
			req.Input, out.Input = d.Input, d.Input
		}
		out.Updates = append(out.Updates, d.Updates...)
		if d.Verdict > out.Verdict {
			out.Verdict, out.By, out.Reason, out.Rule = d.Verdict, d.By, d.Reason, d.Rule
		}
	}
	return out, nil
}

type deferring struct{ all }

// Defer combines policies as All does, but has no opinion if none of them has one.
func Defer(policies ...Policy) Policy { return deferring{slices.Clone(policies)} }

// Evaluate implements Policy.
func (p deferring) Evaluate(ctx context.Context, req Request) (Decision, error) {
	return p.gather(ctx, req)
}

type first []Policy

// First asks the policies in order and returns the first opinion; none if no policy has one.
func First(policies ...Policy) Policy { return first(slices.Clone(policies)) }

// Evaluate implements Policy.
func (p first) Evaluate(ctx context.Context, req Request) (Decision, error) {
	for _, q := range p {
		if d, err := evaluate(ctx, q, req); err != nil || d.Verdict != NoOpinion {
			return d, err
		}
	}
	return Decision{}, nil
}

type anyOf []Policy

// AnyOf allows a call that one of the policies allows. Otherwise it returns the mildest of their opinions, Asked before
// Denied, or no opinion if no policy has one.
func AnyOf(policies ...Policy) Policy { return anyOf(slices.Clone(policies)) }

// Evaluate implements Policy.
func (p anyOf) Evaluate(ctx context.Context, req Request) (Decision, error) {
	var out Decision
	for _, q := range p {
		d, err := evaluate(ctx, q, req)
		switch {
		case err != nil:
			return Decision{}, err
		case d.Verdict == Allowed:
			return d, nil
		case d.Verdict != NoOpinion && (out.Verdict == NoOpinion || d.Verdict < out.Verdict):
			out = d
		}
	}
	return out, nil
}

// CanUseTool returns a policy as a callback function that gives the same answers.
func CanUseTool(p Policy) Func { return p.Evaluate }

// evaluate asks one policy. A verdict outside of the defined ones counts as a denial.
func evaluate(ctx context.Context, p Policy, req Request) (Decision, error) {
	d, err := p.Evaluate(ctx, req)
	if err == nil && d.Verdict > Denied {
		return deny("policy", "a policy answered with the invalid %s", d.Verdict), nil
	}
	return d, err
}
