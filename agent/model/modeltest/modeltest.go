// Package modeltest is a test suite for the contract of model.Provider.
//
// The tests of the providers call Run with a provider whose endpoint obeys scripts as package
// scripted does; nothing else imports it. Invariant: it contains no wire format, so a failing
// case means that the provider breaks the contract of model.Provider.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// Options name features that a provider's wire format lacks, and that the suite does not test.
type Options struct {
	// NoSignatures is true if thinking has no signature.
	NoSignatures bool
	// NoUsage is true if the reported usage is not that of the script.
	NoUsage bool
}

// Run runs the suite. It calls open to make a provider for each case.
func Run(t *testing.T, opt Options, open func(t *testing.T) model.Provider) {
	for name, c := range map[string]func(*testing.T, model.Provider, Options){
		"text": text, "tools": tools, "thinking": thinking, "memory": memory, "failures": failures,
		"cut": cut, "late failure": late, "consumer stops": stops, "context ends": ends, "at once": atOnce, "answers end once": once,
	} {
		t.Run(name, func(t *testing.T) { c(t, open(t), opt) })
	}
}

// Answer is a complete answer, collected from a stream.
type Answer struct {
	Deltas map[model.ChunkType]string
	Blocks []model.Block
	Done   []model.Chunk
	Err    error
}

// Ask sends a request and collects the answer.
func Ask(ctx context.Context, p model.Provider, req model.Request) Answer {
	a := Answer{Deltas: map[model.ChunkType]string{}}
	for c, err := range p.Stream(ctx, req) {
		switch {
		case err != nil:
			a.Err = err
		case c.Type == model.ChunkBlock:
			a.Blocks = append(a.Blocks, c.Block)
		case c.Type == model.ChunkDone:
			a.Done = append(a.Done, c)
		default:
			a.Deltas[c.Type] += c.Delta
		}
	}
	return a
}

