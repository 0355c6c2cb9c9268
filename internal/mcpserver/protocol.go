package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
)

// versions are the supported versions of the protocol, newest first.
var versions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// progress reports to the caller what a call does. It does nothing if the caller did not ask for
// reports.
type progress func(format string, args ...any)

// tool is a tool with the function that carries out a call. The function's error refuses the
// request; an error of the tool itself is a result.
type tool struct {
	mcp.Tool
	call func(ctx context.Context, tell progress, arguments json.RawMessage) (*mcp.CallToolResult, error)
}

// serve returns the work of a request.
func (s *server) serve(method string, params json.RawMessage) jsonrpc.Work {
	var do func(context.Context, *request) (any, error)
	switch method {
	case "initialize":
		do = s.initialize
	case "ping":
		do = func(context.Context, *request) (any, error) { return struct{}{}, nil }
	case "tools/list":
		do = func(context.Context, *request) (any, error) { return map[string]any{"tools": s.tools}, nil }
	case "tools/call":
		do = s.call
	default:
		return nil
	}
	return func(ctx context.Context) (any, error) {
		var in request
		if err := json.Unmarshal([]byte(cmp.Or(string(params), "{}")), &in); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "invalid params: " + err.Error()}
		}
		return do(ctx, &in)
	}
}

// request holds the parameters of a request; each method has some of them.
type request struct {
	Version   string          `json:"protocolVersion"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Progress jsonrpc.ID `json:"progressToken"`
	} `json:"_meta"`
}

// initialize agrees on the caller's version of the protocol if it is supported, else on the newest.
func (s *server) initialize(_ context.Context, in *request) (any, error) {
	version := versions[0]
	if slices.Contains(versions, in.Version) {
		version = in.Version
	}
	return &mcp.InitializeResult{
		ProtocolVersion: version, Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		ServerInfo: &mcp.Implementation{Name: "holdfast", Title: "Holdfast", Version: s.cfg.Version},
	}, nil
}

func (s *server) call(ctx context.Context, in *request) (any, error) {
	i := slices.IndexFunc(s.tools, func(t tool) bool { return t.Name == in.Name })
	if i < 0 {
		return nil, &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: fmt.Sprintf("unknown tool %.60q", in.Name)}
	}
	return s.tools[i].call(ctx, s.progress(ctx, in.Meta.Progress), in.Arguments)
}

// progress returns the function that sends progress reports for a call. token is the caller's progress token; if it is
// empty, the function does nothing.
func (s *server) progress(ctx context.Context, token jsonrpc.ID) progress {
	var mu sync.Mutex
	steps := 0.0
	return func(format string, args ...any) {
		if token == "" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		steps++
		// Progress is optional: a caller that does not accept it still gets the result.
		_ = s.peer.Notify(ctx, "notifications/progress", &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: steps, Message: clip.Counted(fmt.Sprintf(format, args...), 300),
		})
	}
}

// add offers a function as a tool, with the schemas of its types. Its errors become results that
// include the hint.
func add[In, Out any](s *server, t mcp.Tool, do func(context.Context, progress, In) (Out, error)) error {
	in, err := jsonschema.For[In](nil)
	if err != nil {
		return err
	}
	out, err := jsonschema.For[Out](nil)
	if err != nil {
		return err
	}
	valid, err := in.Resolve(nil)
	if err != nil {
		return err
	}
	t.InputSchema, t.OutputSchema = in, out
	s.tools = append(s.tools, tool{t, func(ctx context.Context, tell progress, arguments json.RawMessage) (*mcp.CallToolResult, error) {
		var args In
		if err := decode(valid, arguments, &args); err != nil {
			return failed(fmt.Errorf("the arguments of the tool call do not fit the tool: %w", err)), nil
		}
		res, err := do(ctx, tell, args)
		if err != nil {
			return failed(err), nil
		}
		text, err := json.Marshal(res)
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: texts(string(text)), StructuredContent: json.RawMessage(text)}, nil
	}})
	return nil
}

// decode decodes arguments into v if they are valid for a schema.
func decode(schema *jsonschema.Resolved, arguments json.RawMessage, v any) error {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	var fields map[string]any
	if err := json.Unmarshal(arguments, &fields); err != nil {
		return err
	}
	if err := schema.Validate(fields); err != nil {
		return err
	}
	return json.Unmarshal(arguments, v)
}

func texts(text string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: text}} }

// failed returns an error of a tool as its result.
func failed(err error) *mcp.CallToolResult {
	text := err.Error()
	if hint := holdfast.HintOf(err); hint != "" {
		text += "; hint: " + hint
	}
	return &mcp.CallToolResult{Content: texts(text), IsError: true}
}
