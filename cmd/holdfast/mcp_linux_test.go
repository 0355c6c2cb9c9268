package main

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// caller is an MCP client with holdfast mcp as its child.
type caller struct {
	t    *testing.T
	s    *mcp.ClientSession
	errs screen

	mu       sync.Mutex
	progress []string
}

func (p *process) call(args ...string) *caller {
	p.t.Helper()
	c := &caller{t: p.t}
	cmd := exec.Command("holdfast", append([]string{"mcp"}, args...)...)
	cmd.Env = append(cmd.Environ(), "HOLDFAST_URL="+p.url, "HOLDFAST_HOME="+p.data)
	cmd.Stderr = &c.errs
	cl := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.progress = append(c.progress, req.Params.Message)
		},
	})
	var err error
	if c.s, err = cl.Connect(p.t.Context(), &mcp.CommandTransport{Command: cmd}, nil); err != nil {
		p.t.Fatalf("%v\n%s", err, c.errs.String())
	}
	p.t.Cleanup(func() { _ = c.s.Close() })
	return c
}

// tool calls one and decodes what it answers; why is its error.
func (c *caller) tool(name string, args map[string]any, out any) (why string) {
	c.t.Helper()
	params := &mcp.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken("p")
	res, err := c.s.CallTool(c.t.Context(), params)
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", name, err, c.errs.String())
	}
	if res.IsError {
		return res.Content[0].(*mcp.TextContent).Text
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	if len(raw) > 128<<10 {
		c.t.Errorf("%s: a result of %d bytes", name, len(raw))
	}
	return ""
}

// must is tool without an error.
func (c *caller) must(name string, args map[string]any, out any) {
	c.t.Helper()
	if why := c.tool(name, args, out); why != "" {
		c.t.Fatalf("%s: %s", name, why)
	}
}

type mcpTurn struct {
	Turn, Status, Result, Text, Error, Hint string
	StopReason                              string `json:"stop_reason"`
	Tools                                   int    `json:"tool_calls"`
	LastSeq                                 int64  `json:"last_seq"`
	Duplicate                               bool
	Questions                               []struct{ Approval, Tool string } `json:"waits_for"`
}

type mcpEvents struct {
	Events []struct {
		Seq  int64
		Type string
		Cut  string `json:"data_cut"`
	}
	After int64
	More  bool
}

type mcpSession struct{ ID, Status, Trust, Title string }

// TestMCPTools: another agent makes a session, works in it, follows it, ends it.
//
// FH-21.
func TestMCPTools(t *testing.T) {
	p := launchOn(t, testkit.BaseDir(t)+"/data", "mem", holdfast.Untrusted)
	c := p.call()
	list, err := c.s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema == nil {
			t.Errorf("%s is not described", tool.Name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "create_session end_session interrupt list_files list_sessions read_events read_file send_message write_file" {
		t.Errorf("tools %s", got)
	}
	var one, same mcpSession
	c.must("create_session", map[string]any{"title": "x", "key": "k"}, &one)
	c.must("create_session", map[string]any{"title": "x", "key": "k"}, &same)
	if one.ID != same.ID || one.Trust != "untrusted" || one.Title != "x" {
		t.Errorf("%+v %+v", one, same)
	}
	var turn, again mcpTurn
	send := map[string]any{"session": one.ID, "key": "m", "text": `<script>[{"tool":"Bash","input":{"command":"echo hi"}},{"say":"done"}]</script>`}
	c.must("send_message", send, &turn)
	if turn.Status != "completed" || turn.Result != "done" || turn.Tools != 1 || turn.StopReason != "end_turn" {
		t.Errorf("%+v", turn)
	}
	testkit.Eventually(t, "progress", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.progress, func(s string) bool { return strings.HasPrefix(s, "Bash {") })
	})
	c.must("send_message", send, &again)
	if !again.Duplicate || again.Turn != turn.Turn || again.Result != "done" {
		t.Errorf("sent again: %+v", again)
	}
	// One that takes longer than it is waited for.
	c.must("send_message", map[string]any{"session": one.ID, "wait_seconds": 0, "text": `<script>[{"stall_ms":600000}]</script>`}, &turn)
	if turn.Status != "running" || !strings.Contains(turn.Hint, "read_events") {
		t.Errorf("%+v", turn)
	}
	var stopped struct{ Interrupted bool }
	c.must("interrupt", map[string]any{"session": one.ID, "turn": again.Turn}, &stopped)
	if stopped.Interrupted {
		t.Error("a turn that is over was interrupted")
	}
	c.must("interrupt", map[string]any{"session": one.ID, "turn": turn.Turn}, &stopped)
	if !stopped.Interrupted {
		t.Error("not interrupted")
	}
	var page mcpEvents
	c.must("read_events", map[string]any{"session": one.ID, "after": turn.LastSeq, "types": []string{"turn.interrupted"}, "wait_seconds": 20}, &page)
	if len(page.Events) != 1 || page.Events[0].Type != "turn.interrupted" {
		t.Errorf("%+v", page)
	}
	c.files(one.ID)
	c.bounded(one.ID)
	var all struct{ Sessions []mcpSession }
	c.must("list_sessions", map[string]any{"tag": "mcp"}, &all)
	if len(all.Sessions) != 1 || all.Sessions[0].ID != one.ID {
		t.Errorf("%+v", all)
	}
	for range 2 {
		c.must("end_session", map[string]any{"session": one.ID, "interrupt": true, "reason": "over"}, &one)
	}
	if one.Status != "ended" {
		t.Errorf("%+v", one)
	}
	c.errors(one.ID)
}

