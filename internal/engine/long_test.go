package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	llm "github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime/native"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// asked notes when the model was called.
type asked struct {
	llm.Provider
	at atomic.Pointer[time.Time]
}

func (p *asked) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	now := time.Now()
	p.at.Store(&now)
	return func(yield func(llm.Chunk, error) bool) {
		// The scripted model counts what was said; what matters here is when it was asked.
		req.Messages = req.Messages[len(req.Messages)-1:]
		for c, err := range p.Provider.Stream(ctx, req) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// BenchmarkLongSession is the way of a message to its model call in a session of 200,000
// events: with the conversation in memory, and after a start of the server.
func BenchmarkLongSession(b *testing.B) {
	p := &asked{Provider: scripted.New()}
	rt := func() *native.Runtime {
		rt, err := native.New(native.Config{Provider: p, Tools: builtin.All(), Now: time.Now, Rand: func() float64 { return 0.5 }})
		if err != nil {
			b.Fatal(err)
		}
		return rt
	}
	m := newMachine(b, func(m *machine) { m.world.rt = rt() })
	id := m.create(holdfast.CreateSession{})
	m.run(id, "hello")
	for n := 0; n < 200_000; {
		n += m.fill(id, n)
	}
	turn := func() time.Duration {
		began := time.Now()
		p.at.Store(nil)
		sent := m.send(id, "hello")
		testkit.Eventually(b, "the turn ended", func() bool {
			turn, err := m.Turn(b.Context(), id, sent.ID)
			return err == nil && turn.Status == holdfast.TurnCompleted
		})
		return p.at.Load().Sub(began)
	}
	for name, before := range map[string]func(){"warm": func() {}, "cold": func() {
		m.world.rt = rt()
		m.restart()
	}} {
		b.Run(name, func(b *testing.B) {
			turn()
			var all time.Duration
			for range b.N {
				before()
				all += turn()
			}
			b.ReportMetric(float64(all.Microseconds())/1000/float64(b.N), "ms/call")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fill adds a turn with tool calls to a log, numbered from n on.
func (m *machine) fill(id holdfast.SessionID, n int) int {
	c := journal.NewChange(id)
	turn := holdfast.TurnID(fmt.Sprintf("00000000-0000-7000-8000-%012d", n))
	add := func(typ holdfast.EventType, data any) {
		c.Events = append(c.Events, journal.Draft{Type: typ, Turn: turn, Data: data})
	}
	add(holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "Please look at the next file, and tell what it is about."}}})
	add(holdfast.EventTurnStarted, holdfast.TurnStartedData{})
	for i := range 40 {
		use := fmt.Sprintf("toolu_%d_%d", n, i)
		call := holdfast.CallID("00000000-0000-7000-8000-000000000001")
		add(holdfast.EventMessageAssistant, holdfast.AssistantMessage{
			Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "I look at it."}, {Type: holdfast.PartToolUse, ToolUseID: use}}, StopReason: "tool_use", Model: "scripted", Usage: holdfast.Usage{InputTokens: 1000, OutputTokens: 20},
		})
		add(holdfast.EventToolRequested, holdfast.ToolRequested{ToolUseID: use, Name: "Bash", Input: json.RawMessage(`{"command":"sed -n 1,40p internal/engine/engine.go"}`)})
		add(holdfast.EventToolAllowed, holdfast.ToolDecision{ToolUseID: use, Tool: "Bash", By: "mode"})
		add(holdfast.EventToolStarted, holdfast.ToolStarted{ToolUseID: use, Call: call, Box: "b", Boot: "c"})
		add(holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: use, Call: call, Outcome: holdfast.ExitOK, Content: "package engine\n\nimport (\n\t\"context\"\n\t\"slices\"\n\t\"sync\"\n)\n", DurationMS: 12})
	}
	add(holdfast.EventMessageAssistant, holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "It is the engine."}}, StopReason: "end_turn", Model: "scripted"})
	add(holdfast.EventTurnCompleted, holdfast.TurnEnded{Result: "It is the engine.", StopReason: "end_turn", Steps: 41})
	if _, err := m.journal.Commit(m.t.Context(), c); err != nil {
		m.t.Fatal(err)
	}
	return len(c.Events)
}
