package conversation

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// FuzzScan: of valid JSON the fast readers make what encoding/json makes, or they report that
// they cannot; of anything else they make no fuss.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"parts":[{"type":"text","text":"a \\"b\\u00fc"},{"type":"tool_use","tool_use_id":"u"}],"seen":12,"stop_reason":"end_turn","model":"m","usage":{"input_tokens":1,"output_tokens":2,"cost_micro_usd":3}}`,
		`{"tool_use_id":"u","name":"Bash","input":{"command":"echo \\"}\\" ]"}}`, `{"tool_use_id":"u","content":"x\\n","is_error":true,"exit_code":3,"duration_ms":1.5}`,
		`{"parts":null,"seen":-1}`, `{"parts":[],"usage":{}}`, `{"seen":1e3}`, `{ "seen": 1 }`, `{"content":"\\`, `{"input":[1,{"a":[]}]}`, `{"text":"a\\\\"}`, `[`, `{"a"`, `{"seen":01}`, "{\"content\":\"\xff\"}",
		`{"usage":{"input_tokens":1,"cache_read_tokens":7,"output_tokens":2}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var answer, wantAnswer holdfast.AssistantMessage
		var req, wantReq holdfast.ToolRequested
		var out Outcome
		var wantOut holdfast.ToolFinished
		gotAnswer, gotReq, gotOut := scanAnswer(data, &answer), scanRequest(data, &req), scanFinished(data, &out)
		if !json.Valid(data) || folded(data) {
			return
		}
		same := func(ok bool, got, want any, err error) {
			if ok && err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, not %+v", data, got, want)
			}
		}
		err := json.Unmarshal(data, &wantAnswer)
		same(gotAnswer, answer, wantAnswer, err)
		err = json.Unmarshal(data, &wantReq)
		same(gotReq, req, wantReq, err)
		err = json.Unmarshal(data, &wantOut)
		same(gotOut, []any{out.ToolUseID, out.Text, out.IsError}, []any{wantOut.ToolUseID, wantOut.Content, wantOut.IsError}, err)
	})
}

// TestScanReadsAllFields: of payloads with every field set, as the journal writes them, nothing is
// left to encoding/json and nothing is left out.
func TestScanReadsAllFields(t *testing.T) {
	part := holdfast.Part{Type: holdfast.PartText, Text: "a\n\"b\" ü", ToolUseID: "u"}
	usage := holdfast.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, CostMicroUSD: 5, UnpricedCalls: 6}
	answer := holdfast.AssistantMessage{Parts: []holdfast.Part{part, part}, Seen: 7, StopReason: "end_turn", Model: "m", Usage: usage}
	request := holdfast.ToolRequested{ToolUseID: "u", Name: "Bash", Input: json.RawMessage(`{"a":["}"]}`)}
	for _, v := range []any{part, usage, answer, request} {
		for i, v := 0, reflect.ValueOf(v); i < v.NumField(); i++ {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s has no example", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
	var gotAnswer holdfast.AssistantMessage
	var gotRequest holdfast.ToolRequested
	var out Outcome
	if !scanAnswer(encoded(t, answer), &gotAnswer) || !reflect.DeepEqual(gotAnswer, answer) {
		t.Errorf("%+v", gotAnswer)
	}
	if !scanRequest(encoded(t, request), &gotRequest) || !reflect.DeepEqual(gotRequest, request) {
		t.Errorf("%+v", gotRequest)
	}
	finished := encoded(t, holdfast.ToolFinished{ToolUseID: "u", Call: "c", Outcome: "exit", Signal: "s", Content: "x\n", IsError: true, DurationMS: 1.5})
	if !scanFinished(finished, &out) || out.ToolUseID != "u" || out.Text != "x\n" || !out.IsError {
		t.Errorf("%+v", out)
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// folded reports whether an object may hold a list twice, which encoding/json would merge, or a
// key that it takes for another in other case: the journal writes neither.
func folded(data []byte) bool {
	return bytes.Count(data, []byte(`"parts"`)) > 1 || bytes.Count(data, []byte(`"usage"`)) > 1 ||
		bytes.ContainsFunc(data, func(r rune) bool { return r >= 'A' && r <= 'Z' && r != 'B' || r >= 0x80 })
}
