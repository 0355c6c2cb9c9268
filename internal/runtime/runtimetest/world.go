package runtimetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/sandbox"
)

// World is one session with its log and its box, which outlive every server.
type World struct {
	T       *testing.T
	Session holdfast.Session
	Driver  sandbox.Driver
	dir     string
	cfg     Config
	kept    *conversation.Kept

	mu     sync.Mutex
	log    []holdfast.Event
	states []holdfast.AgentState
	token  uint64
	turns  int64
	clock  time.Time
	borned int
}

// NewWorld makes a new session, with a box of the mem driver.
func NewWorld(t *testing.T) *World { return Config{}.NewWorld(t) }

// NewWorld makes a new session.
func (cfg Config) NewWorld(t *testing.T) *World {
	w := &World{T: t, cfg: cfg, kept: conversation.NewKept(1, 0), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if cfg.Boxes == nil {
		w.Driver, w.dir = mem.New(mem.Config{}), t.TempDir()
	} else {
		w.Driver, w.dir = cfg.Boxes(t)
	}
	id, err := holdfast.NewUUID(w.clock, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w.Session = holdfast.Session{
		ID: holdfast.SessionID(id), Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent,
		Trust: holdfast.Untrusted, Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions,
	}
	if cfg.Runtime != "" {
		w.Session.Runtime = cfg.Runtime
	}
	t.Cleanup(func() {
		if err := w.Driver.Remove(context.WithoutCancel(t.Context()), w.box()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *World) box() holdfast.BoxID { return w.Session.ID.Box() }

// Workspace returns the workspace's directory on the host.
func (w *World) Workspace() string { return filepath.Join(w.dir, "workspace") }

func (w *World) uuid() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.borned++
	return fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", w.borned)
}

// Append records events as the engine would, and returns them numbered.
func (w *World) Append(drafts ...journal.Draft) []holdfast.Event {
	w.T.Helper()
	return w.keep(nil, drafts...)
}

// States returns the session's agent states.
func (w *World) States() []holdfast.AgentState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.states)
}

func (w *World) keep(states []holdfast.AgentState, drafts ...journal.Draft) []holdfast.Event {
	w.T.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]holdfast.Event, len(drafts))
	for i, d := range drafts {
		data, err := json.Marshal(d.Data)
		if err != nil {
			w.T.Fatalf("%s does not marshal: %v", d.Type, err)
		}
		w.clock = w.clock.Add(time.Millisecond)
		out[i] = holdfast.Event{
			Session: w.Session.ID, Seq: int64(len(w.log) + i + 1), Type: d.Type, Turn: d.Turn, Agent: d.Agent, Data: data, Time: w.clock,
		}
	}
	w.log = append(w.log, out...)
	for _, s := range states {
		if s.Generation < 1 || s.Generation > int64(len(w.states))+1 {
			w.T.Errorf("an agent state has generation %d, but the newest generation is %d", s.Generation, len(w.states))
			continue
		}
		s.Upto = min(s.Upto, int64(len(w.log)))
		if s.Generation > int64(len(w.states)) {
			w.states = append(w.states, s)
		}
		w.states[s.Generation-1] = s
	}
	return out
}

// Events returns the log after an event number.
func (w *World) Events(after int64) []holdfast.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]holdfast.Event(nil), w.log[min(after, int64(len(w.log))):]...)
}

// Begin records the start of a turn.
func (w *World) Begin(text string) holdfast.TurnID {
	id := holdfast.TurnID(w.uuid())
	w.mu.Lock()
	w.turns++
	n, seq := w.turns, int64(len(w.log)+1)
	w.mu.Unlock()
	w.Append(
		journal.Draft{Type: holdfast.EventMessageUser, Turn: id, Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}}},
		journal.Draft{Type: holdfast.EventTurnStarted, Turn: id, Data: holdfast.TurnStartedData{Number: n, MessageSeq: seq}},
	)
	return id
}

// End records the last events of a turn and then its end.
func (w *World) End(id holdfast.TurnID, typ holdfast.EventType, final ...journal.Draft) {
	w.Append(append(final, journal.Draft{Type: typ, Turn: id, Data: holdfast.TurnEnded{}})...)
}

