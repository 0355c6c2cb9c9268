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

const (
	// mostTools is how many tool calls of one prompt are stored. Above that number, finished calls are dropped.
	mostTools = 200
	// mostOpen is the most unfinished tool calls of one prompt, mostHeld the most bytes of the parts of them that are
	// not in the log. More of them fail the turn.
	mostOpen, mostHeld = 500, 16 << 20
)

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
	// already says that they ran without a permission request, and the codes of other notices that are written once.
	deciding, warned map[string]bool
}

// find returns the call with an id, or nil.
func (c *calls) find(id string) *tool {
	p := c.agent.data.Prompt
	for i := range p.Tools {
		if p.Tools[i].ID == id {
			return &p.Tools[i]
		}
	}
	return nil
}

// get returns the call with an id, and adds it if it is new.
func (c *calls) get(id string) *tool {
	if t := c.find(id); t != nil {
		return t
	}
	p := c.agent.data.Prompt
	if len(p.Tools) >= mostTools {
		p.Tools = slices.DeleteFunc(p.Tools, func(t tool) bool { return c.over(&t) })
	}
	p.Tools = append(p.Tools, tool{ID: id})
	return &p.Tools[len(p.Tools)-1]
}

// bounded returns an error if the agent has too many unfinished calls, or too many bytes of them are not in the log.
func (c *calls) bounded() error {
	held, tools := 0, c.agent.data.Prompt.Tools
	for i := range tools {
		held += tools[i].size()
	}
	if len(tools) > mostOpen || held > mostHeld {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the agent has %d tool calls without an outcome, with inputs of %d bytes, more than the allowed %d calls or %d bytes", len(tools), held, mostOpen, mostHeld)
	}
	return nil
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
	u = c.turn.Uses.Request(t.ID, name, t.input(name, nil))
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
	if u := c.use(t); u != nil {
		c.changed(t, u)
	}
	if err := c.bounded(); err != nil {
		return err
	}
	if u := c.use(t); u != nil && u.State == resident.Started {
		if text := shownText(call); text != t.shown && strings.HasPrefix(text, t.shown) {
			c.host.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: t.ID, Stream: "stdout", Text: text[len(t.shown):]})
			t.shown = clip.Counted(text, outcomeBytes)
		}
	}
	return nil
}

// finish records a call's outcome. If the call succeeded without a permission request, it adds a notice, once per tool.
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

// asked handles a permission request. It refuses a request about a finished call, whose outcome is in the log, and one
// about another tool than the log has for the call.
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
	if u := c.use(t); u != nil {
		if other := t.another(call, u.Name, c.profile); other != "" {
			if code := "agent.other_tool"; !c.warned[code] {
				c.warned[code] = true
				c.turn.Recorder.Add(holdfast.EventNotice, holdfast.Notice{
					Code: code, Level: "warning", Text: fmt.Sprintf("the agent asked to run %s under the id of a call of %s: the request was refused", other, u.Name),
				})
			}
			c.reply(m.ID, p.pick(false))
			return nil
		}
	}
	t.learn(call)
	u, first := c.request(t)
	if !first {
		// The call was recorded already: this may be a further permission request for it, with other paths or input.
		c.changed(t, u)
	}
	if err := c.bounded(); err != nil {
		return err
	}
	if t.Ask != "" && t.Ask != m.ID {
		c.reply(t.Ask, t.No) // the new request takes the place of the open one
	}
	t.Ask, t.Yes, t.No = m.ID, p.pick(true), p.pick(false)
	c.turn.Recorder.Touch()
	if err := c.flush(ctx); err != nil {
		return err
	}
	c.host.At("asked")
	if u.State == resident.Started && t.Judged == digest(c.inputs(t, u)) {
		return c.answer(ctx, t, t.Yes)
	}
	c.decide(ctx, t, u)
	return nil
}

// changed replaces the recorded input of a call if later messages of the agent about the call have changed it.
func (c *calls) changed(t *tool, u *resident.Use) {
	if !full(t.Raw) && t.New == nil {
		return
	}
	if input := t.input(u.Name, u.Input); !bytes.Equal(input, u.Input) {
		c.turn.Uses.Change(u, input)
		t.Input = input
		c.turn.Recorder.Touch()
	}
	t.Raw, t.Old, t.New = nil, nil, nil
}

