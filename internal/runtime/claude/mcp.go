package claude

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
)

// mcpServer is what the CLI calls the server's own tools: mcp__holdfast__NAME.
const mcpServer = "holdfast"

// mcp answers a message to the server's own tools. They run here, and only as the
// tool use that was allowed and is in the log.
func (x *run) mcp(ctx context.Context, id string, q *request) error {
	m := &q.Message
	if q.Server != mcpServer {
		x.answer(pending{ID: id}, refuse(id, "no such server"))
		return nil
	}
	switch m.Method {
	case "initialize":
		x.answer(pending{ID: id}, mcpResult(id, m.ID, object{
			"protocolVersion": m.Params.Protocol, "capabilities": object{"tools": object{}},
			"serverInfo": object{"name": mcpServer, "version": "1"},
		}))
	case "tools/list":
		x.answer(pending{ID: id}, mcpResult(id, m.ID, object{"tools": x.toolList()}))
	case "tools/call":
		return x.toolCall(ctx, id, m)
	case "ping":
		x.answer(pending{ID: id}, mcpResult(id, m.ID, object{}))
	default:
		if strings.HasPrefix(m.Method, "notifications/") {
			x.answer(pending{ID: id}, mcpResult(id, nil, object{}))
			return nil
		}
		x.answer(pending{ID: id}, reply(id, object{"mcp_response": object{
			"jsonrpc": "2.0", "id": m.ID, "error": object{"code": -32601, "message": "not served: " + clip(m.Method, 60)},
		}}))
	}
	return nil
}

func mcpResult(id string, to json.RawMessage, result any) []byte {
	if len(to) == 0 {
		to = json.RawMessage("null")
	}
	return reply(id, object{"mcp_response": object{"jsonrpc": "2.0", "id": to, "result": result}})
}

func mcpText(id string, to json.RawMessage, text string, failed bool) []byte {
	return mcpResult(id, to, object{"content": []object{{"type": "text", "text": text}}, "isError": failed})
}

func (x *run) toolList() []object {
	out := make([]object, 0, len(x.r.cfg.Host))
	for _, t := range x.r.cfg.Host {
		s := t.Spec()
		schema := s.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		out = append(out, object{"name": s.Name, "description": s.Description, "inputSchema": schema})
	}
	return out
}

// toolCall runs one of the server's tools. The use that asks for it has its intent in
// the log; the request is in the state before it runs, and the result before it is
// sent (HZ-12).
func (x *run) toolCall(ctx context.Context, id string, m *mcpMessage) error {
	name := "mcp__" + mcpServer + "__" + m.Params.Name
	u := x.useOf(m.Params.Meta.ToolUseID, name)
	if x.has(id) {
		return nil
	}
	if u == nil {
		x.answer(pending{ID: id}, mcpText(id, m.ID, "there is no tool use that allows this call", true))
		return nil
	}
	for _, p := range x.mem.Pending {
		if p.Kind == kindCall && p.Use == u.id {
			x.answer(pending{ID: id}, mcpText(id, m.ID, "this tool use has made its call", true))
			return nil
		}
	}
	p := pending{ID: id, Use: u.id, Kind: kindCall, ReplyTo: m.ID}
	if !x.fits(p) {
		x.answer(pending{ID: id}, mcpText(id, m.ID, "too much at once", true))
		return nil
	}
	x.mem.Pending = append(x.mem.Pending, p)
	x.dirty = true
	if err := x.flush(ctx); err != nil {
		return err
	}
	x.host.At("host-tool")
	x.invoke(ctx, p, u)
	return nil
}

// useOf is the tool use that a call of one of the server's tools belongs to: the one
// of the conversation, or of a sub-agent.
func (x *run) useOf(id, name string) *use {
	fits := func(u *use) bool { return u != nil && u.name == name && u.state == started }
	if u := x.uses[id]; fits(u) {
		return u
	}
	for _, u := range x.uses {
		if fits(u) && strings.HasSuffix(u.id, string(agentMark)+id) {
			return u
		}
	}
	return nil
}

// call takes up a call of a tool after a restart: one that has a result gets it, one
// that changes nothing is made again, of any other nobody knows.
func (x *run) call(ctx context.Context, p pending, u *use) {
	t := x.hostTool(u.name)
	switch {
	case u.result != nil:
		x.out = append(x.out, mcpText(p.ID, p.ReplyTo, u.result.Content, u.result.IsError))
	case x.calling[p.ID]:
	case t != nil && t.Spec().Effect != tool.Mutate:
		x.invoke(ctx, p, u)
	case u.state == started:
		const why = "the server stopped while this tool ran; it may have done its work"
		x.add(holdfast.EventToolUnknown, holdfast.ToolUnknown{ToolUseID: u.id, Call: u.call, Reason: why})
		u.state = answered
		x.out = append(x.out, mcpText(p.ID, p.ReplyTo, "unknown: "+why, true))
	default:
		x.out = append(x.out, mcpText(p.ID, p.ReplyTo, "unknown: it may have done its work", true))
	}
}

func (x *run) hostTool(name string) tool.Tool {
	short, _ := strings.CutPrefix(name, "mcp__"+mcpServer+"__")
	i := slices.IndexFunc(x.r.cfg.Host, func(t tool.Tool) bool { return t.Spec().Name == short })
	if i < 0 {
		return nil
	}
	return x.r.cfg.Host[i]
}

// invoke runs a tool beside the loop.
func (x *run) invoke(ctx context.Context, p pending, u *use) {
	t := x.hostTool(u.name)
	if t == nil {
		x.out = append(x.out, mcpText(p.ID, p.ReplyTo, "there is no such tool", true))
		return
	}
	x.calling[p.ID] = true
	use, call := u.id, u.call
	c := tool.Call{Input: u.runs(), Output: func(stream, text string) {
		x.host.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: use, Stream: stream, Text: valid(text)})
	}}
	if t.Spec().Effect == tool.Mutate {
		c.ID = u.call
	}
	if t.Spec().Where == tool.InBox {
		c.Box = x.box
	}
	x.beside(p.ID, func() verdict {
		res, err := t.Run(ctx, c)
		f := &holdfast.ToolFinished{
			ToolUseID: use, Call: call, Outcome: res.Outcome, ExitCode: res.ExitCode, Signal: res.Signal,
			Content: clip(valid(res.Content), mostContent), IsError: res.IsError,
		}
		if err != nil {
			f.Outcome, f.Content, f.IsError = holdfast.ExitError, clip(valid(err.Error()), mostContent), true
		}
		if f.Outcome == "" {
			f.Outcome = holdfast.ExitOK
		}
		return verdict{p: p, use: u, ran: f}
	})
}

// returned records what a tool of the server came to, and tells the CLI after that.
func (x *run) returned(ctx context.Context, v verdict) error {
	u := v.use
	if u.state == started {
		v.ran.DurationMS = milliseconds(x.r.cfg.Now().Sub(u.began))
		x.add(holdfast.EventToolFinished, *v.ran)
		u.state, u.result = answered, v.ran
	}
	x.out = append(x.out, mcpText(v.p.ID, v.p.ReplyTo, v.ran.Content, v.ran.IsError))
	if err := x.flush(ctx); err != nil {
		return err
	}
	x.host.At("host-tool-done")
	return nil
}
