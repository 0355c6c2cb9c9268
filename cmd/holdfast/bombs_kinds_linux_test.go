package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// kind is an inbound message with BOMB in the place of its text: quoted, so that the
// text stands in a JSON string, or "RAW" for JSON.
type kind struct{ name, text string }

// with returns the messages of a kind with a bomb in it.
func (k kind) with(opener string) string {
	quoted, _ := json.Marshal(bombOf(opener, bombSize))
	out := strings.ReplaceAll(k.text, `"BOMB"`, string(quoted))
	return strings.ReplaceAll(out, `"RAW"`, bombOf(opener, bombSize))
}

// anthropicKinds are the events of the Messages API.
var anthropicKinds = []kind{
	{"message_start", `{"type":"message_start","message":{"id":"BOMB","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":1,"output_tokens":1}}}`},
	{"content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"BOMB","input":{}}}`},
	{"text_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"BOMB"}}`},
	{"thinking_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"BOMB"}}`},
	{"signature_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"BOMB"}}`},
	{"input_json_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"BOMB"}}`},
	{"message_delta", `{"type":"message_delta","delta":{"stop_reason":"BOMB"},"usage":{"output_tokens":1}}`},
	{"error", `{"type":"error","error":{"type":"overloaded_error","message":"BOMB"}}`},
	{"ping", `{"type":"ping","x":"RAW"}`},
	{"unknown", `{"type":"BOMB"}`},
	{"no JSON", `"RAW"`},
}

// openaiKinds are the chunks of chat completions.
var openaiKinds = []kind{
	{"id", `{"id":"BOMB","choices":[]}`},
	{"content", `{"choices":[{"index":0,"delta":{"content":"BOMB"}}]}`},
	{"reasoning", `{"choices":[{"index":0,"delta":{"reasoning_content":"BOMB"}}]}`},
	{"tool name", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"BOMB","arguments":""}}]}}]}`},
	{"arguments", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"Bash","arguments":"BOMB"}}]}}]}`},
	{"finish_reason", `{"choices":[{"index":0,"delta":{},"finish_reason":"BOMB"}]}`},
	{"error", `{"error":{"message":"BOMB"}}`},
	{"raw", `{"choices":"RAW"}`},
	{"no JSON", `"RAW"`},
}

// bombOpeners returns the openers for each kind of message.
func bombOpeners(i int) []string {
	return []string{openers[i%len(openers)], openers[(i*3+7)%len(openers)], []string{"[", `{"a":`, `"`}[i%3]}
}

// TestBombsInEveryChunkOfAModel streams 10 MB of openers in each field of each chunk of
// both wires. The second request of a turn gets a plain answer.
func TestBombsInEveryChunkOfAModel(t *testing.T) {
	testkit.Long(t)
	bombChunks(t, every(1))
}

