package engine

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/permit"
	"github.com/holdfast-run/holdfast/policy"
)

// maxToolName bounds a tool's name, in bytes.
const maxToolName = 200

// Explain says how a tool call of a session would be decided as things stand. It
// asks nobody, runs no hook and changes nothing. Invalid: no name, an input that is
// no object; not_found for an unknown session.
func (e *Engine) Explain(ctx context.Context, id holdfast.SessionID, req holdfast.ExplainPolicy) (holdfast.PolicyExplanation, error) {
	const op = "policy.explain"
	var none holdfast.PolicyExplanation
	if req.Tool == "" || len(req.Tool) > maxToolName {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "tool: %s is not a tool's name", holdfast.Quote(req.Tool)).
			WithHint("use Bash, Read, Write, WebFetch or another tool's name")
	}
	if err := validText("tool", req.Tool); err != nil {
		return none, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(req.Input, &fields); err != nil || fields == nil {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "input: %s is not a JSON object", holdfast.Quote(string(req.Input)))
	}
	row, err := e.cfg.Store.Row(ctx, id)
	if err != nil {
		return none, err
	}
	p, _, err := e.agents.policies.Layers(permit.Session{Row: row}).Policy(ctx)
	if err != nil {
		return none, err
	}
	d, trace, err := p.Rehearse(ctx, policy.Request{
		Session: id, Mode: row.Mode, Tool: req.Tool, ReadOnly: p.Reads(req.Tool), Input: req.Input, Sandboxed: row.Trust == holdfast.Untrusted,
		FS: permit.NewLinks(ctx, e.boxes.Running(row), e.boxes.Workspace(id), e.cfg.Clock),
	})
	if err != nil {
		return none, err
	}
	return trace.Explains(d, row.Mode), nil
}
