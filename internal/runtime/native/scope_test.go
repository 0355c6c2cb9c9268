package native_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/policy"
)

// scoping is a host that answers Scope as the test wants.
type scoping struct {
	*runtimetest.Host
	scope policy.Scope
	err   error
}

func (s scoping) Scope(context.Context, policy.Request) (policy.Scope, error) { return s.scope, s.err }

// TestFileToolsAreHeldToTheScope: file tools touch nothing outside of the decider's
// scope, and nothing at all if it cannot give one.
func TestFileToolsAreHeldToTheScope(t *testing.T) {
	results := func(text string, s scoping) []holdfast.ToolFinished {
		w := runtimetest.NewWorld(t)
		id := w.Begin(`<script>[{"tool":"Bash","input":{"command":"echo canary > a"}},` + text + `]</script>`)
		s.Host = w.NewHost()
		if _, err := newRuntime(t).Run(t.Context(), w.Turn(id, false), s); err != nil {
			t.Fatal(err)
		}
		var out []holdfast.ToolFinished
		for ev, err := range s.Log(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Type == holdfast.EventToolFinished {
				var f holdfast.ToolFinished
				if err := json.Unmarshal(ev.Data, &f); err != nil {
					t.Fatal(err)
				}
				out = append(out, f)
			}
		}
		return out[1:]
	}
	const calls = `{"tools":[{"tool":"Read","input":{"file_path":"a"}},{"tool":"Grep","input":{"pattern":"canary","output_mode":"content"}},{"tool":"Write","input":{"file_path":"b","content":"x"}}]}`
	for _, f := range results(calls, scoping{}) {
		if f.IsError {
			t.Errorf("without a scope: %+v", f)
		}
	}
	for name, s := range map[string]scoping{
		"a scope that denies": {scope: policy.Scope{Denied: []string{"/workspace"}}},
		"a scope elsewhere":   {scope: policy.Scope{Within: [][]string{{"/tmp"}}}},
		"no scope":            {err: errors.New("the settings cannot be read")},
	} {
		got := results(calls, s)
		if len(got) != 3 {
			t.Fatalf("%s: %+v", name, got)
		}
		for _, f := range got {
			if strings.Contains(f.Content, "canary") || !f.IsError {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}
