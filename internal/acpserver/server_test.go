package acpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/acp-go-sdk"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

const (
	one  holdfast.SessionID = "01890a5d-ac96-774b-bcce-b302099a8057"
	turn holdfast.TurnID    = "01890a5d-b21f-7c40-9d2e-5f6a7b8c9d0e"
)

// log is a server with one session: its follower gets what feed has, and ends when
// that is closed; a nil event breaks the stream for good.
type log struct {
	API
	mu      sync.Mutex
	after   []int64
	sent    []holdfast.SendMessage
	answers []holdfast.AnswerApproval
	stopped int
	ended   bool
	feed    chan *holdfast.Event
	// sends gets a word when a message has arrived.
	sends chan struct{}
}

func (l *log) CreateSession(context.Context, holdfast.CreateSession, string) (holdfast.Session, error) {
	return l.Session(context.TODO(), one)
}

func (l *log) Session(context.Context, holdfast.SessionID) (holdfast.Session, error) {
	return holdfast.Session{ID: one, LastSeq: 1, Mode: holdfast.ModeDefault}, nil
}

func (l *log) Send(_ context.Context, _ holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, msg)
	l.sends <- struct{}{}
	return holdfast.Sent{Turn: holdfast.Turn{ID: turn}, Duplicate: l.ended}, nil
}

func (l *log) Turn(context.Context, holdfast.SessionID, holdfast.TurnID) (holdfast.Turn, error) {
	return holdfast.Turn{ID: turn, Status: holdfast.TurnCompleted, StopReason: "max_tokens", Usage: &holdfast.Usage{InputTokens: 3}}, nil
}

func (l *log) Interrupt(context.Context, holdfast.SessionID) (holdfast.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped++
	return holdfast.Session{}, nil
}

func (l *log) AnswerApproval(_ context.Context, _ holdfast.ApprovalID, req holdfast.AnswerApproval) (holdfast.Approval, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, req)
	return holdfast.Approval{}, nil
}

func (l *log) Follow(ctx context.Context, _ holdfast.SessionID, after int64, _ ...holdfast.EventType) iter.Seq2[holdfast.Event, error] {
	l.mu.Lock()
	l.after = append(l.after, after)
	l.mu.Unlock()
	return func(yield func(holdfast.Event, error) bool) {
		for {
			select {
			case ev := <-l.feed:
				if ev == nil {
					yield(holdfast.Event{}, holdfast.Errorf(holdfast.KindUnavailable, "client", "gone").WithHint("holdfast serve"))
					return
				}
				if !yield(*ev, nil) {
					return
				}
			case <-ctx.Done():
				yield(holdfast.Event{}, ctx.Err())
				return
			}
		}
	}
}

// happens feeds an event of the turn.
func (l *log) happens(t *testing.T, seq int64, typ holdfast.EventType, data any) {
	t.Helper()
	ev, err := holdfast.Event{Session: one, Seq: seq, Type: typ, Turn: turn}.With(data)
	if err != nil {
		t.Fatal(err)
	}
	l.feed <- &ev
}

// desk is an editor in this process.
type desk struct {
	acp.Client
	*acp.ClientSideConnection
	log *log

	mu     sync.Mutex
	text   string
	asked  chan acp.RequestPermissionRequest
	choice acp.PermissionOptionId
}

func (d *desk) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := n.Update.AgentMessageChunk; c != nil && c.Meta == nil {
		d.text += c.Content.Text.Text
	}
	return nil
}

