package claude

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// tape is a host that keeps what is recorded, and allows every tool.
type tape struct {
	runtime.Host
	log    []holdfast.Event
	states []holdfast.AgentState
	calls  int
	// hooks are told of tools, if set.
	hooks *heard
	// most is the largest state that was kept, together the most events at once.
	most, together int
}

func (h *tape) Keep(_ context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error) {
	from := len(h.log)
	for _, d := range drafts {
		raw, err := json.Marshal(d.Data)
		if err != nil {
			return nil, err
		}
		h.log = append(h.log, holdfast.Event{Seq: int64(len(h.log) + 1), Type: d.Type, Turn: d.Turn, Data: raw, Time: time.Unix(0, 0)})
	}
	h.together = max(h.together, len(drafts))
	if len(states) > 0 {
		h.most = max(h.most, len(states[0].Data))
		h.states = slices.Clone(states)
	}
	return h.log[from:], nil
}

func (h *tape) Conversation(ctx context.Context, use func(*conversation.Conversation) error) error {
	c, err := conversation.Read(h.Log(ctx, 0))
	if err != nil {
		return err
	}
	return use(c)
}

func (h *tape) Log(_ context.Context, after int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		for _, ev := range h.log[min(int(after), len(h.log)):] {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func (h *tape) AgentStates(context.Context) ([]holdfast.AgentState, error) { return h.states, nil }
func (h *tape) Steered(context.Context, int64) ([]holdfast.Event, error)   { return nil, nil }
func (h *tape) Delta(holdfast.EventType, any)                              {}
func (h *tape) At(string)                                                  {}
func (h *tape) NewCall() (holdfast.CallID, error) {
	h.calls++
	return holdfast.CallID(fmt.Sprint("call-", h.calls)), nil
}

func (h *tape) Decide(_ context.Context, r policy.Request) (policy.Decision, error) {
	return policy.Decision{Verdict: policy.Allowed, By: "test"}, nil
}

func (h *tape) Scope(context.Context, policy.Request) (policy.Scope, error) {
	return policy.Scope{}, nil
}

// heard keeps what hooks are told.
type heard struct {
	mu    sync.Mutex
	fired []string
}

func (h *heard) Fire(_ context.Context, in hook.Input) hook.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fired = append(h.fired, fmt.Sprintf("%s %s %s%s", in.Event, in.ToolUseID, in.ToolOutput, in.Error))
	return hook.Result{}
}

func (h *heard) Said() []string        { return nil }
func (h *heard) Waits(hook.Input) bool { return false }

// newTape is a session whose turn has begun, and was said to the agent as uuid.
func newTape(uuid string) *tape {
	h := new(tape)
	mem := memory{Turn: "t", Shaken: true, Sent: []sent{{UUID: uuid, Seq: 1}}}
	_, _ = h.Keep(context.Background(), []holdfast.AgentState{{
		Generation: 1, Runtime: Name, AgentID: "a", Health: holdfast.HealthCurrent, Call: "exec", Box: "b", Boot: "c", Data: resident.Marshal(mem),
	}}, journal.Draft{Type: holdfast.EventMessageUser, Turn: "t", Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "x"}}}},
		journal.Draft{Type: holdfast.EventTurnStarted, Turn: "t", Data: holdfast.TurnStartedData{Number: 1, MessageSeq: 1}})
	return h
}

// player is a server with a turn of a tape, that reads lines instead of a process.
type player struct {
	*run
	// eager commits after each line, also within an answer.
	eager bool
}

