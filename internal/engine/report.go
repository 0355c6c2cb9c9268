package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

const (
	// maxDenials bounds the denied calls that the end of a turn names.
	maxDenials = 100
	// maxDeniedInput bounds the input that is shown of one.
	maxDeniedInput = 2 << 10
)

// report logs a denial, unless the settings leave it out of reports; the session's
// log has it in any case.
func (h *host) report(req policy.Request, d policy.Decision) {
	if d.Verdict == policy.Denied && !d.Quiet {
		h.e.cfg.Log.InfoContext(h.r.ctx, "a tool was denied", "session_id", h.u.id, "turn_id", h.r.id, "tool", req.Tool, "input", holdfast.Quote(string(req.Input)), "by", d.By, "rule", d.Rule, "reason", d.Reason)
	}
}

// denials are the calls of this turn that were denied, in their order, from the log:
// a turn may have begun in another life of the server. What cannot be read is left
// out: the turn has to end.
func (h *host) denials(ctx context.Context) []holdfast.DeniedCall {
	if !h.denied.Load() && !h.r.again {
		return nil
	}
	asked := map[string]holdfast.ToolRequested{}
	var out []holdfast.DeniedCall
	for ev, err := range h.Log(ctx, h.r.messageSeq) {
		if err != nil {
			h.e.cfg.Log.WarnContext(ctx, "the denied calls of a turn could not be read", "session_id", h.u.id, "turn_id", h.r.id, "error", err)
			break
		}
		if ev.Turn != h.r.id {
			continue
		}
		switch ev.Type {
		case holdfast.EventToolRequested:
			var t holdfast.ToolRequested
			if ev.Decode(&t) == nil {
				asked[t.ToolUseID] = t
			}
		case holdfast.EventToolDenied:
			var d holdfast.ToolDecision
			if ev.Decode(&d) != nil {
				continue
			}
			t := asked[d.ToolUseID]
			c := holdfast.DeniedCall{ToolUseID: d.ToolUseID, Tool: t.Name, Input: t.Input}
			if len(c.Input) > maxDeniedInput {
				c.Input = nil
			}
			if out = append(out, c); len(out) == maxDenials {
				return out
			}
		}
	}
	return out
}

// Scope implements policy.Decider.
func (h *host) Scope(ctx context.Context, req policy.Request) (policy.Scope, error) {
	p, err := h.policy(ctx)
	if err != nil {
		return policy.Scope{}, err
	}
	return p.Scope(ctx, req)
}