func (d *desk) RequestPermission(_ context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	d.asked <- req
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(d.choice)}, nil
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	// Registered first, it looks last.
	t.Cleanup(func() { goleak.VerifyNone(t) })
	d := &desk{log: &log{feed: make(chan *holdfast.Event), sends: make(chan struct{}, 10)}, asked: make(chan acp.RequestPermissionRequest, 10)}
	toAgent, agentIn := io.Pipe()
	toEditor, editorIn := io.Pipe()
	n := 0
	served := make(chan error, 1)
	go func() {
		served <- Serve(t.Context(), Config{
			API: d.log, Version: "test", Log: slog.New(slog.DiscardHandler),
			NewKey: func() (string, error) { n++; return fmt.Sprint("key ", n), nil },
		}, toAgent, editorIn)
		_ = editorIn.Close()
	}()
	ready := make(chan struct{})
	d.ClientSideConnection = acp.NewClientSideConnection(d, agentIn, readAfter{ready, toEditor})
	d.SetLogger(slog.New(slog.DiscardHandler))
	close(ready)
	t.Cleanup(func() {
		_ = agentIn.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		<-d.Done()
	})
	if _, err := d.NewSession(t.Context(), acp.NewSessionRequest{Cwd: "/x", McpServers: []acp.McpServer{}}); err != nil {
		t.Fatal(err)
	}
	return d
}

// readAfter delays the reading: the connection of the SDK starts to read before its log is set.
type readAfter struct {
	ready <-chan struct{}
	r     io.Reader
}

func (r readAfter) Read(p []byte) (int, error) {
	<-r.ready
	return r.r.Read(p)
}

type answered struct {
	res acp.PromptResponse
	err error
}

func (d *desk) ask(t *testing.T, id string) <-chan answered {
	out := make(chan answered, 1)
	req := acp.PromptRequest{SessionId: acp.SessionId(one), Prompt: []acp.ContentBlock{acp.TextBlock("hi")}}
	if id != "" {
		req.MessageId = &id
	}
	go func() {
		res, err := d.Prompt(t.Context(), req)
		out <- answered{res, err}
	}()
	return out
}

// TestAServerThatStaysAway: the prompt that waits fails with what helps; the next one
// goes on from the last event that was told, and nothing is told twice.
func TestAServerThatStaysAway(t *testing.T) {
	d := newDesk(t)
	first := d.ask(t, "")
	<-d.log.sends
	d.log.happens(t, 2, holdfast.EventTurnStarted, holdfast.TurnStartedData{})
	d.log.happens(t, 3, holdfast.EventMessageAssistant, holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "so far"}}})
	d.log.feed <- nil
	if got := <-first; got.err == nil || !strings.Contains(got.err.Error(), "holdfast serve") {
		t.Fatalf("%+v", got)
	}
	second := d.ask(t, "")
	<-d.log.sends
	d.log.happens(t, 4, holdfast.EventMessageAssistant, holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: ", and on"}}})
	d.log.happens(t, 5, holdfast.EventTurnCompleted, holdfast.TurnEnded{StopReason: "end_turn"})
	if got := <-second; got.err != nil || got.res.StopReason != acp.StopReasonEndTurn {
		t.Fatalf("%+v", got)
	}
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	if !slices.Equal(d.log.after, []int64{1, 3}) || d.text != "so far, and on" {
		t.Errorf("followed after %v, shown %q", d.log.after, d.text)
	}
}

// TestAPromptSentAgain: the editor's own id of a message makes it one turn, which
// may be over.
func TestAPromptSentAgain(t *testing.T) {
	d := newDesk(t)
	d.log.ended = true
	got := <-d.ask(t, "0c5f3c1e-9f0b-4b52-a9a5-0f7a52b7d7f1")
	if got.err != nil || got.res.StopReason != acp.StopReasonMaxTokens || got.res.Usage.InputTokens != 3 || *got.res.UserMessageId != "0c5f3c1e-9f0b-4b52-a9a5-0f7a52b7d7f1" {
		t.Fatalf("%+v", got)
	}
	if key := d.log.sent[0].Key; key != "acp-0c5f3c1e-9f0b-4b52-a9a5-0f7a52b7d7f1" {
		t.Errorf("key %q", key)
	}
}

