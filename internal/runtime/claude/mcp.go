package claude

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// mcpServer is the name of Holdfast's MCP server in the CLI, which names the tools of that server mcp__holdfast__NAME.
const mcpServer = "holdfast"

// server offers Holdfast's own tools to the CLI as an MCP server. A tool runs in this process, and only for a
// tool use that was allowed and is in the log.
type server struct {
	host  runtime.Host
	turn  *resident.Run
	inbox *inbox
	tools []tool.Tool
	flush func(context.Context) error
	// calling are the ids of the requests whose tool runs.
	calling map[string]bool
}

// params holds those parameters of MCP requests that the server reads.
type params struct {
	Protocol string `json:"protocolVersion"`
	Name     string `json:"name"`
	Meta     struct {
		ToolUseID string `json:"claudecode/toolUseId"`
	} `json:"_meta"`
}

// message handles a message of the CLI's MCP client.
func (s *server) message(ctx context.Context, id string, q *request) error {
	m, err := jsonrpc.Parse(q.Message)
	if q.Server != mcpServer {
		err = errors.New("the MCP message is not for the MCP server " + mcpServer)
	}
	if err != nil {
		s.inbox.answer(id, refuse(id, err.Error()))
		return nil
	}
	var p params
	// Fields of an unexpected type stay empty; the methods that need them refuse the request.
	_ = json.Unmarshal(m.Params, &p)
	switch m.Method {
	case "initialize":
		s.inbox.answer(id, mcpResult(id, m.ID, object{
			"protocolVersion": p.Protocol, "capabilities": object{"tools": object{}},
			"serverInfo": object{"name": mcpServer, "version": "1"},
		}))
	case "tools/list":
		s.inbox.answer(id, mcpResult(id, m.ID, object{"tools": s.list()}))
	case "tools/call":
		return s.call(ctx, id, m.ID, &p)
	case "ping":
		s.inbox.answer(id, mcpResult(id, m.ID, object{}))
	default:
		if strings.HasPrefix(m.Method, "notifications/") { // the CLI waits for an answer to notifications, too
			s.inbox.answer(id, mcpResult(id, "", object{}))
			return nil
		}
		s.inbox.answer(id, mcpReply(id, jsonrpc.Message{ID: m.ID, Error: &jsonrpc.Error{
			Code: jsonrpc.MethodNotFound, Message: "not served: " + clip.Counted(m.Method, 60),
		}}))
	}
	return nil
}

// mcpReply returns the answer to a request of the CLI that holds an MCP message.
func mcpReply(id string, m jsonrpc.Message) []byte {
	return reply(id, object{"mcp_response": json.RawMessage(m.Encode())})
}

func mcpResult(id string, to jsonrpc.ID, result any) []byte {
	return mcpReply(id, jsonrpc.Message{ID: to, Result: resident.Marshal(result)})
}

func mcpText(id string, to jsonrpc.ID, text string, failed bool) []byte {
	return mcpResult(id, to, object{"content": []object{{"type": "text", "text": text}}, "isError": failed})
}

// list returns the descriptions of the tools.
func (s *server) list() []object {
	out := make([]object, 0, len(s.tools))
	for _, t := range s.tools {
		s := t.Spec()
		schema := s.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		out = append(out, object{"name": s.Name, "description": s.Description, "inputSchema": schema})
	}
	return out
}

// call runs one of the server's tools. Before the tool runs, the log holds the intent of its tool use and
// the state holds the request; the result is in the log before it is sent (HZ-12).
func (s *server) call(ctx context.Context, id string, to jsonrpc.ID, p *params) error {
	u := s.useOf(p.Meta.ToolUseID, "mcp__"+mcpServer+"__"+p.Name)
	if s.inbox.has(id) {
		return nil
	}
	if u == nil {
		s.inbox.answer(id, mcpText(id, to, "there is no tool use that allows this call", true))
		return nil
	}
	for _, before := range s.inbox.list {
		if before.Kind == kindCall && before.Use == u.ID {
			s.inbox.answer(id, mcpText(id, to, "this tool use has made its call", true))
			return nil
		}
	}
	call := pending{ID: id, Use: u.ID, Kind: kindCall, ReplyTo: to}
	if !s.inbox.fits(call) {
		s.inbox.answer(id, mcpText(id, to, "too much at once", true))
		return nil
	}
	s.inbox.add(call)
	if err := s.flush(ctx); err != nil {
		return err
	}
	s.host.At("host-tool")
	s.invoke(ctx, call, u)
	return nil
}

