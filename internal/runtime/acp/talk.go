package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

const (
	// untaken bounds the output that is read and not taken: the agent's spool holds
	// it.
	untaken = 256 << 10
	// keptText bounds what of an answer is kept beside the log.
	keptText = 64 << 10
	// mostGarbage is how many lines of an agent in one run may be no messages.
	mostGarbage = 50
	// mostUnknown is how many updates of unknown kinds a run passes on.
	mostUnknown = 10
	// mostTools bounds the calls of one prompt that are open.
	mostTools = 200
)

// garbled is an agent that does not speak the protocol.
type garbled struct{ error }

func (g *garbled) Unwrap() error { return g.error }

// unreadable counts a line that is no message. Programs do print such lines.
func (x *run) unreadable(raw []byte) error {
	if len(strings.TrimSpace(string(raw))) == 0 {
		return nil
	}
	if x.garbage++; x.garbage > mostGarbage {
		return &garbled{holdfast.Errorf(holdfast.KindUnavailable, op, "%d lines of it are no messages, the last begins with %s", x.garbage, holdfast.Quote(cut(string(raw), 80)))}
	}
	if x.garbage > 1 {
		return nil
	}
	return x.notice(x.context(), "agent.garbage", "warning", "the agent printed a line that is no message: "+holdfast.Quote(cut(string(raw), 80)))
}

// handle takes in a line while a prompt is under way. final is the answer to it.
func (x *run) handle(raw []byte) (final *message, err error) {
	m, err := parse(raw)
	if err != nil {
		return nil, x.unreadable(raw)
	}
	if id, ok := m.answers(); ok {
		if id == x.a.data.Prompt.ID {
			return &m, nil
		}
		return nil, nil
	}
	if m.Method == "" {
		return nil, nil
	}
	if m.ID != nil {
		return nil, x.serve(&m)
	}
	if m.Method != acp.ClientMethodSessionUpdate {
		return nil, nil
	}
	var u update
	if json.Unmarshal(m.Params, &u) != nil {
		return nil, x.notice(x.context(), "agent.unreadable", "warning", "the agent sent an update that cannot be read")
	}
	if u.Session != x.a.state.AgentID {
		return nil, nil
	}
	if err := x.update(&u, m.Params); err != nil {
		return nil, err
	}
	return nil, x.progress()
}

// progress takes what was read when much of it was not: the agent stands still on a
// full spool.
func (x *run) progress() error {
	if x.at-x.c.taken.durable.Load() < untaken {
		return nil
	}
	if p := x.a.data.Prompt; p != nil {
		n := 0
		for _, piece := range p.Parts {
			n += len(piece.Text)
		}
		if n > keptText {
			return x.record(x.flush("")...)
		}
	}
	return x.keep(x.context())
}

// record keeps drafts and remembers that the prompt produced something.
func (x *run) record(drafts ...journal.Draft) error {
	if len(drafts) == 0 {
		return nil
	}
	if p := x.a.data.Prompt; p != nil {
		p.Produced = true
	}
	return x.keep(x.context(), drafts...)
}

func (x *run) update(u *update, params json.RawMessage) error {
	switch u.Update.Kind {
	case "agent_message_chunk":
		x.chunk(u, false)
	case "agent_thought_chunk":
		x.chunk(u, true)
	case "tool_call", "tool_call_update":
		var outer struct {
			Update json.RawMessage `json:"update"`
		}
		if err := json.Unmarshal(params, &outer); err != nil {
			return nil
		}
		c, ok := toolOf(outer.Update)
		if !ok {
			return x.notice(x.context(), "agent.unreadable", "warning", "the agent sent a tool call that cannot be read")
		}
		return x.toolUpdate(c)
	case "plan":
		return x.plan(u.Update.Entries)
	case "user_message_chunk", "available_commands_update", "current_mode_update", "config_option_update", "session_info_update", "usage_update":
		// Known in the log otherwise, or of no use here.
	default:
		return x.unknown(u.Update.Kind, params)
	}
	return nil
}

