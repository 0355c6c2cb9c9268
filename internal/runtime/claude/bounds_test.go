package claude

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/sandbox"
)

const (
	opens  = `{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}}}`
	closes = `{"type":"stream_event","event":{"type":"message_stop"}}`
	wants  = `{"type":"assistant","uuid":"l1","message":{"id":"m1","content":[{"type":"tool_use","id":"%s","name":"Write","input":%s}]}}`
	asks   = `{"type":"control_request","request_id":"%s","request":{"subtype":"hook_callback","callback_id":"hf-pre","tool_use_id":"%s","input":{"tool_name":"Write","tool_input":%s}}}`
	// storeState is what a store takes of a state.
	storeState = 256 << 10
)

func written(path string, n int) string {
	return `{"file_path":"` + path + `","content":"` + strings.Repeat("<", n) + `"}`
}

func (p *player) say(t testing.TB, format string, args ...any) {
	t.Helper()
	if err := p.read(t, fmt.Appendf(nil, format, args...)); err != nil {
		t.Fatal(err)
	}
}

func (h *tape) has(typ holdfast.EventType) bool {
	return slices.ContainsFunc(h.log, func(ev holdfast.Event) bool { return ev.Type == typ })
}

// TestI19_InputsAreNotKeptTwice: what stands in the answer, or in the log, is not kept
// beside it, so that a large file can be written; nor is what is decided.
func TestI19_InputsAreNotKeptTwice(t *testing.T) {
	large, small := written("/f", 1<<20), written("/f", 1000)
	for name, said := range map[string][]string{
		"asked behind its answer":  {opens, fmt.Sprintf(wants, "u1", large), fmt.Sprintf(asks, "q1", "u1", large), closes},
		"asked in front of it":     {opens, fmt.Sprintf(asks, "q1", "u1", small), fmt.Sprintf(wants, "u1", small), closes},
		"not what the answer said": {opens, fmt.Sprintf(wants, "u1", written("f", 1000)), fmt.Sprintf(asks, "q1", "u1", small), closes},
		"asked without an answer":  {fmt.Sprintf(asks, "q1", "agent/u1", large)},
	} {
		h := newTape("u")
		p := h.play(t)
		p.eager = true
		for _, l := range said {
			p.say(t, "%s", l)
		}
		p.leave()
		if h.most > storeState || !h.has(holdfast.EventToolStarted) {
			t.Errorf("%s: a state of %d bytes\n%s", name, h.most, h.story(nil))
		}
		if len(p.inbox.list) != 1 || p.inbox.list[0].Input != nil || strings.Contains(string(h.states[0].Data), "content") {
			t.Errorf("%s: what is decided is kept: %.300s", name, h.states[0].Data)
		}
	}
}

// TestI19_RequestsAreRefusedBeforeTheyAreTooMuch: a hostile agent that asks about what
// no answer holds is told no; the state stays one that a store takes.
func TestI19_RequestsAreRefusedBeforeTheyAreTooMuch(t *testing.T) {
	for _, n := range []int{100, 10 << 10, 1 << 20} {
		h := newTape("u")
		p := h.play(t)
		p.eager = true
		p.say(t, opens)
		for i := range 2 * mostPending {
			p.say(t, asks, fmt.Sprint("q", i), fmt.Sprint("u", i), written("/f", n))
			if n > 1<<19 && i > 3 {
				break
			}
		}
		p.leave()
		if h.most > storeState || len(p.inbox.list) > mostPending {
			t.Errorf("inputs of %d bytes: a state of %d bytes, %d requests open", n, h.most, len(p.inbox.list))
		}
		if p.turn.Link.In.Next() == 0 {
			t.Fatalf("inputs of %d bytes: nobody was told anything", n)
		}
		sent := make([]byte, 64<<10)
		k, err := p.turn.Link.In.Read(sent)
		if err != nil || !strings.Contains(string(sent[:k]), `"permissionDecision":"deny"`) {
			t.Errorf("inputs of %d bytes: nobody was told no: %.200s, %v", n, sent[:k], err)
		}
	}
}

// TestI19_AnswersThatNobodyReadAreBounded: an agent that asks on and reads no answer
// fails its turn before the answers are more than the server has room for.
func TestI19_AnswersThatNobodyReadAreBounded(t *testing.T) {
	p := newTape("u").play(t)
	id := strings.Repeat("q", 1<<20)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = p.read(t, fmt.Appendf(nil, `{"type":"control_request","request_id":"%s","request":{"subtype":"from_the_future"}}`, id))
	}
	if !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("answers went on: %v", err)
	}
}

// TestI19_EarlyOutcomesAreBounded: an agent that reports outcomes of an answer that it never ends fails its turn.
func TestI19_EarlyOutcomesAreBounded(t *testing.T) {
	for _, text := range []string{"", strings.Repeat("x", 1<<20)} {
		p := newTape("u").play(t)
		p.say(t, opens)
		p.say(t, wants, "u1", written("/f", 10))
		line := `{"type":"user","message":{"content":[` + strings.Repeat(`{"type":"tool_result","tool_use_id":"u1"},`, 20_000) + `{"type":"tool_result","tool_use_id":"u1","content":"` + text + `"}]}}`
		var err error
		for i := 0; err == nil && i < 50; i++ {
			err = p.read(t, []byte(line))
		}
		if !holdfast.IsKind(err, holdfast.KindTooLarge) {
			t.Errorf("outcomes went on: %v", err)
		}
	}
}

// TestAMessageSentAheadIsSentAgain: the pipe breaks before it is known whether the CLI is
// there. The next attachment sends the message again, behind the model.
func TestAMessageSentAheadIsSentAgain(t *testing.T) {
	h := newTape("u")
	h.states[0].Data = resident.Marshal(memory{Turn: "t", Shaken: true, Model: "claude-x"})
	x := testRuntime(t).newRun(runtime.Turn{ID: "t", Session: holdfast.Session{ID: "s", Model: "claude-y"}}, h)
	if err := x.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		x.turn.Outbox.Attach()
		if why, err := x.Stale(t.Context()); why != "" || err != nil {
			t.Fatal(why, err)
		}
		sent := string(bytes.Join(x.turn.Outbox.Take(), nil))
		if strings.Count(sent, "\n") != 2 || !strings.Contains(sent, `"model":"claude-y"`) || !strings.Contains(sent, `"content":"x"`) || x.Work() != resident.Idle {
			t.Errorf("sent ahead: %s", sent)
		}
	}
	x.turn.Link = &resident.Link{In: sandbox.NewFeed()}
	if err := x.Resume(t.Context(), x.turn.Outbox.Begun(500)); err != nil || x.Work() == resident.Idle || len(x.letters.list) != 1 {
		t.Errorf("%d messages are under way: %v", len(x.letters.list), err)
	}
	if out := h.states[0].Data; strings.Count(string(out), `"end":`) != 2 {
		t.Errorf("the state keeps %s", out)
	}
}