// TestACancelEndsOnlyItsOwnTurn: while the prompt waits behind somebody else's turn
// nothing is interrupted; when its own begins, that is.
func TestACancelEndsOnlyItsOwnTurn(t *testing.T) {
	d := newDesk(t)
	got := d.ask(t, "")
	<-d.log.sends
	const other holdfast.TurnID = "01890a5d-b21f-7c40-9d2e-000000000000"
	ev, err := holdfast.Event{Seq: 2, Type: holdfast.EventTurnStarted, Turn: other}.With(holdfast.TurnStartedData{})
	if err != nil {
		t.Fatal(err)
	}
	d.log.feed <- &ev
	if err := d.Cancel(t.Context(), acp.CancelNotification{SessionId: acp.SessionId(one)}); err != nil {
		t.Fatal(err)
	}
	// A request behind the cancel is answered after it was noted.
	if _, err := d.UnstableSetSessionModel(t.Context(), acp.UnstableSetSessionModelRequest{SessionId: "x"}); err == nil {
		t.Error("a session that is none has a model")
	}
	d.log.mu.Lock()
	if d.log.stopped != 0 {
		t.Error("somebody else's turn was interrupted")
	}
	d.log.mu.Unlock()
	d.log.happens(t, 3, holdfast.EventTurnStarted, holdfast.TurnStartedData{})
	d.log.happens(t, 4, holdfast.EventTurnInterrupted, holdfast.TurnEnded{})
	if got := <-got; got.err != nil || got.res.StopReason != acp.StopReasonCancelled {
		t.Errorf("%+v", got)
	}
}

// TestAnswersThatWereNotOffered are none: fail closed.
func TestAnswersThatWereNotOffered(t *testing.T) {
	d := newDesk(t)
	d.choice = "allow_everything"
	got := d.ask(t, "")
	<-d.log.sends
	d.log.happens(t, 2, holdfast.EventApprovalAsked, holdfast.Approval{ID: "a", Tool: "Bash", Input: json.RawMessage(`{"command":"ls"}`), State: holdfast.ApprovalPending})
	if req := <-d.asked; len(req.Options) != 3 {
		t.Errorf("%+v", req.Options)
	}
	d.log.happens(t, 3, holdfast.EventApprovalExpired, holdfast.ApprovalAnswered{ID: "a", State: holdfast.ApprovalExpired})
	d.log.happens(t, 4, holdfast.EventTurnFailed, holdfast.TurnEnded{Message: "over", Hint: "try"})
	if got := <-got; got.err == nil || !strings.Contains(got.err.Error(), "the turn failed: over; hint: try") {
		t.Errorf("%+v", got)
	}
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	if len(d.log.answers) != 0 {
		t.Errorf("answered %+v", d.log.answers)
	}
}

// TestAllowAlwaysNamesEveryRule: a compound command has one rule for each of its parts,
// and the option to allow it always names all of them.
func TestAllowAlwaysNamesEveryRule(t *testing.T) {
	d := newDesk(t)
	d.choice = allowAlways
	got := d.ask(t, "")
	<-d.log.sends
	d.log.happens(t, 2, holdfast.EventApprovalAsked, holdfast.Approval{
		ID: "a", Tool: "Bash", Input: json.RawMessage(`{"command":"touch y && echo made"}`), State: holdfast.ApprovalPending,
		Suggestions: []string{"Bash(touch y)", "Bash(echo made)"},
	})
	req := <-d.asked
	if len(req.Options) != 4 || req.Options[1].Kind != acp.PermissionOptionKindAllowAlways ||
		req.Options[1].Name != "Allow in this session: Bash(touch y), Bash(echo made)" {
		t.Errorf("%+v", req.Options)
	}
	testkit.Eventually(t, "the answer arrives", func() bool {
		d.log.mu.Lock()
		defer d.log.mu.Unlock()
		return len(d.log.answers) == 1
	})
	d.log.mu.Lock()
	if a := d.log.answers[0]; a.Decision != "allow" || a.Scope != holdfast.ScopeSession || len(a.Rules) != 0 {
		t.Errorf("%+v", a)
	}
	d.log.mu.Unlock()
	d.log.happens(t, 3, holdfast.EventApprovalAnswered, holdfast.ApprovalAnswered{ID: "a", State: holdfast.ApprovalAllowed})
	d.log.happens(t, 4, holdfast.EventTurnCompleted, holdfast.TurnEnded{})
	if got := <-got; got.err != nil {
		t.Error(got.err)
	}
}