// inputs returns the inputs of a call that are judged one by one: its own, and one for each further file that it names.
func (c *calls) inputs(t *tool, u *resident.Use) []json.RawMessage {
	return append(placed(u.Name, u.Input, c.t.Place.Workspace), t.more(u.Name, u.Input)...)
}

// reply answers the permission request id with an option. An empty option answers that the request was cancelled.
func (c *calls) reply(id jsonrpc.ID, option string) {
	c.turn.Outbox.Add(chosen(id, option), "")
	c.turn.Recorder.Touch()
}

// decideAll starts the decision on each open permission request, unless that decision is under way already. An earlier
// server may have left such requests.
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
			c.turn.Uses.Change(u, t.Input)
		}
		c.decide(ctx, t, u)
	}
}

// wait reports whether at least one recorded call of the agent waits for a decision on its permission request, and each
// other recorded call has ended or waits for a decision, too.
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

// decide starts the decision whether a call may run; the agent's output is read meanwhile. If the call has changed when
// the decision is made, it is decided again.
func (c *calls) decide(ctx context.Context, t *tool, u *resident.Use) {
	if c.deciding[t.ID] {
		return
	}
	c.deciding[t.ID] = true
	inputs, prompt := c.inputs(t, u), c.agent.data.Prompt
	sum, judge := digest(inputs), c.judge(t, u, inputs)
	c.turn.Decisions.Go(u.ID, func() (resident.Then, error) {
		d, err := judge(ctx)
		return func(ctx context.Context) error {
			delete(c.deciding, u.ID)
			if c.agent.data.Prompt != prompt {
				u.Late(d, err)
				return nil
			}
			t := c.find(u.ID)
			switch {
			case t == nil || t.Ask == "":
				return nil
			case err == nil && !u.Over() && sum != digest(c.inputs(t, u)):
				c.decide(ctx, t, u)
				return nil
			}
			return c.settle(ctx, t, u, sum, d, err)
		}, err
	})
}

// judge returns the function that decides about each of the inputs of a call. That function ends at the first input
// that is not allowed. A decision that was made already about the call's own input is not made again.
func (c *calls) judge(t *tool, u *resident.Use, inputs []json.RawMessage) func(context.Context) (policy.Decision, error) {
	session, host := &c.t.Session, c.host
	req := policy.Request{Session: session.ID, Mode: session.Mode, Tool: u.Name, ReadOnly: policy.Reads(u.Name), CallID: u.ID, Unscoped: true}
	d := policy.Decision{Verdict: policy.Allowed}
	if !t.whole(u.Name, u.Input) {
		d = policy.Decision{Verdict: policy.Denied, By: "bounds", Reason: fmt.Sprintf("the call is too long: its input may have %d bytes, and a title that is its command %d", mostInput, mostName)}
	} else if o := c.turn.Uses.Before(u); o != nil {
		req.CallID = o.ID
		if o.Decision != nil {
			d, inputs = *o.Decision, inputs[1:]
		}
	}
	return func(ctx context.Context) (policy.Decision, error) {
		for _, in := range inputs {
			if d.Verdict != policy.Allowed {
				break
			}
			var err error
			req.Input = in
			if d, err = host.Decide(ctx, req); err != nil {
				return d, err
			}
			if d.Verdict == policy.Allowed && d.Input != nil {
				d = policy.Decision{Verdict: policy.Denied, By: d.By, Reason: "a rule or hook changed its input, which this agent does not support"}
			}
		}
		return d, nil
	}
}

// settle records a decision about the inputs with the digest sum, and then answers the agent.
func (c *calls) settle(ctx context.Context, t *tool, u *resident.Use, sum string, d policy.Decision, err error) error {
	if d.Verdict == policy.Allowed && t.Yes == "" {
		d = policy.Decision{Verdict: policy.Denied, By: "agent", Reason: "the agent offers no way to allow this call once"}
	}
	allowed, ok, err := c.turn.Decided(ctx, u, d, err)
	if !ok || err != nil {
		return err
	}
	option := t.No
	if allowed {
		option, t.Judged = t.Yes, sum
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
