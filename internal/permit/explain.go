package permit

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// maxToolName is the largest length of a tool's name, in bytes.
const maxToolName = 200

// Explain returns how a tool call of a session would be decided now, and why. It asks nobody, runs
// no hook and changes nothing. It fails with invalid if the tool's name is empty or too long, or if
// the input is not a JSON object.
func (p *Policies) Explain(ctx context.Context, row journal.Row, req holdfast.ExplainPolicy, files *Links) (holdfast.PolicyExplanation, error) {
	const op = "policy.explain"
	var none holdfast.PolicyExplanation
	if req.Tool == "" || len(req.Tool) > maxToolName {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "tool: %s is not a tool name: it must have 1 to 200 bytes", holdfast.Quote(req.Tool)).
			WithHint("name a tool, such as Bash, Read, Write or WebFetch")
	}
	if err := journal.CheckText("tool", req.Tool); err != nil {
		return none, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(req.Input, &fields); err != nil || fields == nil {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "input: %s is not a JSON object", holdfast.Quote(string(req.Input)))
	}
	engine, _, err := p.Layers(Session{Row: row}).Policy(ctx)
	if err != nil {
		return none, err
	}
	d, trace, err := engine.Rehearse(ctx, policy.Request{
		Session: row.ID, Mode: row.Mode, Tool: req.Tool, ReadOnly: engine.Reads(req.Tool), Input: req.Input,
		Sandboxed: row.Trust == holdfast.Untrusted, FS: files, Named: files.Named,
	})
	if err != nil {
		return none, err
	}
	return trace.Explains(d, row.Mode), nil
}
