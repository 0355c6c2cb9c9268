package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/policy"
)

// mostTools is how many tool calls of one prompt are stored. Above that number, finished calls are dropped.
const mostTools = 200

// calls handles the tool calls of the current prompt: it records the agent's updates as steps in
// the ledger, and answers the agent's permission requests.
type calls struct {
	profile string
	agent   *agent
	t       *runtime.Turn
	host    runtime.Host
	turn    *resident.Run
	speech  *speech
	flush   func(context.Context) error
	// deciding are the ids of the calls that wait for a decision. warned are the tools for which a notice
	// already says that they ran without a permission request.
	deciding, warned map[string]bool
}

// get returns the call with an id, and adds it if it is new.
func (c *calls) get(id string) *tool {
	p := c.agent.data.Prompt
	for i := range p.Tools {
		if p.Tools[i].ID == id {
			return &p.Tools[i]
		}
	}
	if len(p.Tools) >= mostTools {
		p.Tools = slices.DeleteFunc(p.Tools, func(t tool) bool { return c.over(&t) })
	}
	p.Tools = append(p.Tools, tool{ID: id})
	return &p.Tools[len(p.Tools)-1]
}

// use returns the ledger's entry of a call, or nil if the call is not in the log yet.
func (c *calls) use(t *tool) *resident.Use {
	if !t.Told {
		return nil
	}
	return c.turn.Uses.Get(t.ID)
}

func (c *calls) over(t *tool) bool {
	u := c.use(t)
	return u != nil && u.Over()
}

// request records a call of the agent, once, together with text that came before it, and returns
// its entry in the ledger. first is true if the call was not recorded before.
func (c *calls) request(t *tool) (u *resident.Use, first bool) {
	if u := c.use(t); u != nil {
		return u, false
	}
	if !t.Listed {
		// Calls that arrived together belong to the same answer.
		p := c.agent.data.Prompt
		var listed []*tool
		for i := range p.Tools {
			if o := &p.Tools[i]; !o.Listed {
				listed = append(listed, o)
			}
		}
		c.speech.record("tool_use", listed...)
	}
	name := t.named(c.profile)
	u = c.turn.Uses.Request(t.ID, name, t.input(name))
	t.Told, t.Raw, t.Old, t.New = true, nil, nil, nil
	c.agent.data.Prompt.Produced = true
	return u, true
}

// update handles the agent's update of a tool call.
func (c *calls) update(call toolCall) error {
	t := c.get(call.ID)
	if c.over(t) {
		return nil
	}
	t.learn(call)
	switch call.Status {
	case "completed", "failed":
		return c.finish(t, call)
	}
	if u := c.use(t); u != nil && u.State == resident.Started {
		if text := shownText(call); text != t.shown && strings.HasPrefix(text, t.shown) {
			c.host.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: t.ID, Stream: "stdout", Text: text[len(t.shown):]})
			t.shown = clip.Counted(text, outcomeBytes)
		}
	}
	return nil
}

// finish records a call's outcome, and a notice if the call ran without a permission request.
func (c *calls) finish(t *tool, call toolCall) error {
	u, _ := c.request(t)
	unasked := u.State == resident.Requested && t.Ask == ""
	failed := call.Status == "failed"
	if u.State == resident.Requested && !failed {
		id, err := c.host.NewCall()
		if err != nil {
			return err
		}
		c.turn.Uses.Start(u, id, c.turn.Box.ID(), c.turn.Box.Boot())
	}
	out := holdfast.ToolFinished{Outcome: holdfast.ExitOK, Content: said(call)}
	if failed {
		out.Outcome, out.IsError = holdfast.ExitError, true
		if c.turn.Halted {
			out.Outcome = holdfast.ExitCanceled
		}
	}
	c.turn.Uses.Finish(u, out)
	if unasked && !failed && !c.warned[u.Name] {
		c.warned[u.Name] = true
		c.turn.Recorder.Add(holdfast.EventNotice, holdfast.Notice{
			Code: "agent.unasked", Level: "warning", Text: fmt.Sprintf("the agent ran %s without asking: no rule decided about it", u.Name),
		})
	}
	t.Ask, t.Input, t.Paths = "", nil, nil
	return nil
}