// chunk is a piece of what the agent says or thinks.
func (x *run) chunk(u *update, thought bool) {
	text := textOf(u.Update.Content)
	if text == "" {
		return
	}
	p := x.a.data.Prompt
	typ := holdfast.DeltaText
	if thought {
		typ = holdfast.DeltaThinking
	}
	x.host.Delta(typ, holdfast.TextDelta{Text: text})
	if n := len(p.Parts); n > 0 && p.Parts[n-1].Thought == thought && p.Parts[n-1].Message == u.Update.MessageID {
		p.Parts[n-1].Text += text
		return
	}
	p.Parts = append(p.Parts, piece{Message: cut(u.Update.MessageID, 128), Thought: thought, Text: text})
}

// flush makes an answer of what was said and the tools that were not listed yet.
func (x *run) flush(stop string, listed ...*tool) []journal.Draft {
	p := x.a.data.Prompt
	if p == nil {
		return nil
	}
	var drafts []journal.Draft
	m := holdfast.AssistantMessage{Seen: x.seen(), StopReason: stop, Model: x.t.Session.Model}
	for _, piece := range p.Parts {
		if piece.Thought {
			drafts = append(drafts, draft(holdfast.EventThinking, holdfast.Thinking{Text: piece.Text}))
			m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartThinking})
			continue
		}
		m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartText, Text: piece.Text})
	}
	for _, t := range listed {
		t.Listed = true
		m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartToolUse, ToolUseID: t.ID})
	}
	p.Parts = nil
	if len(m.Parts) == 0 {
		return nil
	}
	return append(drafts, draft(holdfast.EventMessageAssistant, m))
}

// tool is the call with an id, new if need be.
func (x *run) tool(id string) *tool {
	p := x.a.data.Prompt
	for i := range p.Tools {
		if p.Tools[i].ID == id {
			return &p.Tools[i]
		}
	}
	if len(p.Tools) >= mostTools {
		p.Tools = slices.DeleteFunc(p.Tools, func(t tool) bool { return t.Over })
	}
	p.Tools = append(p.Tools, tool{ID: id})
	return &p.Tools[len(p.Tools)-1]
}

// announce makes what says that a tool was asked for.
func (x *run) announce(t *tool) []journal.Draft {
	if t.Told {
		return nil
	}
	var drafts []journal.Draft
	if !t.Listed {
		// Calls that came with it are of the same answer.
		p := x.a.data.Prompt
		var listed []*tool
		for i := range p.Tools {
			if o := &p.Tools[i]; !o.Listed {
				listed = append(listed, o)
			}
		}
		drafts = x.flush("tool_use", listed...)
	}
	t.Told, t.Tool = true, t.named(x.r.cfg.Profile.Name)
	t.Input = t.input(t.Tool)
	t.Raw, t.Old, t.New = nil, nil, nil
	return append(drafts, draft(holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: t.ID, Name: t.Tool, Input: t.Input}))
}

// toolUpdate takes in what the agent says of a tool call.
func (x *run) toolUpdate(c toolCall) error {
	t := x.tool(c.ID)
	if t.Over {
		return nil
	}
	t.learn(c)
	switch c.Status {
	case "completed", "failed":
		return x.finish(t, c)
	}
	if t.Call != "" {
		if text := shownText(c); text != t.shown && strings.HasPrefix(text, t.shown) {
			x.host.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: t.ID, Stream: "stdout", Text: text[len(t.shown):]})
			t.shown = cut(text, outcomeBytes)
		}
	}
	return nil
}

