package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// agentMark stands between a sub-agent and its tool use: their ids count within
// their own conversation.
const agentMark = '/'

// useID names a tool use of the turn.
func useID(agent, id string) string {
	if agent == "" {
		return id
	}
	return agent + string(agentMark) + id
}

const (
	// mostContent bounds what is recorded of a tool's outcome.
	mostContent = 100_000
	// mostPending is how many requests of the CLI the state may hold, mostKept bounds their
	// bytes: less than the store takes of a state.
	mostPending = 128
	mostKept    = 128 << 10
	// mostAnswers of them may be answers, mostAnswered bounds the bytes of those.
	mostAnswers, mostAnswered = 32, 32 << 10
	// mostKeptOutcome bounds what the state holds of a tool's outcome, for the next server's
	// hooks, in bytes.
	mostKeptOutcome = 16 << 10
	// mostInputs bounds the inputs of a turn's tool uses, in bytes.
	mostInputs = 64 << 20
)

// clip bounds a text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return valid(s[:most]) + fmt.Sprintf("\n[cut: %d bytes more]", len(s)-most)
}

func decode(raw json.RawMessage, v any) bool { return json.Unmarshal(raw, v) == nil }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// verdict is what came of a request that was dealt with beside the loop.
type verdict struct {
	p   pending
	use *use
	d   policy.Decision
	err error
	// body is the whole answer where it is no decision, ran what a tool of the server
	// came to.
	body object
	ran  *holdfast.ToolFinished
	said []string
	// untold says which changed files no hook was told of.
	untold string
}

// asked takes a request of the CLI.
func (x *run) asked(ctx context.Context, l *line) error {
	q := &l.Request
	p := pending{ID: l.RequestID}
	var agent, name string
	var input json.RawMessage
	switch {
	case q.Subtype == "hook_callback" && q.Callback == callbackPre:
		p.Kind, agent, name, input = kindPre, q.Input.Agent, q.Input.Tool, q.Input.ToolInput
		p.Use = useID(agent, first(q.ToolUseID, q.Input.ToolUseID))
	case q.Subtype == "hook_callback" && q.Callback == callbackPost:
		x.post(ctx, l.RequestID, &q.Input, first(q.ToolUseID, q.Input.ToolUseID))
		return nil
	case q.Subtype == "can_use_tool":
		p.Kind, agent, name, input = kindCan, q.Agent, q.Tool, q.RawInput
		p.Use = useID(agent, q.ToolUseID)
	case q.Subtype == "mcp_message":
		return x.mcp(ctx, l.RequestID, q)
	default:
		x.answer(p, refuse(p.ID, "not served: "+clip(q.Subtype, 60)))
		return nil
	}
	if x.has(p.ID) {
		return nil
	}
	if p.ID == "" || p.Use == "" || !x.fits(pending{}) {
		x.answer(p, denial(p, "too much at once"))
		return nil
	}
	input = objectOf(input)
	u := x.uses[p.Use]
	// An answer that is not complete yet may be the one that asks for it.
	waits := agent == "" && x.asm.open != nil && (u == nil || x.asm.open.has(p.Use))
	if !waits && u == nil {
		u = x.know(use{id: p.Use, agent: agent, name: toolName(name), input: input})
		x.add(holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: u.id, Name: u.name, Input: u.input})
	}
	if !sameJSON(x.told(p.Use), input) {
		p.Input = input
	}
	if !x.fits(p) {
		p.Input = nil
		x.answer(p, denial(p, "the input of this call is not the one of the answer that asks for it, and is too large"))
		return nil
	}
	x.mem.Pending = append(x.mem.Pending, p)
	x.dirty = true
	if waits {
		if !x.asm.open.streamed {
			x.deferClose()
		}
		return nil
	}
	x.pursue(ctx, p)
	return nil
}

// has reports whether a request was taken before.
func (x *run) has(id string) bool {
	return slices.ContainsFunc(x.mem.Pending, func(p pending) bool { return p.ID == id })
}

// answer answers a request that waits for nothing. The answer goes into the state as well:
// a server that dies between the commit and the sending leaves it to the next one, which
// does not read the request again. Of many such answers the oldest are forgotten: the CLI
// has them.
func (x *run) answer(p pending, line []byte) {
	if p.ID != "" && x.has(p.ID) {
		return
	}
	x.out = append(x.out, line)
	p.Kind, p.Answer = kindAnswer, bytes.TrimSpace(line)
	count, size := 0, 0
	x.mem.Pending = append(x.mem.Pending, p)
	for i := len(x.mem.Pending) - 1; i >= 0; i-- {
		if a := x.mem.Pending[i]; a.Kind == kindAnswer {
			count, size = count+1, size+len(a.Answer)
			if count > mostAnswers || size > mostAnswered {
				x.mem.Pending = slices.Delete(x.mem.Pending, i, i+1)
			}
		}
	}
}