func testRuntime(t testing.TB) *Runtime {
	r, err := New(Config{Now: time.Now, Rand: rand.Reader, Program: func(holdfast.Trust) (Program, error) { return Program{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (h *tape) play(t testing.TB) *player {
	r := testRuntime(t)
	turn := runtime.Turn{Session: holdfast.Session{ID: "s", Model: "m"}, ID: "t"}
	if h.hooks != nil {
		turn.Hooks = h.hooks
	}
	x := r.newRun(turn, h)
	if err := x.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.turn.Link = &resident.Link{In: sandbox.NewFeed()}
	x.turn.Offset = x.turn.Recorder.State.Taken
	p := &player{run: x}
	if err := x.Resume(t.Context(), x.turn.Outbox.Begun(0)); err != nil {
		t.Fatal(err)
	}
	p.settleAll(t)
	return p
}

func (p *player) settleAll(t testing.TB) {
	for len(p.asks.deciding) > 0 {
		if err := (<-p.turn.Decisions.Done())(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// read deals with a line as the loop does.
func (p *player) read(t testing.TB, l []byte) error {
	if err := p.hear(t, l); err != nil {
		return err
	}
	if p.speech.asm.open != nil && !p.turn.Outbox.Queued() && !p.eager {
		return nil
	}
	err := p.flush(t.Context())
	p.settleAll(t)
	return err
}

// hear deals with a line, and commits nothing.
func (p *player) hear(t testing.TB, l []byte) error {
	at := p.turn.Offset
	p.turn.Offset += int64(len(l)) + 1
	_, err := p.Hear(t.Context(), resident.Line{Text: l, At: at, Next: p.turn.Offset})
	return err
}

func (p *player) leave() { p.turn.Decisions.Stop() }

// lines are those of a recording, and the uuid of its prompt.
func lines(t testing.TB, name string) ([][]byte, string) {
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(raw), `"command_uuid":"`)
	uuid, _, _ := strings.Cut(after, `"`)
	return bytes.Split(bytes.TrimSpace(raw), []byte("\n")), uuid
}

// story is a log in short: its types, without what says nothing of the turn.
func (h *tape) story(final []journal.Draft) string {
	var b strings.Builder
	tell := func(typ holdfast.EventType, data any) {
		var id struct {
			Use string `json:"tool_use_id"`
		}
		_ = json.Unmarshal(resident.Marshal(data), &id)
		if typ != holdfast.EventAgentMirrored && typ != holdfast.EventAgentStarted {
			var n holdfast.Notice
			_ = json.Unmarshal(resident.Marshal(data), &n)
			fmt.Fprintln(&b, strings.TrimSpace(string(typ)+" "+id.Use+n.Code))
		}
	}
	for _, ev := range h.log {
		tell(ev.Type, ev.Data)
	}
	for _, d := range final {
		tell(d.Type, d.Data)
	}
	return b.String()
}

// TestFold: what the real CLI said in a turn becomes the events of a turn.
func TestFold(t *testing.T) {
	for name, want := range map[string]string{
		"tools.jsonl": `message.user
turn.started
thinking
message.assistant
tool.requested toolu_1_0
tool.requested toolu_1_1
tool.allowed toolu_1_0
tool.started toolu_1_0
tool.allowed toolu_1_1
tool.started toolu_1_1
tool.finished toolu_1_0
tool.finished toolu_1_1
message.assistant
`,
		"subagent.jsonl": `message.user
turn.started
message.assistant
tool.requested toolu_1_0
tool.requested toolu_1_1
tool.denied toolu_1_0
tool.allowed toolu_1_1
tool.started toolu_1_1
tool.finished toolu_1_1
message.assistant
tool.requested toolu_3_0
tool.allowed toolu_3_0
tool.started toolu_3_0
tool.requested AGENT/toolu_1_0
tool.allowed AGENT/toolu_1_0
tool.started AGENT/toolu_1_0
tool.finished AGENT/toolu_1_0
tool.finished toolu_3_0
notice deltas.void
message.assistant
`,
	} {
		t.Run(name, func(t *testing.T) {
			all, uuid := lines(t, name)
			h := newTape(uuid)
			p := h.play(t)
			defer p.leave()
			for _, l := range all {
				if err := p.read(t, l); err != nil {
					t.Fatal(err)
				}
			}
			if p.over == nil || p.fail != nil {
				t.Fatalf("the turn is not over: %v", p.fail)
			}
			got := h.story(p.turn.Recorder.Due())
			for _, ev := range h.log {
				var d holdfast.ToolRequested
				if ev.Type == holdfast.EventToolRequested && ev.Decode(&d) == nil {
					if agent, _, sub := strings.Cut(d.ToolUseID, "/"); sub {
						got = strings.ReplaceAll(got, agent, "AGENT")
					}
				}
			}
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// TestFoldAfterACrashAnywhere: a server that dies after any line leaves to the next one
// what it needs: every event is recorded once, whatever is read twice.
func TestFoldAfterACrashAnywhere(t *testing.T) {
	for _, name := range []string{"tools.jsonl", "subagent.jsonl"} {
		all, uuid := lines(t, name)
		whole := newTape(uuid)
		p := whole.play(t)
		for _, l := range all {
			if err := p.read(t, l); err != nil {
				t.Fatal(err)
			}
		}
		p.leave()
		want := whole.story(p.turn.Recorder.Due())
		for n := range all {
			h := newTape(uuid)
			p := h.play(t)
			p.eager = true
			for _, l := range all[:n] {
				if err := p.read(t, l); err != nil {
					t.Fatal(err)
				}
			}
			p.leave()
			p = h.play(t)
			at := int64(0)
			for _, l := range all {
				if at >= p.turn.Recorder.State.Taken {
					if err := p.read(t, l); err != nil {
						t.Fatal(err)
					}
				}
				at += int64(len(l)) + 1
			}
			p.leave()
			if got := h.story(p.turn.Recorder.Due()); got != want {
				t.Fatalf("%s, killed after line %d:\n%swant\n%s", name, n, got, want)
			}
		}
	}
}

// TestHZ12_AnswersThatDiedWithTheServer: a server that dies after it committed a request
// of the CLI, and before the CLI had the answer, leaves the answer to the next one, which
// does not read the request again. Hooks after a tool are asked again: the engine answers
// for those that ran.
func TestHZ12_AnswersThatDiedWithTheServer(t *testing.T) {
	const post = `{"type":"control_request","request_id":"q%d","request":{"subtype":"hook_callback","callback_id":"hf-post","input":` +
		`{"hook_event_name":"%s","tool_name":"Bash","tool_response":{"stdout":"out"},"error":"it failed","tool_use_id":"toolu_1_0"},"tool_use_id":"toolu_1_0"}}`
	const mcp = `{"type":"control_request","request_id":"q%d","request":{"subtype":"mcp_message","server_name":"holdfast","message":{"method":%q,"id":1}}}`
	for name, ask := range map[string]string{
		"After": fmt.Sprintf(post, 1, "PostToolUse"), "AfterAFailure": fmt.Sprintf(post, 1, "PostToolUseFailure"),
		"Tools": fmt.Sprintf(mcp, 1, "tools/list"), "Hello": fmt.Sprintf(mcp, 1, "initialize"),
		"Unknown": `{"type":"control_request","request_id":"q1","request":{"subtype":"elicitation"}}`,
	} {
		for _, hooked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, hooked), func(t *testing.T) {
				all, uuid := lines(t, "tools.jsonl")
				h := newTape(uuid)
				if hooked {
					h.hooks = new(heard)
				}
				p := h.play(t)
				for _, l := range all {
					if bytes.Contains(l, []byte(`"tool_result"`)) {
						break
					}
					if err := p.read(t, l); err != nil {
						t.Fatal(err)
					}
				}
				// Another line shares the commit.
				mirror := fmt.Sprintf(`{"type":"transcript_mirror","filePath":"%s/a.jsonl","entries":[{"uuid":"x"}]}`, cli.Transcripts("/home/agent", "/workspace"))
				if err := p.hear(t, []byte(mirror)); err != nil {
					t.Fatal(err)
				}
				if err := p.read(t, []byte(ask)); err != nil {
					t.Fatal(err)
				}
				p.leave()
				taken := p.turn.Recorder.State.Taken
				if taken != p.turn.Offset {
					t.Fatal("the request is not accounted for")
				}
				p = h.play(t)
				defer p.leave()
				if p.turn.Offset != taken {
					t.Fatal("the next server reads the request again")
				}
				if hooked && strings.HasPrefix(name, "After") {
					select {
					case then := <-p.turn.Decisions.Done():
						if err := then(t.Context()); err != nil {
							t.Fatal(err)
						}
					case <-time.After(10 * time.Second):
						t.Fatal("the next server fires no hooks")
					}
				}
				sent := make([]byte, 64<<10)
				k, err := p.turn.Link.In.Read(sent)
				if n := bytes.Count(sent[:k], []byte(`"request_id":"q1"`)); err != nil || n != 1 {
					t.Fatalf("the request was answered %d times: %s, %v", n, sent[:k], err)
				}
				if !hooked || !strings.HasPrefix(name, "After") {
					return
				}
				want := "postToolUse toolu_1_0 out"
				if name != "After" {
					want = "postToolUseFailure toolu_1_0 it failed"
				}
				if event, _, _ := strings.Cut(want, " "); !bytes.Contains(sent[:k], []byte(`"hookEventName":"P`+event[1:]+`"`)) {
					t.Errorf("the answer is %s", sent[:k])
				}
				if got := h.hooks.fired; len(got) != 2 || got[0] != want || got[1] != want {
					t.Errorf("hooks were told %q, want %q by each of the servers", got, want)
				}
			})
		}
	}
}

// TestASH13_UnknownKindsArePassedOn: a line of a kind that this server does not know is
// in the log as the agent said it, cut where it is long; what the CLI says of its own
// household is not, and a flood ends.
//
// WS-P4.
func TestASH13_UnknownKindsArePassedOn(t *testing.T) {
	h := newTape("u")
	p := h.play(t)
	defer p.leave()
	said := []string{
		`{"type":"from_the_future","a":{"b":["ü",1]}}`,
		`{"type":"system","subtype":"from_the_future","c":2}`,
		`{"type":"long","x":"` + strings.Repeat("a", 1<<20) + `"}`,
	}
	for _, l := range append(said, `{"type":"system","subtype":"init"}`, `{"type":"system","subtype":"thinking_tokens"}`, `{"type":"keep_alive"}`) {
		if err := p.read(t, []byte(l)); err != nil {
			t.Fatal(err)
		}
	}
	var got []holdfast.Notice
	told := func() []holdfast.Notice {
		got = nil
		for _, ev := range h.log {
			var n holdfast.Notice
			if ev.Type == holdfast.EventNotice && ev.Decode(&n) == nil {
				got = append(got, n)
			}
		}
		return got
	}
	for i, n := range told() {
		if n.Code != "agent.unknown" || i < 2 && !strings.HasSuffix(n.Text, ": "+said[i]) || len(n.Text) > mostUnknown+200 {
			t.Errorf("notice %d: %s %.300q", i, n.Code, n.Text)
		}
	}
	if len(got) != len(said) {
		t.Errorf("%d notices", len(got))
	}
	for i := range 50 {
		if err := p.read(t, fmt.Appendf(nil, `{"type":"from_the_future","i":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(told()); n != 10 {
		t.Errorf("%d notices of a flood", n)
	}
}

// FuzzFold: nothing that a box says makes the fold fall over, answer a tool use twice,
// or let a tool start whose intent is not in the log.
func FuzzFold(f *testing.F) {
	for _, name := range []string{"tools.jsonl", "subagent.jsonl"} {
		all, _ := lines(f, name)
		f.Add(bytes.Join(all, []byte("\n")))
		for _, l := range all {
			f.Add(l)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := newTape("u")
		p := h.play(t)
		defer p.leave()
		for l := range bytes.SplitSeq(data, []byte("\n")) {
			if p.read(t, l) != nil {
				break
			}
		}
		p.turn.Uses.End("over", false)
		if err := p.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		started, answered := map[string]int{}, map[string]int{}
		for _, ev := range h.log {
			var d holdfast.ToolStarted
			_ = ev.Decode(&d)
			switch ev.Type {
			case holdfast.EventToolStarted:
				started[d.ToolUseID]++
			case holdfast.EventToolFinished, holdfast.EventToolUnknown:
				answered[d.ToolUseID]++
			}
		}
		for id, n := range started {
			if answered[id] < n {
				t.Errorf("use %q was started %d times, answered %d times", id, n, answered[id])
			}
		}
	})
}
