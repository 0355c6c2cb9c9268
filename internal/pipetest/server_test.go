//go:build linux

package pipetest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// job is what a server process is told.
type job struct {
	Home, Journal, Claude string
	Spec                  sandbox.Spec
	// Double is the address of the model double on this machine.
	Double  string
	Session string
	// Before runs in the box ahead of the agent.
	Before  string
	Prompts []prompt
	// Moment is announced when it comes in turn Turn (the first is 0). At
	// "permission" the server then leaves the callback unanswered; at "half" it has
	// sent one half of the prompt's line.
	Moment string
	Turn   int
}

type prompt struct {
	UUID, Text string
	// Interrupt ends the turn at its first text.
	Interrupt bool
}

const modelSocket = "/run/holdfast/model.sock"

// request is how the agent is started: all state below HOME, no network but the
// model's socket, no settings from what an agent can write (HZ-6).
func (jb *job) request() wire.ExecRequest {
	return wire.ExecRequest{
		Argv: []string{
			"/opt/claude/claude", "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
			"--include-partial-messages", "--permission-prompt-tool", "stdio", "--setting-sources=", "--tools=Bash,Read",
			"--session-id", jb.Session,
		},
		Env: []string{
			"HOME=/home/agent", "CLAUDE_CONFIG_DIR=/home/agent/.claude",
			"ANTHROPIC_UNIX_SOCKET=" + modelSocket, "ANTHROPIC_BASE_URL=http://localhost", "ANTHROPIC_API_KEY=dummy",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_EAGER_FLUSH=1",
			"CLAUDE_CODE_MAX_RETRIES=10",
		},
		Stdin: true, Lines: true,
	}
}

// server drives one agent. Its state is the journal: killed anywhere, the next
// one goes on.
type server struct {
	job
	j   *journal
	out *outbox
	// initialize is the request id of this server's own handshake.
	initialize string
	// shaken: it was sent; ready: it was answered.
	shaken, ready bool
}

// playServer is the process that is killed.
func playServer() int {
	var jb job
	if err := json.Unmarshal([]byte(os.Getenv("PIPE_TEST_JOB")), &jb); err != nil {
		return 2
	}
	if err := (&server{job: jb}).run(context.Background()); err != nil {
		fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "), holdfast.HintOf(err))
		return 1
	}
	return 0
}

func newUUID() string {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return id
}

func openDriver(jb *job, program string) (*local.Driver, error) {
	return local.New(local.Config{
		Home: jb.Home, Boxd: boxd.File(program), ReadOnly: []string{jb.Claude + ":/opt/claude"},
		LimitsMode: sandbox.LimitsBestEffort, Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(jb.Home),
	})
}

func (s *server) run(ctx context.Context) error {
	var err error
	if s.j, err = openJournal(s.Journal); err != nil {
		return err
	}
	if err := s.j.commit(record{Token: s.j.token + 1}); err != nil {
		return err
	}
	d, err := openDriver(&s.job, os.Getenv("HOLDFAST_TEST_BOXD"))
	if err != nil {
		return err
	}
	if _, err := d.Ensure(ctx, s.Spec); err != nil {
		return err
	}
	conn, err := d.Connect(ctx, s.Spec.Box)
	if err != nil {
		return err
	}
	b, err := sandbox.Dial(ctx, s.Spec.Box, conn, s.j.token, func(_ holdfast.SessionID, _ string, conn net.Conn) { testkit.Forward(conn, s.Double) })
	if err != nil {
		return err
	}
	if _, err := b.Listen(ctx, wire.ListenRequest{Name: "model", Network: "unix", Address: modelSocket}); err != nil {
		return err
	}
	if s.j.start == nil {
		if res, err := b.Exec(ctx, sandbox.Call{ID: holdfast.CallID(newUUID())}, wire.ExecRequest{Shell: ": ; " + s.Before}, sandbox.ExecOptions{}); err != nil || res.Class != holdfast.ExitOK {
			return fmt.Errorf("before the agent: %+v %w", res, err)
		}
		if err := s.j.commit(record{Start: &start{sandbox.Call{ID: holdfast.CallID(newUUID())}, s.request()}}); err != nil {
			return err
		}
	}
	s.initialize = newUUID()
	first := s.unanswered()
	if s.asked() == s.answered() {
		first = append(first, s.handshake())
	}
	if err := s.j.commit(record{Send: first}); err != nil {
		return err
	}
	s.out = newOutbox(s.j.stdin)
	lines := &resident.Lines{From: s.j.taken, Line: s.line}
	var stderr bytes.Buffer
	res, err := b.Exec(ctx, s.j.start.Call, s.j.start.Request, sandbox.ExecOptions{
		Stdin: s.out, Stdout: lines, StdoutFrom: s.j.taken, Stderr: &stderr,
		Started: func(st wire.Started) {
			fmt.Println("attached")
			s.out.begin(st.StdinTaken)
		},
	})
	return errors.Join(err, lines.Err(), fmt.Errorf("the agent ended: %+v %s", res, stderr.String()))
}

// handshake is a server's initialize. A second one in the life of an agent waits
// until no turn runs: it makes the agent refuse a tool whose callback is pending.
func (s *server) handshake() json.RawMessage {
	s.shaken = true
	return control(s.initialize, map[string]any{
		"subtype": "initialize",
		"hooks":   map[string]any{"PreToolUse": []any{map[string]any{"matcher": "*", "hookCallbackIds": []string{s.callback()}, "timeout": 3600}}},
	})
}

// callback is this server's name for its callback: another one for each, so that what is
// asked of it was registered by its own handshake.
func (s *server) callback() string { return "pre-" + s.initialize }

