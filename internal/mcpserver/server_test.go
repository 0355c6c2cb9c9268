package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/mcpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	boxed    = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057")
	unboxed  = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8058")
	turn     = "01890a5d-b21f-7c40-9d2e-5f6a7b8c9d0e"
	approval = "01890a5d-b21f-7c40-9d2e-5f6a7b8c9d0f"
)

// backend is a server with two sessions, one of them trusted. Messages that say "long"
// have a turn without an end. Did notes what was asked for.
type backend struct {
	did     []string
	waiting chan struct{}
	left    chan struct{}
}

func (b *backend) note(format string, args ...any) {
	b.did = append(b.did, fmt.Sprintf(format, args...))
}

func (b *backend) CreateSession(_ context.Context, req holdfast.CreateSession, key string) (holdfast.Session, error) {
	b.note("create %s %v %q key %q", req.Title, req.Tags, req.Trust, key)
	return b.Session(context.TODO(), boxed)
}

func (b *backend) Session(_ context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	switch id {
	case boxed:
		return holdfast.Session{ID: id, Status: holdfast.StatusActive, Trust: holdfast.Untrusted, LastSeq: 3}, nil
	case unboxed:
		return holdfast.Session{ID: id, Status: holdfast.StatusActive, Trust: holdfast.Trusted}, nil
	}
	return holdfast.Session{}, holdfast.Errorf(holdfast.KindNotFound, "session", "no session %s", id).WithHint("holdfast session list")
}

func (b *backend) Sessions(_ context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error) {
	b.note("list %d", f.Limit)
	one, err := b.Session(context.TODO(), boxed)
	return holdfast.SessionPage{Sessions: []holdfast.Session{one}, Next: "more"}, err
}

func (b *backend) Send(_ context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	b.note("send %q trust %s key %q", msg.Text, msg.Trust, msg.Key)
	if msg.Text == "long" {
		return holdfast.Sent{Turn: holdfast.Turn{ID: turn, Status: holdfast.TurnRunning}, Seq: 1000}, nil
	}
	return holdfast.Sent{Turn: holdfast.Turn{ID: turn, Status: holdfast.TurnRunning}}, nil
}

func (b *backend) Turn(context.Context, holdfast.SessionID, holdfast.TurnID) (holdfast.Turn, error) {
	return holdfast.Turn{ID: turn, Status: holdfast.TurnCompleted}, nil
}

func (b *backend) Follow(ctx context.Context, _ holdfast.SessionID, after int64, _ ...holdfast.EventType) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		if after >= 1000 {
			close(b.waiting)
			<-ctx.Done()
			close(b.left)
			yield(holdfast.Event{}, ctx.Err())
			return
		}
		for i, ev := range []holdfast.Event{
			{Type: holdfast.EventTurnStarted, Data: json.RawMessage(`{}`)},
			{Type: holdfast.EventMessageAssistant, Data: json.RawMessage(`{"parts":[{"type":"text","text":"hi"}]}`)},
			{Type: holdfast.EventTurnCompleted, Data: json.RawMessage(`{"result":"hi"}`)},
		} {
			if ev.Seq, ev.Turn = int64(i+1), turn; ev.Seq > after && !yield(ev, nil) {
				return
			}
		}
	}
}

func (b *backend) Interrupt(_ context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	b.note("interrupt")
	return b.Session(context.TODO(), id)
}

func (b *backend) EndSession(_ context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	b.note("end %s", req.Reason)
	return b.Session(context.TODO(), id)
}

func (b *backend) Approval(context.Context, holdfast.ApprovalID) (holdfast.Approval, error) {
	return holdfast.Approval{ID: approval, Session: boxed}, nil
}

func (b *backend) AnswerApproval(_ context.Context, _ holdfast.ApprovalID, req holdfast.AnswerApproval) (holdfast.Approval, error) {
	b.note("answer %s", req.Decision)
	return holdfast.Approval{ID: approval, State: holdfast.ApprovalAllowed}, nil
}