// useOf returns the started tool use that a call belongs to, one of the main conversation or of a sub-agent, or nil.
func (s *server) useOf(id, name string) *resident.Use {
	fits := func(u *resident.Use) bool { return u != nil && u.Name == name && u.State == resident.Started }
	if u := s.turn.Uses.Get(id); fits(u) {
		return u
	}
	for _, u := range s.turn.Uses.All() {
		if fits(u) && strings.HasSuffix(u.ID, "/"+id) {
			return u
		}
	}
	return nil
}

// again handles a call of a server's tool whose answer may be lost, after a restart. It sends a recorded
// result again, and runs a tool that changes nothing again. Otherwise it answers that the outcome is unknown.
func (s *server) again(ctx context.Context, p pending, u *resident.Use) {
	t := s.tool(u.Name)
	switch {
	case u.Result != nil:
		s.turn.Outbox.Pass(mcpText(p.ID, p.ReplyTo, u.Result.Content, u.Result.IsError))
	case s.calling[p.ID]:
	case t != nil && t.Spec().Effect != tool.Mutate:
		s.invoke(ctx, p, u)
	case u.State == resident.Started:
		const why = "the server stopped while this tool ran; it may have done its work"
		s.turn.Uses.Unknown(u, why)
		s.turn.Outbox.Pass(mcpText(p.ID, p.ReplyTo, "unknown: "+why, true))
	default:
		s.turn.Outbox.Pass(mcpText(p.ID, p.ReplyTo, "unknown: it may have done its work", true))
	}
}

func (s *server) tool(name string) tool.Tool {
	short, _ := strings.CutPrefix(name, "mcp__"+mcpServer+"__")
	i := slices.IndexFunc(s.tools, func(t tool.Tool) bool { return t.Spec().Name == short })
	if i < 0 {
		return nil
	}
	return s.tools[i]
}

// invoke starts a tool; the CLI's lines are read meanwhile.
func (s *server) invoke(ctx context.Context, p pending, u *resident.Use) {
	t := s.tool(u.Name)
	if t == nil {
		s.turn.Outbox.Pass(mcpText(p.ID, p.ReplyTo, "there is no such tool", true))
		return
	}
	s.calling[p.ID] = true
	use := u.ID
	c := tool.Call{Input: u.Runs(), Output: func(stream, text string) {
		s.host.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: use, Stream: stream, Text: resident.Valid(text)})
	}}
	if t.Spec().Effect == tool.Mutate {
		c.ID = u.Call
	}
	if t.Spec().Where == tool.InBox {
		c.Box = s.turn.Box
	}
	s.turn.Decisions.Go(p.ID, func() (resident.Then, error) {
		res, err := t.Run(ctx, c)
		f := holdfast.ToolFinished{
			Outcome: res.Outcome, ExitCode: res.ExitCode, Signal: res.Signal, Content: clip.Counted(res.Content, mostContent), IsError: res.IsError,
		}
		if err != nil {
			f.Outcome, f.Content, f.IsError = holdfast.ExitError, clip.Counted(err.Error(), mostContent), true
		}
		if f.Outcome == "" {
			f.Outcome = holdfast.ExitOK
		}
		return func(ctx context.Context) error { return s.returned(ctx, p, u, f) }, nil
	})
}

// returned records the outcome of a tool of the server, and then sends it to the CLI.
func (s *server) returned(ctx context.Context, p pending, u *resident.Use, f holdfast.ToolFinished) error {
	if u.State == resident.Started {
		s.turn.Uses.Finish(u, f)
	}
	s.turn.Outbox.Pass(mcpText(p.ID, p.ReplyTo, f.Content, f.IsError))
	if err := s.flush(ctx); err != nil {
		return err
	}
	s.host.At("host-tool-done")
	return nil
}
