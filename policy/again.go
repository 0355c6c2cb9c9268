package policy

import (
	"bytes"
	"context"
)

// again decides a call once more if its input was rewritten: the new input is checked against
// bounds, rules and sandbox, and the stricter decision wins.
func (e *Engine) again(ctx context.Context, req Request, d Decision, t *Trace) (Decision, error) {
	if d.Verdict == Denied || d.Input == nil || bytes.Equal(d.Input, req.Input) {
		return d, nil
	}
	req.Input = d.Input
	c := newCall(ctx, req, e.tools)
	f, err := c.judged(t, func() Decision { return e.fixed(c, t) })
	if err != nil {
		return Decision{}, err
	}
	if f.Verdict > d.Verdict {
		f.Input = d.Input
		return f, nil
	}
	return d, nil
}

// Recheck checks a decision of an earlier policy with the policy e, because rules may have changed while a person was asked.
// It returns d; or a denial if d allows a call that the bounds, settings, deny rules, agent directories or sandbox of e deny.
// It checks the input in d.Input; if that is nil, the one in req. It calls neither the callback nor the approver, and its
// errors are those of Decide.
func (e *Engine) Recheck(ctx context.Context, req Request, d Decision) (Decision, error) {
	if d.Verdict != Allowed {
		return d, nil
	}
	if d.Input != nil {
		req.Input = d.Input
	}
	var t Trace
	c := newCall(ctx, req, e.tools)
	f, err := c.judged(&t, func() Decision { return e.fixed(c, &t) })
	if err != nil || f.Verdict != Denied {
		return d, err
	}
	f.Input, f.Updates = d.Input, d.Updates
	return f, nil
}