// asked handles a permission request. It refuses a request about a finished call, whose outcome
// is in the log.
func (c *calls) asked(ctx context.Context, m *jsonrpc.Message) error {
	var p permission
	bad := json.Unmarshal(m.Params, &p) != nil
	call, ok := toolOf(p.ToolCall)
	if bad || !ok || c.agent.data.Prompt == nil || c.agent.data.Prompt.Cancelled {
		c.reply(m.ID, "")
		return nil
	}
	t := c.get(call.ID)
	if c.over(t) {
		c.reply(m.ID, p.pick(false))
		return nil
	}
	t.learn(call)
	u, first := c.request(t)
	same := true
	if !first && full(t.Raw) {
		// The call was recorded already: this is a further permission request for it, perhaps with a changed input.
		input := t.input(u.Name)
		if same = bytes.Equal(input, u.Input); !same {
			u.Input, t.Input = input, input
		}
		t.Raw = nil
	}
	t.Ask, t.Yes, t.No = m.ID, p.pick(true), p.pick(false)
	c.turn.Recorder.Touch()
	if err := c.flush(ctx); err != nil {
		return err
	}
	c.host.At("asked")
	if u.State == resident.Started && same {
		return c.answer(ctx, t, t.Yes)
	}
	c.decide(ctx, t, u)
	return nil
}

// reply answers the permission request id with an option. An empty option answers that the request was cancelled.
func (c *calls) reply(id jsonrpc.ID, option string) {
	c.turn.Outbox.Add(chosen(id, option), "")
	c.turn.Recorder.Touch()
}

// decideAll starts the decisions on the permission requests that an earlier server left open.
func (c *calls) decideAll(ctx context.Context) {
	p := c.agent.data.Prompt
	if p == nil {
		return
	}
	for i := range p.Tools {
		t := &p.Tools[i]
		u := c.use(t)
		if u == nil || t.Ask == "" {
			continue
		}
		if t.Input != nil {
			u.Input = t.Input
		}
		c.decide(ctx, t, u)
	}
}

// wait reports whether the agent has unfinished calls and all of them wait for decisions.
func (c *calls) wait() bool {
	asked := false
	for i := range c.agent.data.Prompt.Tools {
		t := &c.agent.data.Prompt.Tools[i]
		u := c.use(t)
		switch {
		case u == nil && t.Ask == "", u != nil && u.Over():
		case u == nil, u.State == resident.Started, t.Ask == "":
			return false
		default:
			asked = true
		}
	}
	return asked
}

// decide starts the decision whether a call may run; the agent's output is read meanwhile.
func (c *calls) decide(ctx context.Context, t *tool, u *resident.Use) {
	if c.deciding[t.ID] {
		return
	}
	c.deciding[t.ID] = true
	inputs := append([]json.RawMessage{u.Input}, t.more(u.Name, u.Input)...)
	session, host, prompt := &c.t.Session, c.host, c.agent.data.Prompt
	req := policy.Request{Session: session.ID, Mode: session.Mode, Tool: u.Name, ReadOnly: policy.Reads(u.Name), CallID: u.ID, Unscoped: true}
	var made *policy.Decision
	if o := c.turn.Uses.Before(u); o != nil {
		req.CallID, made = o.ID, o.Decision
	}
	c.turn.Decisions.Go(u.ID, func() (resident.Then, error) {
		var d policy.Decision
		var err error
		if made != nil {
			d, inputs = *made, nil
		}
		for _, in := range inputs {
			req.Input = in
			if d, err = host.Decide(ctx, req); err != nil || d.Verdict != policy.Allowed {
				break
			}
			if d.Input != nil {
				d = policy.Decision{Verdict: policy.Denied, By: d.By, Reason: "a rule or hook changed its input, which this agent does not support"}
				break
			}
		}
		return func(ctx context.Context) error {
			delete(c.deciding, u.ID)
			if c.agent.data.Prompt != prompt {
				u.Late(d, err)
				return nil
			}
			return c.settle(ctx, u, d, err)
		}, err
	})
}

// settle records a decision and then answers the agent.
func (c *calls) settle(ctx context.Context, u *resident.Use, d policy.Decision, err error) error {
	t := c.get(u.ID)
	if t.Ask == "" {
		return nil
	}
	if d.Verdict == policy.Allowed && t.Yes == "" {
		d = policy.Decision{Verdict: policy.Denied, By: "agent", Reason: "the agent offers no way to allow this call once"}
	}
	allowed, ok, err := c.turn.Decided(ctx, u, d, err)
	if !ok || err != nil {
		return err
	}
	option := t.No
	if allowed {
		option = t.Yes
	}
	if err := c.answer(ctx, t, option); err != nil {
		return err
	}
	c.host.At("decided")
	return nil
}

// answer answers the open permission request of a call.
func (c *calls) answer(ctx context.Context, t *tool, option string) error {
	c.reply(t.Ask, option)
	t.Ask, t.Input = "", nil
	return c.flush(ctx)
}

// refuseAll answers every open permission request as cancelled, because the turn is cancelled.
func (c *calls) refuseAll() {
	for i := range c.agent.data.Prompt.Tools {
		if t := &c.agent.data.Prompt.Tools[i]; t.Ask != "" {
			c.reply(t.Ask, "")
			t.Ask = ""
		}
	}
}