// Steer records a message that joins the running turn.
func (w *World) Steer(id holdfast.TurnID, text string) {
	w.Append(journal.Draft{Type: holdfast.EventMessageUser, Turn: id, Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: text}}, Steer: true}})
}

// Complete records the successful end of a turn, as the engine does.
func (w *World) Complete(id holdfast.TurnID, res runtime.Result) {
	w.T.Helper()
	w.keep(res.States, append(res.Final, journal.Draft{Type: holdfast.EventTurnCompleted, Turn: id, Data: holdfast.TurnEnded{Result: res.Text}})...)
}

// KillBox ends the box as SIGKILL to boxd does.
func (w *World) KillBox() {
	w.T.Helper()
	if d, ok := w.Driver.(*mem.Driver); ok {
		d.KillBox(w.box())
		return
	}
	list, err := w.Driver.List(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	for _, b := range list {
		if b.Box == w.box() && b.Running && b.PID > 1 {
			if err := syscall.Kill(b.PID, syscall.SIGKILL); err != nil {
				w.T.Fatal(err)
			}
			Eventually(w.T, "the box is dead", func() bool {
				_, err := w.Driver.Connect(w.T.Context(), w.box())
				return err != nil && ended(b.PID)
			})
		}
	}
}

// ended reports whether a process has ended, and with it every process of the box whose first
// process it was: the kernel makes the first process a zombie only after all others.
func ended(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return true
	}
	// In /proc/PID/stat, the state follows the name of the program, which is in parentheses.
	_, after, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// connect connects to the box with a fencing token. If start is true, it starts the box if necessary.
func (w *World) connect(ctx context.Context, token uint64, start bool) (*sandbox.Box, error) {
	if start {
		spec := sandbox.Spec{Box: w.box(), Dir: w.dir, LimitsMode: sandbox.LimitsBestEffort}
		if w.cfg.UID != 0 {
			spec.BoxdUID, spec.ToolUID = w.cfg.UID, w.cfg.UID+1
		}
		if _, err := w.Driver.Ensure(ctx, spec); err != nil {
			return nil, err
		}
	}
	conn, err := w.Driver.Connect(ctx, w.box())
	if err != nil {
		return nil, err
	}
	return sandbox.Dial(ctx, w.box(), conn, token, w.cfg.Accepted)
}

// Payloads returns the payloads of the log's events of one type.
func Payloads[T any](w *World, typ holdfast.EventType) []T {
	w.T.Helper()
	var out []T
	for _, e := range w.Events(0) {
		if e.Type != typ {
			continue
		}
		var v T
		if err := e.Decode(&v); err != nil {
			w.T.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// CheckAnswered checks that the log answers every requested tool use exactly once, and that
// every call that has finished or is unknown has an intent.
func (w *World) CheckAnswered() {
	w.T.Helper()
	answers, intents := map[string]int{}, map[holdfast.CallID]bool{}
	for _, e := range w.Events(0) {
		var p struct {
			Use  string          `json:"tool_use_id"`
			Call holdfast.CallID `json:"call_id"`
		}
		switch e.Type {
		case holdfast.EventToolRequested, holdfast.EventToolStarted, holdfast.EventToolDenied,
			holdfast.EventToolFinished, holdfast.EventToolUnknown:
			if err := e.Decode(&p); err != nil {
				w.T.Fatal(err)
			}
		default:
			continue
		}
		switch e.Type {
		case holdfast.EventToolRequested:
			if _, twice := answers[p.Use]; twice {
				w.T.Errorf("the tool use %s was requested twice", p.Use)
			}
			answers[p.Use] = 0
		case holdfast.EventToolStarted:
			if intents[p.Call] {
				w.T.Errorf("the tool call %s was started twice", p.Call)
			}
			intents[p.Call] = true
		default:
			answers[p.Use]++
			if p.Call != "" && !intents[p.Call] {
				w.T.Errorf("the tool call %s has an outcome, but the log has no tool.started for it", p.Call)
			}
		}
	}
	for use, n := range answers {
		if n != 1 {
			w.T.Errorf("the tool use %s has %d outcomes in the log, want 1", use, n)
		}
	}
}