// finish records a tool's outcome. One that was never asked about is told of.
func (x *run) finish(t *tool, c toolCall) error {
	drafts := x.announce(t)
	asked := t.Call != "" || t.Ask != nil
	failed := c.Status == "failed"
	if t.Call == "" && !failed {
		call, err := x.host.NewCall()
		if err != nil {
			return err
		}
		t.Call = call
		drafts = append(drafts, draft(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: t.ID, Call: call, Box: x.box.ID(), Boot: x.box.Boot()}))
	}
	out := holdfast.ToolFinished{ToolUseID: t.ID, Call: t.Call, Outcome: holdfast.ExitOK, Content: said(c)}
	if failed {
		out.Outcome, out.IsError = holdfast.ExitError, true
		if x.ctx.Err() != nil {
			out.Outcome = holdfast.ExitCanceled
		}
	}
	drafts = append(drafts, draft(holdfast.EventToolFinished, out))
	if code := "agent.unasked"; !asked && !failed && !x.warned[code+t.Tool] {
		x.warned[code+t.Tool] = true
		drafts = append(drafts, draft(holdfast.EventNotice, holdfast.Notice{
			Code: code, Level: "warning", Text: fmt.Sprintf("the agent ran %s without asking: no rule decided about it", t.Tool),
		}))
	}
	t.Over, t.Ask, t.Input, t.Paths = true, nil, nil, nil
	return x.record(drafts...)
}

// endTools answers what is open: in this prompt, and in the log from a life before.
func (x *run) endTools(reason string) []journal.Draft {
	var drafts []journal.Draft
	p := x.a.data.Prompt
	known := map[string]bool{}
	if p != nil {
		for i := range p.Tools {
			t := &p.Tools[i]
			known[t.ID] = true
			if t.Over {
				continue
			}
			t.Over = true
			if !t.Told {
				continue
			}
			drafts = append(drafts, abandoned(t.ID, t.Call, reason))
		}
	}
	for _, o := range x.open {
		if known[o.use] {
			continue
		}
		var call holdfast.CallID
		if o.started != nil {
			call = o.started.Call
		}
		drafts = append(drafts, abandoned(o.use, call, reason))
	}
	return drafts
}

// abandoned is the answer to a tool use that the agent never gave. What was allowed
// may have run.
func abandoned(use string, call holdfast.CallID, reason string) journal.Draft {
	if call == "" {
		return draft(holdfast.EventToolFinished, holdfast.ToolFinished{
			ToolUseID: use, Outcome: holdfast.ExitCanceled, Content: "it was not allowed to run before: " + reason, IsError: true,
		})
	}
	return draft(holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: use, Call: call, Reason: reason})
}

// serve answers a request of the agent.
func (x *run) serve(m *message) error {
	if m.Method != acp.ClientMethodSessionRequestPermission {
		line, err := refuse(m.ID, m.Method)
		if err != nil {
			return err
		}
		// Lost with a server it is lost: whoever asks for what was not offered waits
		// for no answer of use.
		x.a.data.In += int64(len(line)) + 1
		return x.c.send(line)
	}
	var p permission
	bad := json.Unmarshal(m.Params, &p) != nil
	c, ok := toolOf(p.ToolCall)
	if bad || !ok || x.a.data.Prompt == nil || x.a.data.Prompt.Cancelled {
		line, err := chosen(m.ID, "")
		if err != nil {
			return err
		}
		return x.reply(line)
	}
	t := x.tool(c.ID)
	before := t.Input
	t.learn(c)
	drafts := x.announce(t)
	if len(drafts) == 0 && full(t.Raw) {
		// A further question about the same call, or what it asks for has changed.
		t.Input, t.Raw = t.input(t.Tool), nil
	}
	t.Ask, t.Yes, t.No = slices.Clone(m.ID), p.pick(true), p.pick(false)
	if err := x.record(drafts...); err != nil {
		return err
	}
	x.host.At("asked")
	if t.Call != "" && string(before) == string(t.Input) {
		return x.allow(t, policy.Decision{Verdict: policy.Allowed})
	}
	x.decide(t)
	return nil
}

// reply records an answer and sends it.
func (x *run) reply(line json.RawMessage, drafts ...journal.Draft) error {
	x.a.send(line, false)
	if out := x.a.data.Out; len(out) > 64 {
		// What is that old was taken; a prompt's own entry stays.
		x.a.data.Out = slices.DeleteFunc(slices.Clone(out[:len(out)-32]), func(s sent) bool { return !s.Prompt })
		x.a.data.Out = append(x.a.data.Out, out[len(out)-32:]...)
	}
	if err := x.keep(x.context(), drafts...); err != nil {
		return err
	}
	return x.c.send(line)
}

