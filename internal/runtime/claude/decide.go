package claude

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/policy"
)

const (
	// mostContent is the most bytes that are recorded of a tool's outcome.
	mostContent = 100_000
	// mostKeptOutcome is the most bytes of a tool's outcome that are stored in the agent's state, so that the
	// next server can run the hooks about it.
	mostKeptOutcome = 16 << 10
)

// requests answers the CLI's requests about its tool uses: whether a tool may run, and what
// hooks reply to its outcome.
type requests struct {
	t     *runtime.Turn
	host  runtime.Host
	turn  *resident.Run
	inbox *inbox
	// asm assembles the model's current answer. A request may be about a tool use in that answer.
	asm    *assembler
	server *server
	flush  func(context.Context) error
	// deciding are the ids of the uses whose decision is pending.
	deciding map[string]bool
	// saved are texts that hooks returned before a tool call. They wait until they can be sent to the CLI.
	saved []string
}

// asked handles a request of the CLI. A request about a tool use that can wait for a decision is stored in the inbox.
func (q *requests) asked(ctx context.Context, l *line) error {
	r := &l.Request
	p := pending{ID: l.RequestID}
	var agent string
	var input json.RawMessage
	switch {
	case r.Subtype == "hook_callback" && r.Callback == callbackPre:
		p.Kind, p.Name, agent, input = kindPre, toolName(r.Input.Tool), r.Input.Agent, r.Input.ToolInput
		p.Use = resident.UseID(agent, cmp.Or(r.ToolUseID, r.Input.ToolUseID))
	case r.Subtype == "hook_callback" && r.Callback == callbackPost:
		q.post(ctx, l.RequestID, &r.Input, cmp.Or(r.ToolUseID, r.Input.ToolUseID))
		return nil
	case r.Subtype == "can_use_tool":
		p.Kind, p.Name, agent, input = kindCan, toolName(r.Tool), r.Agent, r.RawInput
		p.Use = resident.UseID(agent, r.ToolUseID)
	case r.Subtype == "mcp_message":
		return q.server.message(ctx, l.RequestID, r)
	default:
		q.inbox.answer(p.ID, refuse(p.ID, "not served: "+clip.Counted(r.Subtype, 60)))
		return nil
	}
	if q.inbox.has(p.ID) {
		return nil
	}
	if p.ID == "" || p.Use == "" || p.Name == "" || !q.inbox.fits(pending{}) {
		q.inbox.answer(p.ID, denial(p, "the request lacks an id or the tool's name, or there are too many at once"))
		return nil
	}
	input = objectOf(input)
	u := q.turn.Uses.Get(p.Use)
	// The current, incomplete answer may be the one that contains the use.
	waits := agent == "" && q.asm.open != nil && (u == nil || q.asm.open.has(p.Use))
	if !waits && u == nil {
		q.turn.Uses.Request(p.Use, p.Name, input)
	}
	// A second request about the same use may have another input than the first one.
	again := slices.ContainsFunc(q.inbox.list, func(o pending) bool { return o.Use == p.Use && o.Kind == p.Kind })
	if again || !resident.SameJSON(q.recorded(p.Use), input) {
		p.Input = input
	}
	if !q.inbox.fits(p) {
		p.Input = nil
		q.inbox.answer(p.ID, denial(p, "the input of this call is not the one of the answer that asks for it, and is too large"))
		return nil
	}
	q.inbox.add(p)
	if !waits {
		q.pursue(ctx, p)
	}
	return nil
}

// recorded returns the input of a tool use from the log or from the current answer, or nil.
func (q *requests) recorded(id string) json.RawMessage {
	if u := q.turn.Uses.Get(id); u != nil {
		return u.Input
	}
	if q.asm.open == nil {
		return nil
	}
	return q.asm.open.input(id)
}

// wait reports whether each agent that is not idle, the main one or a sub-agent, waits for a decision on a tool use.
func (q *requests) wait() bool {
	asked := map[string]bool{}
	for _, p := range q.inbox.list {
		switch u := q.turn.Uses.Get(p.Use); {
		case u == nil:
			return false
		case u.State == resident.Requested && (p.Kind == kindPre || p.Kind == kindCan):
			asked[u.Agent] = true
		case !u.Over() && u.State != resident.Started:
			return false
		}
	}
	waiting := len(asked)
	delete(asked, "")
	children := 0
	for _, u := range q.turn.Uses.All() {
		if u.State != resident.Started {
			continue
		}
		if u.Name != agentTool {
			return false
		}
		children++
	}
	return waiting > 0 && children <= len(asked)
}

// answered continues the requests about tool uses of the answer o, which have waited until o was complete.
func (q *requests) answered(ctx context.Context, o *answer) {
	for _, p := range slices.Clone(q.inbox.list) {
		if u := q.turn.Uses.Get(p.Use); p.open() && (u == nil || o.has(p.Use)) {
			q.pursue(ctx, p)
		}
	}
}

