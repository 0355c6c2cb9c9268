package native_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/native"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// cheap is a host that costs next to nothing but the encoding of events.
type cheap struct {
	runtime.Host
	log   []holdfast.Event
	calls int
	kept  *conversation.Kept
}

func (h *cheap) append(drafts ...journal.Draft) []holdfast.Event {
	for _, d := range drafts {
		data, err := json.Marshal(d.Data)
		if err != nil {
			panic(err)
		}
		h.log = append(h.log, holdfast.Event{Seq: int64(len(h.log) + 1), Type: d.Type, Turn: d.Turn, Data: data})
	}
	return h.log[len(h.log)-len(drafts):]
}

func (h *cheap) Log(_ context.Context, after int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		for _, e := range h.log[after:] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (h *cheap) Conversation(ctx context.Context, use func(*conversation.Conversation) error) error {
	return h.kept.Read("s", func(after int64) iter.Seq2[holdfast.Event, error] { return h.Log(ctx, after) }, use)
}

func (h *cheap) Keep(_ context.Context, _ []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error) {
	return h.append(drafts...), nil
}
func (h *cheap) Delta(holdfast.EventType, any) {}
func (h *cheap) Steered(context.Context, int64) ([]holdfast.Event, error) {
	return nil, nil
}
func (h *cheap) Box(context.Context) (*sandbox.Box, error) { return nil, nil }
func (h *cheap) Release(*sandbox.Box, ...holdfast.CallID)  {}
func (h *cheap) At(string)                                 {}
func (h *cheap) NewCall() (holdfast.CallID, error) {
	h.calls++
	return holdfast.CallID(fmt.Sprint(h.calls)), nil
}

func (h *cheap) Decide(ctx context.Context, r policy.Request) (policy.Decision, error) {
	return new(policy.Engine).Decide(ctx, r)
}

func (h *cheap) Scope(ctx context.Context, r policy.Request) (policy.Scope, error) {
	return new(policy.Engine).Scope(ctx, r)
}

// todo is a tool without a box.
type todo struct{}

func (todo) Spec() tool.Spec {
	return tool.Spec{Name: "TodoWrite", Effect: tool.Read, Where: tool.InServer}
}

func (todo) Run(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Content: "done"}, nil
}

// BenchmarkTurn is a turn with one tool call in a session that has n turns
// behind it: what the runtime adds to the store and to the box.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{0, 100, 1000} {
		b.Run(fmt.Sprint("after ", n), func(b *testing.B) {
			cfg := native.Config{
				Provider: scripted.New(), Tools: []tool.Tool{todo{}}, Now: time.Now, Rand: func() float64 { return 0.5 },
			}
			r, err := native.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			h := &cheap{kept: conversation.NewKept(1, 16<<20)}
			turns := 0
			session := holdfast.Session{ID: "s", Mode: holdfast.ModeBypassPermissions}
			turn := func() {
				turns++
				id := holdfast.TurnID(fmt.Sprint("t", turns))
				h.append(
					journal.Draft{Type: holdfast.EventMessageUser, Turn: id, Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: `<script>[{"tool":"TodoWrite","input":{"todos":[]}}]</script>`}}}},
					journal.Draft{Type: holdfast.EventTurnStarted, Turn: id, Data: holdfast.TurnStartedData{}},
				)
				res, err := r.Run(b.Context(), runtime.Turn{Session: session, ID: id}, h)
				if err != nil {
					b.Fatal(err)
				}
				h.append(append(res.Final, journal.Draft{Type: holdfast.EventTurnCompleted, Turn: id, Data: holdfast.TurnEnded{}})...)
			}
			for range n {
				turn()
			}
			log := len(h.log)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				turn()
				if len(h.log) > log+2000 {
					// Back to n turns, so that the session's length is what is measured.
					b.StopTimer()
					h.log = h.log[:log]
					h.kept.Forget("s")
					turn()
					b.StartTimer()
				}
			}
		})
	}
}
