package model_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast/agent/model"
)

// TestBytesWithCounted: the size of a request is the same, however many of its messages were
// counted before.
func TestBytesWithCounted(t *testing.T) {
	req := model.Request{System: "sys", Tools: []model.Tool{{Name: "t", Description: "d", Schema: json.RawMessage("{}")}}, Messages: []model.Message{
		{Role: model.User, Blocks: []model.Block{{Text: "one"}, {Text: "two"}}},
		{Role: model.Assistant, Blocks: []model.Block{{Name: "Bash", Input: json.RawMessage(`{"a":1}`)}}},
		{Role: model.User, Blocks: []model.Block{{Text: "three"}}},
	}}
	const want = 3 + 1 + 1 + 2 + 6 + 4 + 7 + 5
	for n := range len(req.Messages) + 1 {
		req.Counted.Count(req.Messages, n)
		if got := req.Bytes(); got != want || req.Counted.Messages != n {
			t.Errorf("%d messages counted: %d bytes, want %d", req.Counted.Messages, got, want)
		}
	}
	if req.Counted.Bytes != want-7 {
		t.Errorf("the messages have %d bytes, want %d", req.Counted.Bytes, want-7)
	}
}