func bombChunks(t *testing.T, some *sample) {
	t.Helper()
	var chunk atomic.Pointer[string]
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if text := chunk.Swap(nil); text != nil {
			if !strings.HasSuffix(r.URL.Path, "completions") {
				fmt.Fprint(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":\"m\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n")
				fmt.Fprint(w, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n")
			}
			fmt.Fprintf(w, "data: %s\n\n", strings.ReplaceAll(*text, "\n", "\ndata: "))
			return
		}
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer provider.Close()
	t.Setenv("ANTHROPIC_API_KEY", "k")
	t.Setenv("OPENAI_API_KEY", "k")
	p := launchOn(t, testkit.BaseDir(t), "mem", holdfast.Untrusted,
		"--set", "permissions.deny=Bash(curl *)", "--set", "anthropic.url="+provider.URL, "--set", "openai.url="+provider.URL+"/v1")
	n := 0
	for model, kinds := range map[string][]kind{"anthropic/m": anthropicKinds, "openai/m": openaiKinds} {
		for i, k := range kinds {
			for _, opener := range bombOpeners(i) {
				if some.skips() {
					continue
				}
				s, err := p.CreateSession(t.Context(), holdfast.CreateSession{Mode: "bypassPermissions", Model: model}, "")
				if err != nil {
					t.Fatal(err)
				}
				text := k.with(opener)
				chunk.Store(&text)
				p.finished(s.ID, p.send(s.ID, "go"))
				if chunk.Load() != nil {
					t.Fatalf("%s was not asked", model)
				}
				n++
				p.survived(fmt.Sprintf("%s %s %q", model, k.name, opener))
			}
		}
	}
	t.Logf("%d streams, peak %d MB", n, p.peak())
}

// quotedBomb is a bomb that takes at most this many bytes as a JSON string.
func quotedBomb(opener string, size int) string {
	bomb := bombOf(opener, size)
	if quoted, _ := json.Marshal(bomb); len(quoted) > size+2 {
		bomb = bombOf(opener, size*len(bomb)/len(quoted))
	}
	return bomb
}

// TestBombsInScripts: a script of the scripted model, and each input of each tool.
func TestBombsInScripts(t *testing.T) {
	testkit.Long(t)
	bombScripts(t, every(1))
}

func bombScripts(t *testing.T, some *sample) {
	t.Helper()
	p := launchOn(t, testkit.BaseDir(t), "mem", holdfast.Untrusted, "--set", "permissions.deny=Bash(curl *),Read(**/a/**/b/**/c)")
	n := 0
	for i, opener := range openers {
		if some.skips() {
			continue
		}
		id := p.session()
		// Half of the openers come in a script of 10 MB, the others in one step.
		size := bombSize
		if i%2 == 1 {
			size /= 10
		}
		bomb := quotedBomb(opener, size)
		step := []map[string]any{
			bashStep(bomb),
			{"tool": "Read", "input": map[string]any{"file_path": bomb}},
			{"tool": "Write", "input": map[string]any{"file_path": "f", "content": bomb}},
			{"tool": "Grep", "input": map[string]any{"pattern": bomb}},
			{"tool": "Glob", "input": map[string]any{"pattern": bomb}},
			{"say": bomb},
			{"think": bomb},
			{"tool": bomb, "input": map[string]any{}},
		}[i%8]
		p.send(id, scriptOf(t, step, map[string]any{"say": "x"}))
		p.idle()
		p.survived(fmt.Sprintf("script %q", opener))
		id = p.session()
		p.send(id, "<script>"+quotedBomb(opener, bombSize+bombSize/10-size))
		p.idle()
		p.survived(fmt.Sprintf("raw script %q", opener))
		n += 2
	}
	t.Logf("%d turns, peak %d MB", n, p.peak())
}

// acpKinds are the messages of an agent at work.
var acpKinds = []kind{
	{"agent_message_chunk", `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"BOMB"}}}}`},
	{"agent_thought_chunk", `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"BOMB"}}}}`},
	{"tool_call", `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"BOMB","kind":"execute","status":"pending","rawInput":{"command":"BOMB"}}}}`},
	{"tool_call_update", `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","rawOutput":"RAW"}}}`},
	{"plan", `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"plan","entries":[{"content":"BOMB","status":"pending"}]}}}`},
	{"request_permission", `{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"d","title":"x","kind":"execute","rawInput":{"command":"BOMB"}},"options":[{"optionId":"y","kind":"allow_once","name":"y"}]}}`},
	{"fs/read_text_file", `{"jsonrpc":"2.0","id":78,"method":"fs/read_text_file","params":{"sessionId":"s","path":"BOMB"}}`},
	{"unknown", `{"jsonrpc":"2.0","id":79,"method":"BOMB","params":"RAW"}`},
	{"error", `{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"BOMB"}}`},
	{"no JSON", `"RAW"`},
	{"wide tool_call", `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"x","kind":"execute","status":"pending","rawInput":{"x":"WIDE"}}}}`},
	{"wide request_permission", `{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"d","title":"x","kind":"execute","rawInput":{"command":"WIDE"}},"options":[{"optionId":"y","kind":"allow_once","name":"y"}]}}`},
}

// acpAgent answers the handshake, and to a prompt sends the file bomb.
const acpAgent = `while IFS= read -r line; do
id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case $line in
*'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1,"agentCapabilities":{}}}\n' "$id";;
*'"session/new"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"s"}}\n' "$id";;
*'"session/prompt"'*) cat /workspace/bomb; echo
printf '{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}\n' "$id";;
esac
done`

// heard reports whether a session's log has a text.
func (p *process) heard(id holdfast.SessionID, text string) bool {
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if bytes.Contains(ev.Data, []byte(text)) {
			return true
		}
	}
	return false
}

// TestBombsInEveryMessageOfAnAgent sends 10 MB of openers in each message of an ACP
// agent in a box.
func TestBombsInEveryMessageOfAnAgent(t *testing.T) {
	testkit.Long(t)
	bombMessages(t, every(1))
}

func bombMessages(t *testing.T, some *sample) {
	t.Helper()
	agents := map[string]any{"evil": map[string]any{"command": []string{"/bin/sh", "-c", acpAgent}}}
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "local", holdfast.Untrusted,
		"--set", "permissions.deny=Bash(curl *)", "--config", settingsFile(t, map[string]any{"acp": agents}))
	n := 0
	for i, k := range append([]kind{{"control", strings.ReplaceAll(acpKinds[0].text, "BOMB", "the agent was heard")}}, acpKinds...) {
		for _, opener := range bombOpeners(i) {
			if some.skips() {
				continue
			}
			p.attacked(t, "bomb", k.sized(opener, bombSize, ""), i == 0)
			p.survived(fmt.Sprintf("acp %s %q", k.name, opener))
			n++
		}
	}
	t.Logf("%d messages, peak %d MB", n, p.peak())
}

// attacked is a turn of a session whose ACP agent finds a file in its workspace. With
// control the log has to show that the agent was heard.
func (p *process) attacked(t *testing.T, file, text string, control bool) {
	t.Helper()
	s, err := p.CreateSession(t.Context(), holdfast.CreateSession{Mode: "bypassPermissions", Runtime: "acp:evil"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteFile(t.Context(), s.ID, file, strings.NewReader(text), 0o644); err != nil {
		t.Fatal(err)
	}
	turn := p.finished(s.ID, p.send(s.ID, "go"))
	if control && !p.heard(s.ID, "the agent was heard") {
		t.Fatalf("the agent is not heard: %+v", turn)
	}
	if _, err := p.EndSession(t.Context(), s.ID, holdfast.EndSession{Interrupt: true}); err != nil {
		t.Log(err)
	}
}
