package claude

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/policy"
)

const (
	// mostContent bounds what is recorded of a tool's outcome, in bytes.
	mostContent = 100_000
	// mostKeptOutcome bounds what the state holds of a tool's outcome, for the next server's
	// hooks, in bytes.
	mostKeptOutcome = 16 << 10
)

// requests answers what the CLI asks the server about its tool uses: whether one may run,
// and what hooks say to its outcome.
type requests struct {
	t     *runtime.Turn
	host  runtime.Host
	turn  *resident.Run
	inbox *inbox
	// asm is the answer under way: it may be the one that asks for a use.
	asm    *assembler
	server *server
	flush  func(context.Context) error
	// deciding are the uses that are being decided.
	deciding map[string]bool
	// saved is what hooks said before a tool call, until the CLI can be told.
	saved []string
}

// asked takes a request of the CLI.
func (q *requests) asked(ctx context.Context, l *line) error {
	r := &l.Request
	p := pending{ID: l.RequestID}
	var agent, name string
	var input json.RawMessage
	switch {
	case r.Subtype == "hook_callback" && r.Callback == callbackPre:
		p.Kind, agent, name, input = kindPre, r.Input.Agent, r.Input.Tool, r.Input.ToolInput
		p.Use = resident.UseID(agent, cmp.Or(r.ToolUseID, r.Input.ToolUseID))
	case r.Subtype == "hook_callback" && r.Callback == callbackPost:
		q.post(ctx, l.RequestID, &r.Input, cmp.Or(r.ToolUseID, r.Input.ToolUseID))
		return nil
	case r.Subtype == "can_use_tool":
		p.Kind, agent, name, input = kindCan, r.Agent, r.Tool, r.RawInput
		p.Use = resident.UseID(agent, r.ToolUseID)
	case r.Subtype == "mcp_message":
		return q.server.message(ctx, l.RequestID, r)
	default:
		q.inbox.answer(p.ID, refuse(p.ID, "not served: "+resident.Clip(r.Subtype, 60)))
		return nil
	}
	if q.inbox.has(p.ID) {
		return nil
	}
	if p.ID == "" || p.Use == "" || !q.inbox.fits(pending{}) {
		q.inbox.answer(p.ID, denial(p, "too much at once"))
		return nil
	}
	input = objectOf(input)
	u := q.turn.Uses.Get(p.Use)
	// An answer that is not complete yet may be the one that asks for it.
	waits := agent == "" && q.asm.open != nil && (u == nil || q.asm.open.has(p.Use))
	if !waits && u == nil {
		q.turn.Uses.Request(p.Use, toolName(name), input)
	}
	if !sameJSON(q.recorded(p.Use), input) {
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

// recorded is the input of a tool use in the log, or in the answer that is not complete.
func (q *requests) recorded(id string) json.RawMessage {
	if u := q.turn.Uses.Get(id); u != nil {
		return u.Input
	}
	if q.asm.open == nil {
		return nil
	}
	return q.asm.open.input(id)
}

// answered pursues what waited for an answer of the model that is complete now.
func (q *requests) answered(ctx context.Context, o *answer) {
	for _, p := range slices.Clone(q.inbox.list) {
		if u := q.turn.Uses.Get(p.Use); p.open() && (u == nil || o.has(p.Use)) {
			q.pursue(ctx, p)
		}
	}
}

// pursueAll answers what the CLI asked a former attachment: those answers may be lost.
func (q *requests) pursueAll(ctx context.Context) {
	for _, p := range slices.Clone(q.inbox.list) {
		q.pursue(ctx, p)
	}
}

// pursue gets a request of the CLI its answer: the one that is in the log, or a decision.
func (q *requests) pursue(ctx context.Context, p pending) {
	u := q.turn.Uses.Get(p.Use)
	if u == nil {
		// It was asked about something that no answer holds.
		q.turn.Outbox.Pass(denial(p, "no such tool use"))
		return
	}
	if p.Input != nil && sameJSON(p.Input, u.Input) {
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
	switch u.State {
	case resident.Denied:
		q.turn.Outbox.Pass(denial(p, u.Reason))
		return
	case resident.Started, resident.Answered:
		if p.Kind == kindCan && p.Input != nil && !sameJSON(p.Input, u.Runs()) {
			q.turn.Outbox.Pass(denial(p, "this is not the call that was allowed"))
			return
		}
		q.turn.Outbox.Pass(allowance(p, u))
		return
	}
	if q.deciding[p.Use] {
		return
	}
	if p.Kind == kindPre && p.Input != nil {
		// The CLI runs what it asks about, whatever the model said.
		u.Input = p.Input
	}
	q.deciding[p.Use] = true
	q.decide(ctx, u)
}

// decide decides about a tool use while the CLI is read.
func (q *requests) decide(ctx context.Context, u *resident.Use) {
	req := policy.Request{
		Tool: u.Name, ReadOnly: cli.ChangesNothing(u.Name), Input: cli.Named(q.t.Folder, u.Name, u.Input), CallID: q.askedAs(u), Agent: u.Agent,
		Ready: func() error { return q.turn.Decisions.Call(ctx, q.flush) },
	}
	listed, named := listingOf(q.t, q.turn.Box, u), !sameJSON(req.Input, u.Input)
	host, hooks := q.host, q.t.Hooks
	q.turn.Decisions.Go(u.Agent, func() resident.Then {
		d, err := host.Decide(ctx, req)
		if err == nil && d.Verdict == policy.Allowed {
			listed.begin(ctx)
		}
		var said []string
		if hooks != nil && err == nil {
			said = hooks.Said()
		}
		if named && d.Verdict == policy.Allowed && d.Input == nil {
			d.Input = req.Input
		}
		return func(ctx context.Context) error { return q.settle(ctx, u, d, err, said) }
	})
}

// askedAs is the id under which a use is decided. One that an agent which ended had asked
// for already, and that never began, is decided under the id of then: the person who was
// asked about it is not asked again.
func (q *requests) askedAs(u *resident.Use) string {
	for _, o := range q.turn.Uses.All() {
		if o.Orphan && o.Name == u.Name && o.Agent == u.Agent && sameJSON(o.Input, u.Input) {
			o.Orphan = false
			return o.ID
		}
	}
	return u.ID
}

// settle records a decision, and answers the CLI after that. Said are the texts of hooks
// about it.
func (q *requests) settle(ctx context.Context, u *resident.Use, d policy.Decision, err error, said []string) error {
	delete(q.deciding, u.ID)
	if d.Verdict == policy.Allowed && d.Input != nil && !isObject(d.Input) {
		d = policy.Decision{Verdict: policy.Denied, By: d.By, Reason: "the rewritten input is no JSON object"}
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

// sameJSON reports that two values are the same, however they are written.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if !decode(a, &x) || !decode(b, &y) {
		return false
	}
	return bytes.Equal(resident.Marshal(x), resident.Marshal(y))
}

// allowance tells the CLI to go on with a tool use.
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

// denial tells the CLI, and with it the model, why a tool is not run.
func denial(p pending, why string) []byte {
	if p.Kind == kindCan {
		return reply(p.ID, object{"behavior": "deny", "message": why})
	}
	return reply(p.ID, object{"hookSpecificOutput": object{
		"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why,
	}})
}
