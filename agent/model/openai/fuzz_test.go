package openai

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast/agent/model"
)

// Whatever an endpoint sends, the answer is within its bounds, its blocks can be
// recorded, and it ends once or not at all.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"x\",\"arguments\":\"{\\\"a\"}}]}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":{\"a\":1}}}]}}]}\n\n",
		"data: {\"error\":\"x\"}\n\n", ": c\n\ndata: [DONE]", "data:\ndata:\n\n", "data: {\"usage\":{\"prompt_tokens\":-1,\"prompt_tokens_details\":{\"cached_tokens\":9}}}\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		done, blocks := 0, 0
		a := answer{req: &model.Request{}, begun: true, yield: func(c model.Chunk, err error) bool {
			switch c.Type {
			case model.ChunkBlock:
				blocks++
				if c.Block.Type == model.ToolUse && c.Block.ID == "" {
					t.Error("a call without an id")
				}
			case model.ChunkDone:
				done++
				if u := c.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || u.CacheReadTokens < 0 {
					t.Errorf("%+v", u)
				}
			}
			return true
		}}
		err := events(bytes.NewReader(in), func(data []byte) (bool, error) {
			if string(data) == "[DONE]" {
				a.done = true
				return false, nil
			}
			return true, a.chunk(data)
		})
		if err == nil {
			err = a.finish()
		}
		if want := map[bool]int{true: 1, false: 0}[err == nil]; done != want || blocks > maxCalls+2 || a.bytes > maxAnswer+len(in) {
			t.Errorf("%d ends, %d blocks, %d bytes, %v", done, blocks, a.bytes, err)
		}
	})
}

// A body is the same bytes each time, and begins like the one before.
func TestBodyExtends(t *testing.T) {
	m := &Model{}
	req := model.Request{Model: "m", System: "s", Messages: []model.Message{
		{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: "one"}}},
		{Role: model.Assistant, Blocks: []model.Block{{Type: model.Thinking, Text: "t"}, {Type: model.ToolUse, ID: "a", Name: "B", Input: json.RawMessage(`{"z":1,"a":2}`)}}},
		{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: "and"}, {Type: model.ToolResult, ID: "a", Text: "r"}, {Type: model.Text, Text: "more"}}},
	}}
	long, err := json.Marshal(m.body(&req).Messages)
	if err != nil {
		t.Fatal(err)
	}
	req.Messages = req.Messages[:1]
	short, err := json.Marshal(m.body(&req).Messages)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(long, short[:len(short)-1]) {
		t.Errorf("%s\n%s", short, long)
	}
	const want = `[{"role":"system","content":"s"},{"role":"user","content":"one"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"B","arguments":"{\"z\":1,\"a\":2}"}}]},{"role":"tool","content":"r","tool_call_id":"a"},{"role":"user","content":"and\n\nmore"}]`
	if string(long) != want {
		t.Errorf("%s", long)
	}
}
