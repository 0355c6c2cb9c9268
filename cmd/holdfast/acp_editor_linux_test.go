package main

import (
	"context"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// editor is an ACP client with holdfast acp as its child. The embedded interface is
// nil: what the agent must not call fails loudly.
type editor struct {
	acp.Client
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	conn *acp.ClientSideConnection
	errs screen
	done chan struct{}

	mu      sync.Mutex
	updates []acp.SessionNotification
	asked   []acp.RequestPermissionRequest
	// answer answers questions; without one they wait until they are taken back.
	answer    func(acp.RequestPermissionRequest) acp.PermissionOptionId
	withdrawn int
	// lend answers requests for texts; an editor without it does not offer them. read are the requests.
	lend func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error)
	read []acp.ReadTextFileRequest
}

// edit starts holdfast acp as an editor does, for sessions that have files of their own.
func (p *process) edit(args ...string) *editor {
	p.t.Helper()
	return p.editHere(append([]string{"--own-files"}, args...)...)
}

// editHere starts holdfast acp as an editor does.
func (p *process) editHere(args ...string) *editor {
	p.t.Helper()
	return p.editLending(nil, args...)
}

// editLending starts holdfast acp as an editor does that lends the texts of its files.
func (p *process) editLending(lend func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error), args ...string) *editor {
	p.t.Helper()
	d := &editor{t: p.t, done: make(chan struct{}), lend: lend}
	d.cmd = exec.Command("holdfast", append([]string{"acp"}, args...)...)
	d.cmd.Env = append(d.cmd.Environ(), "HOLDFAST_URL="+p.url, "HOLDFAST_HOME="+p.data)
	d.cmd.Stderr = &d.errs
	in, err := d.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	d.in = in
	ready := make(chan struct{})
	d.conn = acp.NewClientSideConnection(d, in, gatedReader{ready, out})
	d.conn.SetLogger(slog.New(slog.DiscardHandler))
	close(ready)
	go func() {
		defer close(d.done)
		<-d.conn.Done()
		_ = d.cmd.Wait()
	}()
	p.t.Cleanup(d.kill)
	if _, err := d.conn.Initialize(p.t.Context(), acp.InitializeRequest{
		ProtocolVersion: 1, ClientCapabilities: acp.ClientCapabilities{Fs: acp.FileSystemCapabilities{ReadTextFile: lend != nil}},
	}); err != nil {
		p.t.Fatalf("%v\n%s", err, d.errs.String())
	}
	return d
}

type gatedReader struct {
	ready <-chan struct{}
	io.Reader
}

func (g gatedReader) Read(p []byte) (int, error) {
	<-g.ready
	return g.Reader.Read(p)
}

// kill is SIGKILL.
func (d *editor) kill() {
	_ = d.cmd.Process.Kill()
	<-d.done
}

// SessionUpdate implements acp.Client.
func (d *editor) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.updates = append(d.updates, n)
	return nil
}

// ReadTextFile implements acp.Client.
func (d *editor) ReadTextFile(ctx context.Context, req acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
	d.mu.Lock()
	d.read = append(d.read, req)
	lend := d.lend
	d.mu.Unlock()
	return lend(ctx, req)
}

// RequestPermission implements acp.Client.
func (d *editor) RequestPermission(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	d.mu.Lock()
	d.asked = append(d.asked, req)
	answer := d.answer
	d.mu.Unlock()
	if answer == nil {
		<-ctx.Done()
		d.mu.Lock()
		d.withdrawn++
		d.mu.Unlock()
		return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
	}
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(answer(req))}, nil
}

func (d *editor) answering(option acp.PermissionOptionId) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = func(acp.RequestPermissionRequest) acp.PermissionOptionId { return option }
}

func (d *editor) questions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asked)
}

// open makes a session.
func (d *editor) open() acp.NewSessionResponse {
	d.t.Helper()
	res, err := d.conn.NewSession(d.t.Context(), acp.NewSessionRequest{Cwd: "/home/me/project", McpServers: []acp.McpServer{}})
	if err != nil {
		d.t.Fatalf("%v\n%s", err, d.errs.String())
	}
	return res
}

// load opens a session that was there before.
func (d *editor) load(id acp.SessionId) {
	d.t.Helper()
	if _, err := d.conn.LoadSession(d.t.Context(), acp.LoadSessionRequest{SessionId: id, Cwd: "/home/me/project", McpServers: []acp.McpServer{}}); err != nil {
		d.t.Fatalf("%v\n%s", err, d.errs.String())
	}
}