// verdict is what was decided about a tool call.
type verdict struct {
	use string
	d   policy.Decision
	err error
}

// decide asks whether a tool may run, while the agent is listened to.
func (x *run) decide(t *tool) {
	if t.deciding {
		return
	}
	t.deciding = true
	if x.stopDeciding == nil {
		x.deciders, x.stopDeciding = context.WithCancel(x.ctx)
	}
	ctx := x.deciders
	inputs := append([]json.RawMessage{t.Input}, t.more(t.Tool)...)
	req := policy.Request{
		Session: x.t.Session.ID, Mode: x.t.Session.Mode, Tool: t.Tool, ReadOnly: policy.Reads(t.Tool), CallID: t.ID,
	}
	use := t.ID
	x.deciding.Go(func() {
		v := verdict{use: use}
		for _, in := range inputs {
			req.Input = in
			if v.d, v.err = x.host.Decide(ctx, req); v.err != nil || v.d.Verdict != policy.Allowed {
				break
			}
			if v.d.Input != nil {
				v.d = policy.Decision{Verdict: policy.Denied, By: v.d.By, Reason: "its input was to be changed, which this agent has no way for"}
				break
			}
		}
		select {
		case x.decided <- v:
		case <-ctx.Done():
		}
	})
}

// decidedOn tells the agent what was decided.
func (x *run) decidedOn(v verdict) error {
	i := slices.IndexFunc(x.a.data.Prompt.Tools, func(t tool) bool { return t.ID == v.use })
	if i < 0 {
		return nil
	}
	t := &x.a.data.Prompt.Tools[i]
	t.deciding = false
	var open *policy.Undecided
	switch {
	case x.ctx.Err() != nil || t.Ask == nil:
		return nil
	case errors.As(v.err, &open):
		return v.err
	case v.err != nil:
		v.d = policy.Decision{By: v.d.By, Reason: "no decision: " + v.err.Error()}
	}
	if v.d.Verdict == policy.Allowed && t.Yes == "" {
		v.d = policy.Decision{By: "agent", Reason: "the agent takes no yes for this once"}
	}
	if v.d.Verdict == policy.Allowed {
		return x.allow(t, v.d)
	}
	return x.deny(t, v.d)
}

func (x *run) deny(t *tool, d policy.Decision) error {
	line, err := chosen(t.Ask, t.No)
	if err != nil {
		return err
	}
	by := d.By
	if by == "" {
		by = "policy"
	}
	dec := holdfast.ToolDecision{
		ToolUseID: t.ID, Tool: t.Tool, InputHash: holdfast.InputHash(t.Input), By: by, Rule: d.Rule, Reason: strings.ToValidUTF8(d.Reason, "\uFFFD"),
	}
	t.Ask = nil
	if t.Call != "" {
		// It was allowed once, and what it asks now was not: its outcome comes from
		// the agent.
		return x.reply(line)
	}
	t.Over, t.Input, t.Paths = true, nil, nil
	return x.reply(line, draft(holdfast.EventToolDenied, dec))
}

// allow records the intent and says yes, in this order.
func (x *run) allow(t *tool, d policy.Decision) error {
	line, err := chosen(t.Ask, t.Yes)
	if err != nil {
		return err
	}
	t.Ask = nil
	if t.Call != "" {
		return x.reply(line)
	}
	if t.Call, err = x.host.NewCall(); err != nil {
		return err
	}
	err = x.reply(
		line,
		draft(holdfast.EventToolAllowed, holdfast.ToolDecision{
			ToolUseID: t.ID, Tool: t.Tool, InputHash: holdfast.InputHash(t.Input), By: d.By, Rule: d.Rule,
		}),
		draft(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: t.ID, Call: t.Call, Box: x.box.ID(), Boot: x.box.Boot()}),
	)
	if err == nil {
		x.host.At("allowed")
	}
	return err
}
