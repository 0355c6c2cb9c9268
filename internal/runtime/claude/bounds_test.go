package claude

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast"
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
		if len(p.mem.Pending) != 1 || p.mem.Pending[0].Input != nil || strings.Contains(string(h.states[0].Data), "content") {
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
		if h.most > storeState || len(p.mem.Pending) > mostPending {
			t.Errorf("inputs of %d bytes: a state of %d bytes, %d requests open", n, h.most, len(p.mem.Pending))
		}
		if p.link.out.Next() == 0 {
			t.Fatalf("inputs of %d bytes: nobody was told anything", n)
		}
		sent := make([]byte, 64<<10)
		k, err := p.link.out.Read(sent)
		if err != nil || !strings.Contains(string(sent[:k]), `"permissionDecision":"deny"`) {
			t.Errorf("inputs of %d bytes: nobody was told no: %.200s, %v", n, sent[:k], err)
		}
	}
}

// TestI19_TheInputsOfATurnAreBounded: an agent cannot fill the server's memory with
// calls that it never makes.
func TestI19_TheInputsOfATurnAreBounded(t *testing.T) {
	h := newTape("u")
	p := h.play(t)
	defer p.leave()
	for i := range 100 {
		l := fmt.Appendf(nil, `{"type":"assistant","uuid":"l","message":{"id":"m%d","content":[{"type":"tool_use","id":"u%d","name":"Write","input":%s}]}}`, i, i, written("/f", 8<<20))
		if err := p.take(t.Context(), raw{line: l}); holdfast.IsKind(err, holdfast.KindTooLarge) {
			return
		} else if err != nil || i*8<<20 > mostInputs+8<<20 {
			t.Fatalf("%d inputs: %v", i, err)
		}
	}
}

// TestI19_WhatWaitsForACommitIsBounded in bytes too: lines of a transcript come with
// the next event, but not many large ones.
func TestI19_WhatWaitsForACommitIsBounded(t *testing.T) {
	h := newTape("u")
	p := h.play(t)
	defer p.leave()
	p.link.lines = make(chan raw, 100)
	p.state.AgentID = "a"
	line := fmt.Appendf(nil, `{"type":"transcript_mirror","filePath":"/h/.claude/projects/-workspace/a.jsonl","entries":[{"type":"x","pad":"%s"}]}`, strings.Repeat("x", 1<<20))
	for range 50 {
		p.link.lines <- raw{line: line}
	}
	for len(p.link.lines) > 0 {
		if err := p.take(t.Context(), <-p.link.lines); err != nil {
			t.Fatal(err)
		}
	}
	if most := mostWeight/len(line) + 1; h.together == 0 || h.together > most || len(p.due) > most {
		t.Errorf("%d lines of 1 MiB in one commit, %d wait", h.together, len(p.due))
	}
}

// TestI19_NothingIsReadBehindALargeLine until the run deals with it.
func TestI19_NothingIsReadBehindALargeLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &link{lines: make(chan raw, ahead)}
		ctx, cancel := context.WithCancel(t.Context())
		heard := 0
		go func() {
			for k.hear(ctx, make([]byte, large+1), 0) == nil {
				heard++
			}
		}()
		synctest.Wait()
		if heard != 0 || len(k.lines) != 1 {
			t.Errorf("%d large lines are read ahead", len(k.lines))
		}
		close((<-k.lines).met)
		synctest.Wait()
		if heard != 1 || len(k.lines) != 1 {
			t.Errorf("%d dealt with, %d read ahead", heard, len(k.lines))
		}
		cancel()
	})
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