// pursueAll pursues all stored requests again: earlier answers may be lost, and decisions may not have begun yet.
func (q *requests) pursueAll(ctx context.Context) {
	for _, p := range slices.Clone(q.inbox.list) {
		q.pursue(ctx, p)
	}
}

// pursue continues a request. If the log says whether the tool use is allowed, it answers; else it starts the decision.
func (q *requests) pursue(ctx context.Context, p pending) {
	u := q.turn.Uses.Get(p.Use)
	if u == nil {
		// No answer of the model contains this use.
		q.turn.Outbox.Pass(denial(p, "no such tool use"))
		return
	}
	if p.Input != nil && resident.SameJSON(p.Input, u.Input) {
		p.Input = nil
		q.inbox.spare(p.ID)
	}
	switch p.Kind {
	case kindCall:
		q.server.again(ctx, p, u)
		return
	case kindPost:
		q.fire(ctx, p, u)
		return
	}
	switch decided := u.State != resident.Requested; {
	case u.State == resident.Denied:
		q.turn.Outbox.Pass(denial(p, u.Reason))
		return
	case p.Name != "" && p.Name != u.Name, decided && p.Input != nil && (p.Kind == kindPre || !resident.SameJSON(p.Input, u.Runs())):
		q.turn.Outbox.Pass(denial(p, "this is not the call that was allowed"))
		return
	case decided:
		q.turn.Outbox.Pass(allowance(p, u))
		return
	case q.deciding[p.Use]:
		return
	}
	if p.Kind == kindPre && p.Input != nil {
		// Decide on the CLI's input, because the CLI runs that, even if the model's answer has another one.
		u.Input = p.Input
	}
	q.deciding[p.Use] = true
	q.decide(ctx, u)
}

// decide starts the decision on a tool use; the CLI's lines are read meanwhile.
func (q *requests) decide(ctx context.Context, u *resident.Use) {
	req := policy.Request{
		Tool: u.Name, ReadOnly: cli.ChangesNothing(u.Name), Input: cli.Named(q.t.Folder, u.Name, u.Input), CallID: u.ID, Agent: u.Agent, Unscoped: true,
		Ready: func() error { return q.turn.Decisions.Call(ctx, q.flush) },
	}
	var made *policy.Decision
	if o := q.turn.Uses.Before(u); o != nil {
		req.CallID, made = o.ID, o.Decision
	}
	listed, named := q.listing(u), !resident.SameJSON(req.Input, u.Input)
	host, hooks := q.host, q.t.Hooks
	q.turn.Decisions.Go(u.Agent, func() (resident.Then, error) {
		var d policy.Decision
		var err error
		if made != nil {
			d = *made
		} else {
			d, err = host.Decide(ctx, req)
		}
		if err == nil && d.Verdict == policy.Allowed {
			listed.Begin(ctx)
		}
		var said []string
		if hooks != nil && err == nil {
			said = hooks.Said()
		}
		if named && d.Verdict == policy.Allowed && d.Input == nil {
			d.Input = req.Input
		}
		return func(ctx context.Context) error { return q.settle(ctx, u, d, err, said) }, err
	})
}

// settle records a decision and then answers the CLI. said are texts of hooks about the decision.
func (q *requests) settle(ctx context.Context, u *resident.Use, d policy.Decision, err error, said []string) error {
	delete(q.deciding, u.ID)
	if d.Verdict == policy.Allowed && d.Input != nil && !isObject(d.Input) {
		d = policy.Decision{Verdict: policy.Denied, By: d.By, Reason: "the input that the decision put in place is not a JSON object"}
	}
	allowed, ok, err := q.turn.Decided(ctx, u, d, err)
	switch {
	case !ok || err != nil:
		return err
	case allowed:
		q.saved = append(q.saved, said...)
	default:
		u.Reason = strings.Join(append([]string{u.Reason}, said...), "\n")
	}
	for _, p := range slices.Clone(q.inbox.list) {
		if p.Use == u.ID && p.open() {
			q.pursue(ctx, p)
			if p.Kind == kindPre {
				q.inbox.spare(p.ID)
			}
		}
	}
	if err := q.flush(ctx); err != nil {
		return err
	}
	q.host.At("decided")
	return nil
}

func isObject(raw json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(raw, &m) == nil && m != nil
}

func decode(raw json.RawMessage, v any) bool { return json.Unmarshal(raw, v) == nil }

// allowance returns the answer by which the CLI runs a tool use.
func allowance(p pending, u *resident.Use) []byte {
	if p.Kind == kindCan {
		return reply(p.ID, object{"behavior": "allow", "updatedInput": u.Runs()})
	}
	out := object{"hookEventName": "PreToolUse", "permissionDecision": "allow"}
	if u.Rewritten != nil {
		out["updatedInput"] = u.Rewritten
	}
	return reply(p.ID, object{"hookSpecificOutput": out})
}

// denial returns the answer by which the CLI does not run a tool; the model reads why.
func denial(p pending, why string) []byte {
	if p.Kind == kindCan {
		return reply(p.ID, object{"behavior": "deny", "message": why})
	}
	return reply(p.ID, object{"hookSpecificOutput": object{
		"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why,
	}})
}