// told is the input of a tool use in the log, or in the answer that is not complete.
func (x *run) told(id string) json.RawMessage {
	if u := x.uses[id]; u != nil {
		return u.input
	}
	if x.asm.open == nil {
		return nil
	}
	return x.asm.open.input(id)
}

// know adds a tool use to those of the turn.
func (x *run) know(u use) *use {
	u.state = requested
	x.uses[u.id] = &u
	x.inputs += len(u.input)
	return &u
}

// fits reports that the state has room for a request, beside the answers.
func (x *run) fits(p pending) bool {
	return len(x.mem.Pending) < mostPending-mostAnswers && len(bytesOf(append(slices.Clip(x.mem.Pending), p))) <= mostKept-mostAnswered
}

// spare forgets the input of a request that is not needed any more.
func (x *run) spare(id string) {
	for i := range x.mem.Pending {
		if p := &x.mem.Pending[i]; p.ID == id && p.Input != nil {
			p.Input, x.dirty = nil, true
		}
	}
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// pursue gets a request of the CLI its answer: the one that is in the log, or a
// decision.
func (x *run) pursue(ctx context.Context, p pending) {
	if p.Kind == kindAnswer {
		x.out = append(x.out, append(slices.Clone(p.Answer), '\n'))
		return
	}
	u := x.uses[p.Use]
	if u == nil {
		// It was asked about something that no answer holds.
		x.out = append(x.out, denial(p, "no such tool use"))
		return
	}
	if p.Input != nil && sameJSON(p.Input, u.input) {
		p.Input = nil
		x.spare(p.ID)
	}
	switch p.Kind {
	case kindCall:
		x.call(ctx, p, u)
		return
	case kindPost:
		x.fire(ctx, p, u)
		return
	}
	switch u.state {
	case denied:
		x.out = append(x.out, denial(p, u.reason))
		return
	case started, answered:
		if p.Kind == kindCan && p.Input != nil && !sameJSON(p.Input, u.runs()) {
			x.out = append(x.out, denial(p, "this is not the call that was allowed"))
			return
		}
		x.out = append(x.out, allowance(p, u))
		return
	}
	if x.deciding[p.Use] {
		return
	}
	if p.Kind == kindPre && p.Input != nil {
		// The CLI runs what it asks about, whatever the model said.
		u.input = p.Input
	}
	x.deciding[p.Use] = true
	req := policy.Request{
		Tool: u.name, ReadOnly: changesNothing(u.name), Input: x.named(u), CallID: x.askedAs(u), Agent: u.agent,
		Ready: func() error { return x.ready(ctx) },
	}
	listed, named := x.listed(u), !sameJSON(req.Input, u.input)
	x.beside(u.agent, func() verdict {
		d, err := x.host.Decide(ctx, req)
		if err == nil && d.Verdict == policy.Allowed {
			listed.begin(ctx)
		}
		v := verdict{p: p, use: u, d: d, err: err}
		if x.t.Hooks != nil && err == nil {
			v.said = x.t.Hooks.Said()
		}
		if named && d.Verdict == policy.Allowed && d.Input == nil {
			v.d.Input = req.Input
		}
		return v
	})
}

// askedAs is the id under which a use is decided. One that an agent which ended had
// asked for already, and that never began, is decided as that: whoever was asked about
// it is not asked again.
func (x *run) askedAs(u *use) string {
	for _, id := range slices.Sorted(maps.Keys(x.uses)) {
		o := x.uses[id]
		if o.orphan && o.name == u.name && o.agent == u.agent && sameJSON(o.input, u.input) {
			o.orphan = false
			return o.id
		}
	}
	return u.id
}

// runs is what the tool runs with.
func (u *use) runs() json.RawMessage {
	if u.rewritten != nil {
		return u.rewritten
	}
	return u.input
}

// beside does something beside the loop, in order for each agent.
func (x *run) beside(agent string, do func() verdict) {
	before, done := x.order[agent], make(chan struct{})
	x.order[agent] = done
	x.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		select {
		case x.decided <- do():
		case <-x.quit:
		}
	})
}

