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
