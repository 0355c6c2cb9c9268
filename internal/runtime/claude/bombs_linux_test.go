package claude_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// bombKinds are the lines of the CLI, with BOMB for a text of openers, RAW for openers
// in the place of JSON and DEEP for JSON as deep as Go reads it.
var bombKinds = []struct{ name, text string }{
	{"text_delta", `{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"BOMB"}}}`},
	{"thinking_delta", `{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"BOMB"}}}`},
	{"message_start", `{"type":"stream_event","event":{"type":"message_start","message":{"id":"BOMB","model":"m"}}}`},
	{"assistant text", `{"type":"assistant","uuid":"b1","message":{"id":"b","role":"assistant","model":"m","content":[{"type":"text","text":"BOMB"}]}}`},
	{"assistant thinking", `{"type":"assistant","uuid":"b1","message":{"id":"b","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"BOMB","signature":"x"}]}}`},
	{"assistant tool_use", `{"type":"assistant","uuid":"b1","message":{"id":"b","role":"assistant","model":"m","content":[{"type":"tool_use","id":"b","name":"Bash","input":{"command":"BOMB"}}]}}`},
	{"assistant content", `{"type":"assistant","uuid":"b1","message":{"id":"b","role":"assistant","model":"m","content":"DEEP"}}`},
	{"user tool_result", `{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":"BOMB"}]}}`},
	{"user content", `{"type":"user","message":{"role":"user","content":"DEEP"}}`},
	{"hook_callback", `{"type":"control_request","request_id":"bomb","request":{"subtype":"hook_callback","callback_id":"hf-pre","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"BOMB"},"tool_use_id":"b"},"tool_use_id":"b"}}`},
	{"hook_callback input", `{"type":"control_request","request_id":"bomb","request":{"subtype":"hook_callback","callback_id":"hf-pre","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":"DEEP","tool_use_id":"b"},"tool_use_id":"b"}}`},
	{"hook_callback output", `{"type":"control_request","request_id":"bomb","request":{"subtype":"hook_callback","callback_id":"hf-post","input":{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_response":"BOMB","tool_use_id":"b"},"tool_use_id":"b"}}`},
	{"can_use_tool", `{"type":"control_request","request_id":"bomb","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"BOMB"}}}`},
	{"mcp_message", `{"type":"control_request","request_id":"bomb","request":{"subtype":"mcp_message","server_name":"holdfast","message":{"id":1,"method":"tools/call","params":{"name":"BOMB","arguments":"DEEP"}}}}`},
	{"control_request", `{"type":"control_request","request_id":"BOMB","request":{"subtype":"x"}}`},
	{"control_response", `{"type":"control_response","response":{"subtype":"error","request_id":"hf-model","error":"BOMB"}}`},
	{"control_cancel_request", `{"type":"control_cancel_request","request_id":"BOMB"}`},
	{"result", `{"type":"result","subtype":"success","is_error":true,"result":"BOMB","errors":"DEEP"}`},
	{"api_retry", `{"type":"system","subtype":"api_retry","attempt":1,"error":"BOMB"}`},
	{"transcript_mirror", `{"type":"transcript_mirror","filePath":"/home/agent/.claude/projects/-workspace/x.jsonl","entries":[{"uuid":"x","message":"BOMB"}]}`},
	{"transcript_mirror entries", `{"type":"transcript_mirror","filePath":"BOMB","entries":["DEEP"]}`},
	{"command_lifecycle", `{"type":"command_lifecycle","command_uuid":"BOMB","state":"started"}`},
	{"unknown", `{"type":"BOMB","x":"DEEP"}`},
	{"no JSON", `"RAW"`},
	{"assistant tool_use of many values", `{"type":"assistant","uuid":"b1","message":{"id":"b","role":"assistant","model":"m","content":[{"type":"tool_use","id":"b","name":"Bash","input":{"command":"WIDE"}}]}}`},
	{"hook_callback of many values", `{"type":"control_request","request_id":"bomb","request":{"subtype":"hook_callback","callback_id":"hf-pre","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"WIDE"},"tool_use_id":"b"},"tool_use_id":"b"}}`},
	{"transcript_mirror of many values", `{"type":"transcript_mirror","filePath":"/home/agent/.claude/projects/-workspace/x.jsonl","entries":[{"uuid":"x","type":"user","message":"WIDE"}]}`},
	{"unknown of many values", `{"type":"x","x":"WIDE"}`},
}