// ask runs a turn to its end.
func (d *editor) ask(id acp.SessionId, text string) acp.PromptResponse {
	d.t.Helper()
	res, err := d.conn.Prompt(d.t.Context(), acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
	if err != nil {
		d.t.Fatalf("%v\n%s", err, d.errs.String())
	}
	return res
}

// asks runs a turn while the test goes on. If the turn fails, the test fails, and the channel closes without an answer.
func (d *editor) asks(id acp.SessionId, text string) <-chan acp.PromptResponse {
	ended := make(chan acp.PromptResponse, 1)
	go func() {
		defer close(ended)
		ended <- d.ask(id, text)
	}()
	return ended
}

// story is what an editor shows: who said what, and how each tool call ended.
// Holdfast's own notices are left out.
type story struct {
	user, agent, thought string
	tools                map[acp.ToolCallId]acp.ToolCallStatus
	calls                []string
	seqs                 []int64
}

func (d *editor) story() story {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := story{tools: map[acp.ToolCallId]acp.ToolCallStatus{}}
	var last int64
	for _, n := range d.updates {
		if m, ok := n.Meta["holdfast"].(map[string]any); ok {
			// Updates of one event carry the same number.
			if seq := int64(m["seq"].(float64)); seq != last {
				s.seqs = append(s.seqs, seq)
				last = seq
			}
		}
		switch u := n.Update; {
		case u.UserMessageChunk != nil:
			s.user += u.UserMessageChunk.Content.Text.Text
		case u.AgentMessageChunk != nil && u.AgentMessageChunk.Meta == nil:
			s.agent += u.AgentMessageChunk.Content.Text.Text
		case u.AgentThoughtChunk != nil && u.AgentThoughtChunk.Meta == nil:
			s.thought += u.AgentThoughtChunk.Content.Text.Text
		case u.ToolCall != nil:
			s.tools[u.ToolCall.ToolCallId] = u.ToolCall.Status
			s.calls = append(s.calls, u.ToolCall.Title)
		case u.ToolCallUpdate != nil && u.ToolCallUpdate.Status != nil:
			s.tools[u.ToolCallUpdate.ToolCallId] = *u.ToolCallUpdate.Status
		}
	}
	return s
}

// logged is the same story as the log has it.
func (p *process) logged(id holdfast.SessionID) story {
	p.t.Helper()
	s := story{tools: map[acp.ToolCallId]acp.ToolCallStatus{}}
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		switch ev.Type {
		case holdfast.EventMessageUser:
			s.user += payload[holdfast.UserMessage](p.t, ev).Text()
		case holdfast.EventThinking:
			s.thought += payload[holdfast.Thinking](p.t, ev).Text
		case holdfast.EventMessageAssistant:
			for _, part := range payload[holdfast.AssistantMessage](p.t, ev).Parts {
				s.agent += part.Text
			}
		case holdfast.EventToolRequested:
			d := payload[holdfast.ToolRequested](p.t, ev)
			s.tools[acp.ToolCallId(d.ToolUseID)] = acp.ToolCallStatusPending
			s.calls = append(s.calls, d.Name)
		case holdfast.EventToolFinished:
			status := acp.ToolCallStatusCompleted
			d := payload[holdfast.ToolFinished](p.t, ev)
			if d.IsError {
				status = acp.ToolCallStatusFailed
			}
			s.tools[acp.ToolCallId(d.ToolUseID)] = status
		case holdfast.EventToolDenied:
			s.tools[acp.ToolCallId(payload[holdfast.ToolDecision](p.t, ev).ToolUseID)] = acp.ToolCallStatusFailed
		}
	}
	return s
}

func payload[T any](t *testing.T, ev holdfast.Event) T {
	t.Helper()
	var d T
	if err := ev.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// same compares what an editor shows with the log.
func (s story) same(t *testing.T, want story, users bool) {
	t.Helper()
	if s.agent != want.agent || s.thought != want.thought || users && s.user != want.user {
		t.Errorf("the editor shows\n%s %q %q\nthe log has\n%s %q %q",
			cut(s.user, 200), s.thought, cut(s.agent, 500), cut(want.user, 200), want.thought, cut(want.agent, 500))
	}
	if len(s.tools) != len(want.tools) || len(s.calls) != len(want.calls) {
		t.Errorf("the editor shows the calls %v, the log has %v", s.calls, want.calls)
	}
	for id, status := range want.tools {
		if s.tools[id] != status {
			t.Errorf("call %s is %q in the editor, %q in the log", id, s.tools[id], status)
		}
	}
	for i := 1; i < len(s.seqs); i++ {
		if s.seqs[i] <= s.seqs[i-1] {
			t.Errorf("event %d was told after %d", s.seqs[i], s.seqs[i-1])
		}
	}
}

// matches waits for the end of what runs, and until the editor has heard of it.
func (d *editor) matches(p *process, id acp.SessionId, users bool) {
	d.t.Helper()
	var want story
	testkit.Eventually(d.t, "the turns end", func() bool {
		turns, err := p.Turns(d.t.Context(), holdfast.SessionID(id), 0, 500)
		for _, turn := range turns {
			if !turn.Status.Terminal() {
				return false
			}
		}
		want = p.logged(holdfast.SessionID(id))
		return err == nil && len(d.story().agent) >= len(want.agent)
	})
	d.story().same(d.t, want, users)
}

// sees waits until the editor shows a text of the agent's.
func (d *editor) sees(text string) {
	d.t.Helper()
	testkit.Eventually(d.t, "the editor sees "+text, func() bool { return strings.Contains(d.story().agent, text) })
}

// again starts a server on the data and the address of one that is gone.
func (p *process) again() *process {
	p.t.Helper()
	<-p.done
	return launch(p.t, p.data, "--listen", strings.TrimPrefix(p.url, "http://"))
}

// served is a server of this test's own.
func served(t *testing.T, args ...string) *process {
	t.Helper()
	return launch(t, filepath.Join(testkit.BaseDir(t), "data"), args...)
}
