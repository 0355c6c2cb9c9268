package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

func TestWhatIsRecorded(t *testing.T) {
	for _, c := range []struct {
		typ        holdfast.EventType
		data, want string
	}{
		{holdfast.EventMessageUser, `{"text":"a secret"}`, ""},
		{holdfast.EventToolFinished, `{}`, ""},
		{holdfast.EventToolAllowed, `{"tool_use_id":"t","by":"mode"}`, `{"tool_use_id":"t","by":"mode"}`},
		{holdfast.EventToolDenied, `{"by":"rule"}`, `{"by":"rule"}`},
		{holdfast.EventApprovalAsked, `{"id":"a"}`, `{"id":"a"}`},
		{holdfast.EventApprovalAnswered, `{"id":"a"}`, `{"id":"a"}`},
		{holdfast.EventApprovalExpired, `{"id":"a"}`, `{"id":"a"}`},
		{holdfast.EventRulesChanged, `{}`, `{}`},
		{holdfast.EventHookRan, `{}`, `{}`},
		{"egress.allowed", `{}`, `{}`},
		{"egress.denied", `{}`, `{}`},
		{
			holdfast.EventSessionCreated, `{"agent":"a","agent_version":"v","trust":"trusted","runtime":"native","model":"m","mode":"plan","title":"private","budget":{"usd":1}}`,
			`{"agent":"a","agent_version":"v","trust":"trusted","runtime":"native","model":"m","mode":"plan"}`,
		},
		{holdfast.EventSessionUpdated, `{"title":"private","from":{"title":"old"}}`, ""},
		{
			holdfast.EventSessionUpdated, `{"title":"private","trust":"trusted","from":{"title":"old","trust":"untrusted"}}`,
			`{"trust":"trusted","from":{"trust":"untrusted"}}`,
		},
		{holdfast.EventSessionUpdated, `{"mode":"plan","from":{"mode":"default"}}`, `{"mode":"plan","from":{"mode":"default"}}`},
		// What cannot be read is recorded rather than left out.
		{holdfast.EventSessionUpdated, `{"trust":7}`, `{"trust":7}`},
	} {
		got, ok := Of(c.typ, []byte(c.data))
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("%s %s: %s %v", c.typ, c.data, got, ok)
		}
	}
}

// TestSDKP15_BothInputsAreFound: what a rewritten call was and what it became stand
// in one record, the first by its hash, the second as it is or, when it is large,
// by its hash too.
func TestSDKP15_BothInputsAreFound(t *testing.T) {
	original := json.RawMessage(`{"file_path":"/etc/passwd"}`)
	for name, now := range map[string]json.RawMessage{
		"small": json.RawMessage(`{"file_path":"/tmp/<x>"}`),
		"large": json.RawMessage(`{"file_path":"/tmp/x","content":"` + strings.Repeat("x", 10_000) + `"}`),
	} {
		data, err := json.Marshal(holdfast.ToolDecision{ToolUseID: "t", Tool: "Write", InputHash: policy.InputHash(original), By: "callback", Input: now})
		if err != nil {
			t.Fatal(err)
		}
		var line struct{ Data holdfast.ToolDecision }
		got, _ := Of(holdfast.EventToolAllowed, data)
		if err := json.Unmarshal(Link{}.Next(Entry{Data: got}).line(nil), &line); err != nil {
			t.Fatal(err)
		}
		if line.Data.InputHash != policy.InputHash(original) || line.Data.By != "callback" || line.Data.Tool != "Write" {
			t.Errorf("%s: %+v", name, line.Data)
		}
		switch name {
		case "small":
			var d holdfast.ToolDecision
			if err := json.Unmarshal(data, &d); err != nil || !bytes.Equal(line.Data.Input, d.Input) {
				t.Errorf("input %s, %v", line.Data.Input, err)
			}
		case "large":
			if want := fmt.Sprintf(`{"sha256":"%s","bytes":%d}`, policy.InputHash(now), len(now)); string(line.Data.Input) != want {
				t.Errorf("input %s, want %s", line.Data.Input, want)
			}
		}
	}
}

func TestShorten(t *testing.T) {
	long := `"` + strings.Repeat("x", 100) + `"`
	many := `{"a":` + long
	for i := range 50 {
		many += fmt.Sprintf(`,"f%d":"<value>"`, i)
	}
	many += "}"
	for _, c := range []struct{ in, prefix string }{
		{`{"a":1}`, `{"a":1}`},
		{long, `{"sha256":"`},
		{`{"a":` + long + `,"b":"<c>"}`, `{"a":{"sha256":"` + policy.InputHash([]byte(long)) + `","bytes":102},"b":"<c>"}`},
		{many, `{"sha256":"` + policy.InputHash([]byte(many)) + `","bytes":`},
	} {
		if got := Shorten([]byte(c.in), 64, 256); !strings.HasPrefix(string(got), c.prefix) || !json.Valid(got) {
			t.Errorf("%s: %s", c.in, got)
		}
	}
}