// files go in and out.
func (c *caller) files(id string) {
	c.t.Helper()
	var info struct{ Size int64 }
	c.must("write_file", map[string]any{"session": id, "path": "in/put.txt", "text": "from outside"}, &info)
	var turn mcpTurn
	c.must("send_message", map[string]any{"session": id, "text": `<script>[{"tool":"Bash","input":{"command":"cp in/put.txt out.txt"}},{"say":"done"}]</script>`}, &turn)
	var file struct{ Text string }
	c.must("read_file", map[string]any{"session": id, "path": "out.txt"}, &file)
	var list struct{ Entries []struct{ Path string } }
	c.must("list_files", map[string]any{"session": id, "path": "in"}, &list)
	if info.Size != 12 || file.Text != "from outside" || len(list.Entries) != 1 || list.Entries[0].Path != "put.txt" {
		c.t.Errorf("%+v %+v %+v", info, file, list)
	}
}

// bounded reads a log with large events: pages have an end, and lead on.
func (c *caller) bounded(id string) {
	c.t.Helper()
	var turn mcpTurn
	for range 4 {
		c.must("send_message", map[string]any{"session": id, "text": strings.Repeat("long ", 100_000)}, &turn)
	}
	var seen, after int64
	for {
		var page mcpEvents
		c.must("read_events", map[string]any{"session": id, "after": after, "limit": 7}, &page)
		for _, ev := range page.Events {
			if seen++; ev.Seq != seen {
				c.t.Fatalf("event %d after %d", ev.Seq, seen-1)
			}
		}
		if after = page.After; !page.More && len(page.Events) < 7 {
			break
		}
	}
	if seen < turn.LastSeq {
		c.t.Errorf("%d of %d events", seen, turn.LastSeq)
	}
}

// errors are results that say what helps.
func (c *caller) errors(ended string) {
	c.t.Helper()
	const nobody = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, e := range []struct {
		tool, want string
		args       map[string]any
	}{
		{"send_message", "there is no session", map[string]any{"session": nobody, "text": "x"}},
		{"send_message", "is not a UUID", map[string]any{"session": "x", "text": "x"}},
		{"send_message", "ended", map[string]any{"session": ended, "text": "x"}},
		{"send_message", "wait_seconds", map[string]any{"session": ended, "text": "x", "wait_seconds": 9999}},
		{"send_message", "text", map[string]any{"session": ended}},
		{"create_session", "--max-trust trusted", map[string]any{"trust": "trusted"}},
		{"create_session", "hint: use ", map[string]any{"trust": "much"}},
		{"create_session", "hint", map[string]any{"mode": "\x1b[2J"}},
		{"read_events", "limit", map[string]any{"session": ended, "limit": 100000}},
		{"read_events", "is not an event number", map[string]any{"session": ended, "after": 1 << 40, "wait_seconds": 1}},
		{"interrupt", "is not a UUID", map[string]any{"session": ended, "turn": "x"}},
	} {
		var out any
		if why := c.tool(e.tool, e.args, &out); !strings.Contains(strings.ToLower(why), strings.ToLower(e.want)) {
			c.t.Errorf("%s %v: %q, not %q", e.tool, e.args, why, e.want)
		}
	}
	if _, err := c.s.CallTool(c.t.Context(), &mcp.CallToolParams{Name: "approve", Arguments: map[string]any{"id": nobody, "decision": "allow"}}); err == nil {
		c.t.Error("approve is there without being asked for")
	}
}