// Request returns a request with one user message.
func Request(text string) model.Request {
	return model.Request{
		Session: "s1", Model: "m", System: "You are a test.", MaxTokens: 1000,
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: text}}}},
		Tools:    []model.Tool{{Name: "Bash", Description: "runs", Schema: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`)}},
	}
}

func script(s string) model.Request { return Request("<script>" + s + "</script>") }

func text(t *testing.T, p model.Provider, opt Options) {
	a := Ask(t.Context(), p, script(`[{"say":"häll\no","chunks":4,"usage":{"input_tokens":7,"output_tokens":3,"cache_read_tokens":5}}]`))
	if a.Err != nil || a.Deltas[model.ChunkText] != "häll\no" || len(a.Blocks) != 1 || a.Blocks[0].Text != "häll\no" {
		t.Fatalf("%+v", a)
	}
	if d := a.Done; len(d) != 1 || d[0].StopReason != "end_turn" || !opt.NoUsage && d[0].Usage != (holdfast.Usage{InputTokens: 7, OutputTokens: 3, CacheReadTokens: 5}) {
		t.Errorf("%+v", d)
	}
}

func tools(t *testing.T, p model.Provider, _ Options) {
	a := Ask(t.Context(), p, script(`[{"say":"look","tools":[{"tool":"bash","input":{"command":"ä \"x\"","n":1}},{"tool":"Bash","input":{}}]}]`))
	if a.Err != nil || len(a.Done) != 1 || a.Done[0].StopReason != "tool_use" {
		t.Fatalf("%+v", a)
	}
	uses := a.Blocks
	if uses[0].Type == model.Text {
		uses = uses[1:]
	}
	if len(uses) != 2 || uses[0].Name != "Bash" || uses[0].ID == "" || uses[0].ID == uses[1].ID {
		t.Fatalf("%+v", uses)
	}
	var in map[string]any
	if err := json.Unmarshal(uses[0].Input, &in); err != nil || in["command"] != `ä "x"` || in["n"] != 1.0 {
		t.Errorf("%s %v", uses[0].Input, err)
	}
	if s := strings.TrimSpace(string(uses[1].Input)); s != "" && s != "{}" {
		t.Errorf("%q", s)
	}
}

func thinking(t *testing.T, p model.Provider, opt Options) {
	req := script(`[{"think":"hm, well","tool":"Bash","input":{"command":"true"}},{"say":"x"}]`)
	a := Ask(t.Context(), p, req)
	if a.Err != nil || a.Deltas[model.ChunkThinking] != "hm, well" || a.Blocks[0].Type != model.Thinking || a.Blocks[0].Text != "hm, well" {
		t.Fatalf("%+v", a)
	}
	if !opt.NoSignatures && a.Blocks[0].Signature == "" {
		t.Error("no signature")
	}
	// Send the thinking back unchanged; the test endpoint refuses a changed signature.
	use := a.Blocks[len(a.Blocks)-1]
	req.Messages = append(req.Messages, model.Message{Role: model.Assistant, Blocks: a.Blocks}, model.Message{Role: model.User, Blocks: []model.Block{
		{Type: model.ToolResult, ID: use.ID, Text: "done"},
	}})
	if b := Ask(t.Context(), p, req); b.Err != nil || b.Deltas[model.ChunkText] != "x" {
		t.Errorf("%+v", b)
	}
}

func memory(t *testing.T, p model.Provider, _ Options) {
	req := Request("one")
	for i, next := range []string{"two", "three"} {
		a := Ask(t.Context(), p, req)
		if a.Err != nil {
			t.Fatal(i, a.Err)
		}
		req.Messages = append(req.Messages, model.Message{Role: model.Assistant, Blocks: a.Blocks},
			model.Message{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: next}}})
	}
	a := Ask(t.Context(), p, req)
	if want := `You have sent 3 messages. The first was: "one". The last was: "three".`; a.Err != nil || !strings.HasPrefix(a.Deltas[model.ChunkText], want) {
		t.Errorf("%+v", a)
	}
}

func failures(t *testing.T, p model.Provider, _ Options) {
	for class, retry := range map[string]bool{"overloaded": true, "rate_limit": true, "api": true, "invalid": false, "authentication": false} {
		a := Ask(t.Context(), p, script(`[{"error":"`+class+`","retry_after":7}]`))
		var f *model.Failure
		if !errors.As(a.Err, &f) || f.Class != class || f.Retryable != retry || len(a.Done) > 0 {
			t.Errorf("%s: %+v", class, a)
			continue
		}
		if retry && f.RetryAfterSeconds != 7 {
			t.Errorf("%s: retry after %v", class, f.RetryAfterSeconds)
		}
	}
}

func cut(t *testing.T, p model.Provider, _ Options) {
	a := Ask(t.Context(), p, script(`[{"say":"abcdef","cut":true}]`))
	var f *model.Failure
	if !errors.As(a.Err, &f) || f.Class != "cut" || !f.Retryable || len(a.Done) > 0 || a.Deltas[model.ChunkText] != "abc" {
		t.Errorf("%+v", a)
	}
}

// late tests that a failure in the middle of an answer has the same class as a failure before the answer.
func late(t *testing.T, p model.Provider, _ Options) {
	a := Ask(t.Context(), p, script(`[{"say":"abcdef","error":"overloaded","late":true}]`))
	var f *model.Failure
	if !errors.As(a.Err, &f) || !f.Retryable || f.Class != "overloaded" || len(a.Done) > 0 || a.Deltas[model.ChunkText] == "" {
		t.Errorf("%+v", a)
	}
}

func stops(t *testing.T, p model.Provider, _ Options) {
	n := 0
	for range p.Stream(t.Context(), script(`[{"say":"abcdef","chunks":6}]`)) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d chunks", n)
	}
}

func ends(t *testing.T, p model.Provider, _ Options) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for c, err := range p.Stream(ctx, script(`[{"say":"abcdef","chunks":2,"stall_ms":600000}]`)) {
		if c.Type == model.ChunkText {
			cancel()
		}
		last = err
	}
	var f *model.Failure
	if last == nil || errors.As(last, &f) && f.Retryable {
		t.Errorf("%v", last)
	}
}

// atOnce tests that concurrent calls do not mix: a provider stores no conversation.
func atOnce(t *testing.T, p model.Provider, _ Options) {
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			want := strings.Repeat(string(rune('a'+i)), 50)
			if a := Ask(t.Context(), p, script(`[{"say":"`+want+`","chunks":10}]`)); a.Err != nil || a.Deltas[model.ChunkText] != want {
				t.Errorf("%+v", a)
			}
		})
	}
	wg.Wait()
}

// once tests that a provider does not change the request, so that it can be sent twice.
func once(t *testing.T, p model.Provider, _ Options) {
	req := script(`[{"say":"x","think":"y","tools":[{"tool":"Bash","input":{"a":1}}]}]`)
	before, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	one, two := Ask(t.Context(), p, req), Ask(t.Context(), p, req)
	after, err := json.Marshal(req)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("the request changed: %s %v", after, err)
	}
	if d := cmp.Diff(one.Blocks, two.Blocks); d != "" || len(one.Done) != 1 || len(two.Done) != 1 {
		t.Error(d, one.Err, two.Err)
	}
}