// ready makes durable what led to a question.
func (x *run) ready(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case x.flushes <- done:
		return <-done
	case <-x.quit:
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settle records a decision, and answers the CLI after that.
func (x *run) settle(ctx context.Context, v verdict) error {
	if v.untold != "" {
		x.notice(holdfast.NoticeFilesUntold, valid(v.untold))
	}
	if v.body != nil {
		x.out = append(x.out, reply(v.p.ID, v.body))
		return x.flush(ctx)
	}
	if v.ran != nil {
		return x.returned(ctx, v)
	}
	u := v.use
	delete(x.deciding, v.p.Use)
	if u.state != requested || x.halted {
		return nil
	}
	d, err := v.d, v.err
	var open *policy.Undecided
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case errors.As(err, &open), err != nil && undecided(err):
		return &leaving{err}
	case err != nil:
		d = policy.Decision{Verdict: policy.Denied, By: d.By, Reason: "no decision: " + err.Error()}
	}
	if d.Verdict == policy.Allowed && d.Input != nil && !isObject(d.Input) {
		d = policy.Decision{Verdict: policy.Denied, By: d.By, Reason: "the rewritten input is no JSON object"}
	}
	ev := holdfast.ToolDecision{
		ToolUseID: u.id, Tool: u.name, InputHash: holdfast.InputHash(u.input), By: d.By, Rule: d.Rule,
	}
	if d.Verdict != policy.Allowed {
		ev.Reason, ev.By = valid(d.Reason), first(d.By, "policy")
		x.add(holdfast.EventToolDenied, ev)
		u.state, u.reason = denied, strings.Join(append([]string{ev.Reason}, v.said...), "\n")
	} else {
		call, err := x.host.NewCall()
		if err != nil {
			return err
		}
		ev.Input, u.rewritten = d.Input, d.Input
		x.add(holdfast.EventToolAllowed, ev)
		x.add(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: u.id, Call: call, Box: x.state.Box, Boot: x.state.Boot})
		u.state, u.call, u.began = started, call, x.r.cfg.Now()
		x.effects = true
		x.saved = append(x.saved, v.said...)
	}
	for _, p := range x.mem.Pending {
		if p.Use == u.id && p.open() {
			x.pursue(ctx, p)
			if p.Kind == kindPre {
				x.spare(p.ID)
			}
		}
	}
	if err := x.flush(ctx); err != nil {
		return err
	}
	x.host.At("decided")
	return nil
}

// leaving is why a run is left as it stands: the next server goes on with it.
type leaving struct{ why error }

func (l *leaving) Error() string { return l.why.Error() }

// undecided reports an error that is no opinion: the server is leaving, or its store
// does not take records.
func undecided(err error) bool {
	var known *holdfast.Error
	return !errors.As(err, &known)
}

func isObject(raw json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(raw, &m) == nil && m != nil
}

// allowance tells the CLI to go on with a tool use.
func allowance(p pending, u *use) []byte {
	if p.Kind == kindCan {
		return reply(p.ID, object{"behavior": "allow", "updatedInput": u.runs()})
	}
	out := object{"hookEventName": "PreToolUse", "permissionDecision": "allow"}
	if u.rewritten != nil {
		out["updatedInput"] = u.rewritten
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

// sameJSON reports that two values are the same, however they are written.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if !decode(a, &x) || !decode(b, &y) {
		return false
	}
	return bytes.Equal(bytesOf(x), bytesOf(y))
}

// replied takes the CLI's answer to a request of the server.
func (x *run) replied(l *line) error {
	a := &l.Response
	switch a.RequestID {
	case handshakeID:
		return x.shaken(a)
	case "hf-model":
		if a.Subtype != "success" {
			x.notice("agent.model", "the agent keeps its model: "+clip(stringOf(a.Error), 300))
		}
	}
	return nil
}

// shaken holds what the CLI says of itself against what this runtime needs of it.
func (x *run) shaken(a *response) error {
	if x.mem.Shaken {
		return nil
	}
	var g greeting
	bad := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindUnavailable, op, format, args...).WithHint("holdfast runtime install claude")
	}
	switch {
	case a.Subtype != "success":
		return bad("the Claude Code CLI refused the handshake: %s", clip(stringOf(a.Error), 300))
	case !decode(a.Response, &g):
		return bad("the Claude Code CLI answered the handshake with %s", holdfast.Quote(clip(string(a.Response), 100)))
	case g.Version != x.r.cfg.Version:
		return bad("the Claude Code CLI is release %s, this server drives %s", holdfast.Quote(g.Version), x.r.cfg.Version)
	case !g.HooksApplied:
		return bad("the Claude Code CLI did not take the callbacks that its tools are decided by")
	}
	x.state.Version, x.mem.Shaken, x.dirty = g.Version, true, true
	if x.plan != nil {
		x.receipt(x.plan.tier)
	} else {
		x.receipt(holdfast.TierLive)
	}
	x.host.At("agent-ready")
	return nil
}