// TestMCPQuestions: a turn that waits for a person is told of at once; only a
// connection that may answers, and none beyond its trust.
func TestMCPQuestions(t *testing.T) {
	p := served(t)
	may, may2 := p.call("--allow-approve", "--max-trust", "trusted"), p.call("--allow-approve")
	var one mcpSession
	may.must("create_session", map[string]any{"mode": "default"}, &one)
	if one.Trust != "trusted" {
		t.Errorf("%+v", one)
	}
	var turn mcpTurn
	may.must("send_message", map[string]any{"session": one.ID, "text": script("a")}, &turn)
	if turn.Status != "running" || len(turn.Questions) != 1 || !strings.Contains(turn.Hint, "holdfast approvals allow") {
		t.Fatalf("%+v", turn)
	}
	answer := map[string]any{"id": turn.Questions[0].Approval, "decision": "allow"}
	var state struct{ State string }
	for name, args := range map[string]map[string]any{
		"approve": answer, "send_message": {"session": one.ID, "text": "x"}, "interrupt": {"session": one.ID}, "end_session": {"session": one.ID},
	} {
		if why := may2.tool(name, args, &state); !strings.Contains(why, "above the maximum trust of this MCP connection") {
			t.Errorf("%s beyond its trust: %q", name, why)
		}
	}
	if why := may.tool("approve", map[string]any{"id": answer["id"], "decision": "maybe"}, &state); !strings.Contains(why, "allow or deny") {
		t.Errorf("no answer: %q", why)
	}
	may.must("approve", answer, &state)
	if state.State != "allowed" {
		t.Errorf("%+v", state)
	}
	if why := may.tool("approve", answer, &state); !strings.Contains(why, "allowed") {
		t.Errorf("answered twice: %q", why)
	}
	var page mcpEvents
	may.must("read_events", map[string]any{"session": one.ID, "after": turn.LastSeq, "types": []string{"turn.completed"}, "wait_seconds": 20}, &page)
	if len(page.Events) != 1 || p.file(holdfast.SessionID(one.ID), "a") != "made\n" {
		t.Errorf("%+v", page)
	}
	// Trust that is not asked for is never the server's.
	may2.must("create_session", map[string]any{}, &one)
	if one.Trust != "untrusted" {
		t.Errorf("inherited: %+v", one)
	}
}

// TestMCPServerKilled: a call that waits outlives the server.
func TestMCPServerKilled(t *testing.T) {
	p := served(t)
	c := p.call("--max-trust", "trusted")
	var one mcpSession
	c.must("create_session", map[string]any{"mode": "bypassPermissions"}, &one)
	id := holdfast.SessionID(one.ID)
	ended := make(chan mcpTurn, 1)
	go func() {
		var turn mcpTurn
		c.must("send_message", map[string]any{
			"session": one.ID, "text": `<script>[{"tool":"Bash","input":{"command":"echo line >> log; until [ -e go ]; do sleep 0.05; done"}},{"say":"through"}]</script>`,
		}, &turn)
		ended <- turn
	}()
	testkit.Eventually(t, "the tool has begun", func() bool { return p.file(id, "log") == "line\n" })
	p.signal(syscall.SIGKILL)
	p = p.again()
	if _, err := p.WriteFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
		t.Fatal(err)
	}
	if turn := <-ended; turn.Result != "through" || turn.Tools != 1 || p.file(id, "log") != "line\n" {
		t.Errorf("%+v", turn)
	}
}

// TestMCPBadInput: garbage is answered and harms nobody.
func TestMCPBadInput(t *testing.T) {
	p := served(t)
	cmd := exec.Command("holdfast", "mcp")
	cmd.Env = append(cmd.Environ(), "HOLDFAST_URL="+p.url, "HOLDFAST_HOME="+p.data)
	var out, errs screen
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"\x1b[2J garbage\n", "[]\n", `{"jsonrpc":"1.0","id":1,"method":"x"}` + "\n", `{"jsonrpc":"2.0","id":{},"method":"x"}` + "\n",
		`{"jsonrpc":"2.0","id":2,"method":"` + strings.Repeat("x", 10<<20) + "\"}\n",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n", `{"jsonrpc":"2.0","id":3,"method":"no/such"}` + "\n",
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"list_sessions","arguments":{"limit":"many"}}}` + "\n",
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"list_sessions"}}` + "\n", `{"half`,
	} {
		if _, err := io.WriteString(in, s); err != nil {
			t.Fatal(err)
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, errs.String())
	}
	for _, want := range []string{`"id":1,"result"`, `"id":3,"error"`, `"id":4,`, `"id":5,"result"`, "-32700", "-32600"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, cut(out.String(), 3000))
		}
	}
	for l := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		if !json.Valid([]byte(l)) {
			t.Errorf("stdout holds %q", cut(l, 200))
		}
	}
	if strings.Contains(errs.String(), "\x1b") {
		t.Errorf("stderr: %q", errs.String())
	}
}