func (b *backend) ListFiles(_ context.Context, _ holdfast.SessionID, name string) (holdfast.FileList, error) {
	b.note("list %q", name)
	return holdfast.FileList{Entries: make([]holdfast.FileInfo, 301)}, nil
}

// ReadFile: "long" has 48 KiB and the last byte of them begins a character.
func (b *backend) ReadFile(_ context.Context, _ holdfast.SessionID, name string) (io.ReadCloser, error) {
	b.note("read %q", name)
	content := map[string]string{"text": "hi", "bytes": "\xff\x00", "long": strings.Repeat("x", 48<<10-1) + "\u00e9tat"}[name]
	return io.NopCloser(strings.NewReader(content)), nil
}

func (b *backend) WriteFile(_ context.Context, _ holdfast.SessionID, name string, data io.Reader, mode uint32) (holdfast.FileInfo, error) {
	text, err := io.ReadAll(data)
	b.note("write %q %q mode %o", name, text, mode)
	return holdfast.FileInfo{Path: name, Type: "file", Size: int64(len(text))}, err
}

// peer is the other side of a connection: it writes lines and reads lines.
type peer struct {
	t   *testing.T
	api *backend
	in  io.WriteCloser
	out *bufio.Reader
}

func connect(t *testing.T, change func(*mcpserver.Config)) *peer {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &peer{t: t, api: &backend{waiting: make(chan struct{}), left: make(chan struct{})}, in: inW, out: bufio.NewReader(outR)}
	cfg := mcpserver.Config{API: p.api, Approvals: p.api, Files: p.api, Version: "1", NewKey: func() (string, error) { return "made", nil }, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	served := make(chan error, 1)
	go func() {
		served <- mcpserver.Serve(t.Context(), cfg, inR, outW)
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_, _ = io.Copy(io.Discard, p.out)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if got := p.ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`); !strings.Contains(got, `"name":"holdfast"`) {
		t.Fatalf("initialize: %s", got)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

func (p *peer) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) hear() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (p *peer) ask(line string) string {
	p.t.Helper()
	p.say(line)
	return p.hear()
}

func call(id int, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

// TestLines: what is asked for, what is answered, and what the server behind was asked.
func TestLines(t *testing.T) {
	in := func(id holdfast.SessionID, more string) string { return fmt.Sprintf(`{"session":%q%s}`, id, more) }
	for _, c := range []struct {
		name, line string
		// says is in the answer; failed: the tool's result is an error.
		says   string
		failed bool
		did    string
	}{
		{"Tools", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"name":"send_message"`, false, ""},
		{"Schemas", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"required":["session","path"]`, false, ""},
		{"OlderVersion", `{"id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`, `"protocolVersion":"2024-11-05"`, false, ""},
		{"UnknownVersion", `{"id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`, `"protocolVersion":"2025-11-25"`, false, ""},
		{"NoParams", `{"id":1,"method":"tools/call"}`, `"code":-32602`, false, ""},
		{"OddToken", `{"id":1,"method":"tools/call","params":{"name":"list_sessions","_meta":{"progressToken":{}}}}`, `"code":-32602`, false, ""},
		{"NoArguments", `{"id":1,"method":"tools/call","params":{"name":"list_sessions"}}`, `"next":"more"`, false, "list 20"},
		{"MissingArgument", call(1, "send_message", fmt.Sprintf(`{"session":%q}`, boxed)), "text", true, ""},
		{"UnknownArgument", call(1, "list_sessions", `{"order":"x"}`), "order", true, ""},
		{"Create", call(1, "create_session", `{"title":"x","tags":["a"]}`), string(boxed), false, `create x [mcp a] "untrusted" key "made"`},
		{"CreateOnce", call(1, "create_session", `{"key":"k"}`), string(boxed), false, `create  [mcp] "untrusted" key "mcp-k"`},
		{"CreateLongKey", call(1, "create_session", `{"key":"`+strings.Repeat("k", 101)+`"}`), "hint: use a shorter idempotency key", true, ""},
		{"CreateTrusted", call(1, "create_session", `{"trust":"trusted"}`), "above the maximum trust of this MCP connection", true, ""},
		{"CreateOddly", call(1, "create_session", `{"title":7}`), "title", true, ""},
		{"List", call(1, "list_sessions", `{"limit":1000}`), `"next":"more"`, false, "list 50"},
		{"Send", call(1, "send_message", in(boxed, `,"text":"hello"`)), `"result":"hi"`, false, `send "hello" trust untrusted key "made"`},
		{"SendOff", call(1, "send_message", in(boxed, `,"text":"hello","wait_seconds":0`)), "the turn goes on", false, `send "hello" trust untrusted key "made"`},
		{"SendTrusted", call(1, "send_message", in(unboxed, `,"text":"hello"`)), "above the maximum trust of this MCP connection", true, ""},
		{"SendTooLong", call(1, "send_message", in(boxed, `,"text":"hello","wait_seconds":601`)), "not within 0-600", true, ""},
		{"SendNowhere", call(1, "send_message", in("nobody", `,"text":"hello"`)), "nobody", true, ""},
		{"Read", call(1, "read_events", in(boxed, `,"limit":2`)), `"more":true`, false, ""},
		{"ReadSome", call(1, "read_events", in(boxed, `,"types":["turn.completed"]`)), `"seq":3,"type":"turn.completed"`, false, ""},
		{"ReadNoMore", call(1, "read_events", in(boxed, `,"after":3`)), `"events":[]`, false, ""},
		{"ReadOddly", call(1, "read_events", in(boxed, `,"after":-1`)), "is out of range", true, ""},
		{"ListFiles", call(1, "list_files", in(boxed, `,"path":"src"`)), `"truncated":true`, false, `list "src"`},
		{"ListFilesTrusted", call(1, "list_files", in(unboxed, "")), "above the maximum trust of this MCP connection", true, ""},
		{"ReadFile", call(1, "read_file", in(boxed, `,"path":"text"`)), `"structuredContent":{"text":"hi"}`, false, `read "text"`},
		{"ReadBytes", call(1, "read_file", in(boxed, `,"path":"bytes"`)), `"structuredContent":{"base64":"/wA="}`, false, `read "bytes"`},
		{"ReadLongFile", call(1, "read_file", in(boxed, `,"path":"long"`)), `"next_offset":49151}`, false, `read "long"`},
		{"ReadItsEnd", call(1, "read_file", in(boxed, `,"path":"long","offset":49151`)), `"structuredContent":{"text":"état"}`, false, `read "long"`},
		{"ReadBeyond", call(1, "read_file", in(boxed, `,"path":"text","offset":100`)), `"structuredContent":{}`, false, `read "text"`},
		{"ReadBefore", call(1, "read_file", in(boxed, `,"path":"text","offset":-1`)), "is negative", true, ""},
		{"ReadFileTrusted", call(1, "read_file", in(unboxed, `,"path":"text"`)), "above the maximum trust of this MCP connection", true, ""},
		{"WriteFile", call(1, "write_file", in(boxed, `,"path":"a/b","text":"hi"`)), `"size":2`, false, `write "a/b" "hi" mode 0`},
		{"WriteBytes", call(1, "write_file", in(boxed, `,"path":"b","base64":"/wA="`)), `"size":2`, false, `write "b" "\xff\x00" mode 0`},
		{"WriteOddly", call(1, "write_file", in(boxed, `,"path":"b","base64":"/wA=","text":"x"`)), "base64", true, ""},
		{"WriteTooLong", call(1, "write_file", in(boxed, `,"path":"b","text":"`+strings.Repeat("x", 4<<20+1)+`"`)), "holdfast cp", true, ""},
		{"WriteFileTrusted", call(1, "write_file", in(unboxed, `,"path":"b","text":"x"`)), "above the maximum trust of this MCP connection", true, ""},
		{"Interrupt", call(1, "interrupt", in(boxed, "")), `"interrupted":true`, false, "interrupt"},
		{"InterruptOver", call(1, "interrupt", in(boxed, `,"turn":"`+turn+`"`)), `"interrupted":false`, false, ""},
		{"End", call(1, "end_session", in(boxed, `,"reason":"done"`)), string(boxed), false, "end done"},
		{"EndUnknown", call(1, "end_session", in("01890a5d-ac96-774b-bcce-000000000000", "")), "hint: holdfast session list", true, ""},
		{"ApproveWithoutLeave", call(1, "approve", `{"id":"`+approval+`","decision":"allow"}`), `unknown tool`, false, ""},
		{"UnknownTool", call(1, "rm", `{}`), `unknown tool`, false, ""},
		{"UnknownMethod", `{"jsonrpc":"2.0","id":1,"method":"nothing/here"}`, `"code":-32601`, false, ""},
		{"NoJSON", `what?`, `"code":-32700`, false, ""},
		{"NoMessage", `{"id":{}}`, `"code":-32600`, false, ""},
		{"TooLong", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", jsonrpc.MaxLine) + `"}`, `"code":-32600`, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := connect(t, nil)
			got := p.ask(c.line)
			if !strings.Contains(got, c.says) || strings.Contains(got, `"isError":true`) != c.failed {
				t.Errorf("answered %.500s", got)
			}
			if did := strings.Join(p.api.did, "; "); did != c.did {
				t.Errorf("did %q, not %q", did, c.did)
			}
			if got := p.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); !strings.Contains(got, `"id":2`) {
				t.Errorf("afterwards: %.200s", got)
			}
		})
	}
}

// TestApprovesWithLeave: the tool that answers for a person is there where it is offered.
func TestApprovesWithLeave(t *testing.T) {
	p := connect(t, func(c *mcpserver.Config) { c.AllowApprove = true })
	got := p.ask(call(1, "approve", `{"id":"`+approval+`","decision":"allow"}`))
	if !strings.Contains(got, `"state":"allowed"`) || strings.Join(p.api.did, "") != "answer allow" {
		t.Errorf("%s, did %q", got, p.api.did)
	}
}

// TestCancelled: a call that is given up ends its wait; the turn is left alone, and the
// connection goes on.
func TestCancelled(t *testing.T) {
	p := connect(t, nil)
	p.say(call(1, "send_message", fmt.Sprintf(`{"session":%q,"text":"long","wait_seconds":600}`, boxed)))
	<-p.api.waiting
	p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	select {
	case <-p.api.left:
	case <-time.After(time.Minute):
		t.Fatal("the call waits on")
	}
	p.say(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	for !strings.Contains(p.hear(), `"id":2`) {
	}
	if got := strings.Join(p.api.did, "; "); got != `send "long" trust untrusted key "made"` {
		t.Errorf("did %q", got)
	}
}

// TestClientOfTheSDK: the client of the official SDK agrees on a version, reads the schemas and
// hears the progress of a call.
func TestClientOfTheSDK(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	api := &backend{waiting: make(chan struct{}), left: make(chan struct{})}
	served := make(chan error, 1)
	go func() {
		served <- mcpserver.Serve(t.Context(), mcpserver.Config{
			API: api, Approvals: api, Files: api, Version: "1", NewKey: func() (string, error) { return "made", nil }, Log: slog.New(slog.DiscardHandler),
		}, inR, outW)
		_ = outW.Close()
	}()
	told := make(chan string, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { told <- req.Params.Message },
	})
	s, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := s.InitializeResult().ProtocolVersion; v != "2025-11-25" {
		t.Errorf("version %s", v)
	}
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 9 || list.Tools[2].Name != "send_message" || list.Tools[2].OutputSchema == nil {
		t.Errorf("%+v %v", list, err)
	}
	params := &mcp.CallToolParams{Name: "send_message", Arguments: map[string]any{"session": boxed, "text": "hello"}}
	params.SetProgressToken("p")
	res, err := s.CallTool(t.Context(), params)
	if err != nil || res.IsError || !strings.Contains(fmt.Sprint(res.StructuredContent), "result:hi") {
		t.Errorf("%+v %v", res, err)
	}
	if got := <-told; got != "the turn runs" {
		t.Errorf("told %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_ = inW.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