// bombLine is a line of a kind whose bombs have about this many bytes.
func bombLine(text, opener string, size int) string {
	bomb := strings.Repeat(opener, size/len(opener))
	quoted, _ := json.Marshal(bomb)
	if len(quoted) > size+2 {
		quoted, _ = json.Marshal(bomb[:size*len(bomb)/len(quoted)/len(opener)*len(opener)])
	}
	wide := "[" + strings.Repeat("[],", size/3) + "0]"
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	return strings.NewReplacer(`"BOMB"`, string(quoted), `"RAW"`, bomb, `"DEEP"`, deep, `"WIDE"`, wide).Replace(text)
}

// peakOf is the most memory that this process used since the last call, in MB.
func peakOf(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	mb := 0
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.Atoi(strings.Fields(kb)[0])
			mb = n >> 10
		}
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return mb
}

// TestBombsInEveryLineOfTheCLI: an agent in the place of the CLI writes lines of up to
// 10 MB. The process that reads them lives, its memory stays bounded, and the next turn
// is answered.
func TestBombsInEveryLineOfTheCLI(t *testing.T) {
	testkit.Long(t)
	bombLines(t, 1)
}

// TestBombsInSomeLinesOfTheCLI sends a sample of them; make check sends them all.
func TestBombsInSomeLinesOfTheCLI(t *testing.T) { bombLines(t, 13) }

// bombLines sends the bombs of every of-th kind.
func bombLines(t *testing.T, of int) {
	t.Helper()
	// The server sets the same limit.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(144 << 20))
	cfg := fakeCLI(t, `once() { [ -e /workspace/bomb ]; }
		scenario() { cat /workspace/bomb; }`)
	openers := []string{"[", `{"a":`, `"`, "(", "$(", "<", `\`, "- "}
	most, n := 0, 0
	for i, k := range bombKinds {
		if i%of != 0 {
			continue
		}
		peakOf(t)
		w := cfg.NewWorld(t)
		if ran := runOne(t, cfg, w, "before it", t.Context()); ran.Err != nil {
			t.Fatal(ran.Err)
		}
		bomb := filepath.Join(w.Workspace(), "bomb")
		for j, size := range []int{10_000_000, 1_000_000, 60_000} {
			opener := openers[(i+3*j)%len(openers)]
			if err := os.WriteFile(bomb, []byte(bombLine(k.text, opener, size)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			ran := runOne(t, cfg, w, fmt.Sprintf("%s %d", k.name, size), t.Context())
			if testing.Verbose() {
				t.Logf("%s %q %d: %q %v", k.name, opener, size, ran.Result.Text[:min(len(ran.Result.Text), 40)], ran.Err)
			}
			if err := os.Remove(bomb); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if ran := runOne(t, cfg, w, "after it", t.Context()); ran.Err != nil || !strings.HasPrefix(ran.Result.Text, "said ") {
			t.Errorf("%s: the next turn: %v %.100q", k.name, ran.Err, ran.Result.Text)
		}
		mb := peakOf(t)
		if most = max(most, mb); mb > 300 {
			t.Errorf("%s: %d MB", k.name, mb)
		}
	}
	t.Logf("%d lines, peak %d MB", n, most)
}

// TestBombsInTranscripts reads back transcripts that an agent wrote into its box: lines
// of 15 MB, deep ones and ones of millions of small values.
func TestBombsInTranscripts(t *testing.T) {
	// The server sets the same limit.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(144 << 20))
	const size = 15_000_000
	head := `{"uuid":"u","parentUuid":null,"type":"user","message":`
	for name, line := range map[string]string{
		"lists":   head + "[" + strings.Repeat("[],", size/3) + "0]}",
		"numbers": head + "[" + strings.Repeat("0,", size/2) + "0]}",
		"deep":    head + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + "}",
		"open":    head + strings.Repeat(`{"a":`, size/5),
		"garbage": strings.Repeat("[", size),
	} {
		var record transcript.Record
		check := record.Check(transcript.Main)
		peakOf(t)
		for data := []byte(line + "\n"); len(data) > 0; {
			n := min(len(data), 64<<10)
			_, _ = check.Write(data[:n])
			data = data[n:]
		}
		if err := check.Verdict(); (err == nil) != (name == "lists" || name == "numbers") {
			t.Errorf("%s: %v", name, err)
		}
		if mb := peakOf(t); mb > 300 {
			t.Errorf("%s: %d MB", name, mb)
		}
	}
}