// message is what the server needs of a line of the agent.
type message struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	RequestID string `json:"request_id"`
	Request   struct {
		Subtype  string `json:"subtype"`
		Callback string `json:"callback_id"`
		Input    struct {
			ToolName  string         `json:"tool_name"`
			ToolInput map[string]any `json:"tool_input"`
		} `json:"input"`
	} `json:"request"`
	Response struct {
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
	} `json:"response"`
	Event struct {
		Type  string `json:"type"`
		Delta struct {
			Type string `json:"type"`
		} `json:"delta"`
	} `json:"event"`
	Result  string   `json:"result"`
	IsError bool     `json:"is_error"`
	UUIDs   []string `json:"user_message_uuids"`
	Reason  string   `json:"terminal_reason"`
	UUID    string   `json:"uuid"`
}

func control(id string, request any) json.RawMessage {
	return must(json.Marshal(map[string]any{"type": "control_request", "request_id": id, "request": request}))
}

func must(raw json.RawMessage, err error) json.RawMessage {
	if err != nil {
		panic(err)
	}
	return raw
}

// line handles one line: what it leads to is durable with it, then done.
func (s *server) line(raw []byte, next int64) error {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("line %q: %w", raw, err)
	}
	r := record{Line: bytes.Clone(raw), Taken: next}
	turn := s.asked() - 1
	moment := ""
	switch {
	case m.Type == "control_response" && m.Response.RequestID == s.initialize:
		if m.Response.Subtype != "success" {
			return fmt.Errorf("initialize: %s", raw)
		}
		s.ready = true
	case m.Type == "system" && m.Subtype == "init":
		moment = "init"
	case m.Type == "stream_event" && m.Event.Delta.Type == "text_delta":
		moment = "text"
		if turn >= 0 && s.Prompts[turn].Interrupt && !s.interrupted(turn) {
			r.Send = append(r.Send, control(fmt.Sprint("interrupt-", turn), map[string]any{"subtype": "interrupt"}))
		}
	case m.Type == "control_request" && m.Request.Subtype == "hook_callback":
		if moment = "permission"; s.ready && m.Request.Callback != s.callback() {
			return fmt.Errorf("after the handshake %s is asked", m.Request.Callback)
		}
		if s.Moment != moment || turn != s.Turn {
			r.Send = append(r.Send, decide(&m))
		}
	case m.Type == "result":
		moment = "result"
	}
	if err := s.j.commit(r); err != nil {
		return err
	}
	if moment != "" && moment == s.Moment && turn == s.Turn {
		fmt.Println("at", moment)
	}
	s.out.add(r.Send)
	return s.ask()
}

// asked is how many prompts were handed to the agent, answered how many of them
// have a result.
func (s *server) asked() int {
	n := 0
	for _, raw := range s.j.sent {
		var m message
		if json.Unmarshal(raw, &m) == nil && m.Type == "user" {
			n++
		}
	}
	return n
}

func (s *server) answered() int {
	n := 0
	for _, raw := range s.j.lines {
		var m message
		if json.Unmarshal(raw, &m) == nil && m.Type == "result" {
			n++
		}
	}
	return n
}

func (s *server) interrupted(turn int) bool {
	id := fmt.Sprintf(`"interrupt-%d"`, turn)
	for _, raw := range s.j.sent {
		if bytes.Contains(raw, []byte(id)) {
			return true
		}
	}
	return false
}

// ask sends the next prompt when the last one has its result.
func (s *server) ask() error {
	n := s.asked()
	if s.answered() < n || s.shaken && !s.ready {
		return nil
	}
	if !s.shaken {
		return s.send(s.handshake())
	}
	if n == len(s.Prompts) {
		fmt.Println("done")
		return nil
	}
	p := s.Prompts[n]
	line := must(json.Marshal(map[string]any{
		"type": "user", "uuid": p.UUID, "message": map[string]any{"role": "user", "content": p.Text},
	}))
	if s.Moment != "half" || n != s.Turn {
		return s.send(line)
	}
	// The prompt is durable, and its line is cut off by the death of the server.
	if err := s.j.commit(record{Send: []json.RawMessage{line}}); err != nil {
		return err
	}
	s.out.half(line, func() { fmt.Println("at half") })
	return nil
}

// send tells the agent something, durably first.
func (s *server) send(lines ...json.RawMessage) error {
	if err := s.j.commit(record{Send: lines}); err != nil {
		return err
	}
	s.out.add(lines)
	return nil
}

// unanswered decides what an earlier server was asked and did not answer.
func (s *server) unanswered() []json.RawMessage {
	var out []json.RawMessage
	for _, raw := range s.j.lines {
		var m message
		if json.Unmarshal(raw, &m) != nil || m.Type != "control_request" || m.Request.Subtype != "hook_callback" {
			continue
		}
		known := false
		for _, sent := range s.j.sent {
			known = known || bytes.Contains(sent, []byte(m.RequestID))
		}
		if !known {
			out = append(out, decide(&m))
		}
	}
	return out
}

// decide answers a PreToolUse callback.
func decide(m *message) json.RawMessage {
	verdict := map[string]any{"hookEventName": "PreToolUse", "permissionDecision": "allow"}
	command, _ := m.Request.Input.ToolInput["command"].(string)
	if strings.Contains(fmt.Sprint(m.Request.Input.ToolInput), "FORBIDDEN") {
		verdict["permissionDecision"], verdict["permissionDecisionReason"] = "deny", "not in this house"
	}
	if before, after, ok := strings.Cut(command, "REWRITE"); ok {
		m.Request.Input.ToolInput["command"] = before + "rewritten" + after
		verdict["updatedInput"] = m.Request.Input.ToolInput
	}
	return must(json.Marshal(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": m.RequestID, "response": map[string]any{"hookSpecificOutput": verdict},
	}}))
}
