package claude_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
)

// TestOneIDIsOneCall: if an answer of the model has two tool uses with the same id, one of them is decided, and the CLI may
// not run the other one.
func TestOneIDIsOneCall(t *testing.T) {
	const list, write = `"Bash","input":{"command":"ls"}`, `"Write","input":{"file_path":"/workspace/x","content":"evil"}`
	for name, uses := range map[string][2]string{
		"another tool":     {list, write},
		"another input":    {list, `"Bash","input":{"command":"rm -r /workspace"}`},
		"the second first": {write, list},
	} {
		var script strings.Builder
		for i, use := range uses {
			fmt.Fprintf(&script, "say '{\"type\":\"assistant\",\"uuid\":\"u%d\",\"parent_tool_use_id\":null,\"message\":{\"id\":\"mm\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{\"type\":\"tool_use\",\"id\":\"use1\",\"name\":%s}],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}'\n", i, use)
		}
		for i, use := range uses {
			tool := strings.Replace(use, `,"input":`, `,"tool_input":`, 1)
			fmt.Fprintf(&script, "say '{\"type\":\"control_request\",\"request_id\":\"q%d\",\"request\":{\"subtype\":\"hook_callback\",\"callback_id\":\"hf-pre\",\"input\":{\"hook_event_name\":\"PreToolUse\",\"tool_name\":%s,\"tool_use_id\":\"use1\"},\"tool_use_id\":\"use1\"}}'\n", i, tool)
		}
		cfg := fakeCLI(t, "scenario() {\n"+script.String()+"for i in 1 2; do read -r a; echo \"$a\" >>/workspace/answers; done; }")
		w := cfg.NewWorld(t)
		runOne(t, cfg, w, "one", t.Context())
		b, err := os.ReadFile(filepath.Join(w.Workspace(), "answers"))
		if err != nil {
			t.Fatal(err)
		}
		allowed := strings.Count(string(b), `"permissionDecision":"allow"`)
		if denied := strings.Count(string(b), `"permissionDecision":"deny"`); allowed != 1 || denied != 1 {
			t.Errorf("%s: %d allowed and %d denied, want one of each:\n%s", name, allowed, denied, b)
		}
		if n := len(runtimetest.Payloads[holdfast.ToolDecision](w, holdfast.EventToolAllowed)); n != 1 {
			t.Errorf("%s: %d decisions", name, n)
		}
	}
}
