package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// stdioKinds are the messages of a client on the standard input of holdfast acp and
// holdfast mcp.
var stdioKinds = map[string][]kind{
	"mcp": {
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"BOMB","capabilities":{},"clientInfo":{"name":"BOMB","version":"1"}}}`},
		{"initialized", `{"jsonrpc":"2.0","method":"notifications/initialized","params":"RAW"}`},
		{"send_message", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_message","arguments":{"session":"SESSION","text":"BOMB"}}}`},
		{"arguments", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"create_session","arguments":"RAW"}}`},
		{"deep arguments", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"create_session","arguments":{"title":"DEEP"}}}`},
		{"tool", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"BOMB"}}`},
		{"method", `{"jsonrpc":"2.0","id":5,"method":"BOMB"}`},
		{"cancelled", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"BOMB"}}`},
		{"result", `{"jsonrpc":"2.0","id":6,"result":"DEEP"}`},
		{"wide arguments", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"create_session","arguments":{"title":"WIDE"}}}`},
		{"wide initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1","capabilities":{"experimental":{"x":"WIDE"}},"clientInfo":{"name":"x","version":"1"}}}`},
		{"no JSON", `"RAW"`},
	},
	"acp": {
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":"DEEP"}}`},
		{"session/new", `{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"BOMB","mcpServers":[]}}`},
		{"session/load", `{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"BOMB","cwd":"/","mcpServers":[]}}`},
		{"session/prompt", `{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"SESSION","prompt":[{"type":"text","text":"BOMB"}]}}`},
		{"session/prompt resource", `{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"SESSION","prompt":[{"type":"resource","resource":{"uri":"BOMB","text":"x"}}]}}`},
		{"session/set_mode", `{"jsonrpc":"2.0","id":5,"method":"session/set_mode","params":{"sessionId":"SESSION","modeId":"BOMB"}}`},
		{"session/cancel", `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"BOMB"}}`},
		{"method", `{"jsonrpc":"2.0","id":6,"method":"BOMB","params":"DEEP"}`},
		{"result", `{"jsonrpc":"2.0","id":7,"result":"RAW"}`},
		{"wide initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"x":"WIDE"}}}}`},
		{"wide meta", `{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"SESSION","_meta":{"x":"WIDE"},"prompt":[{"type":"text","text":"x"}]}}`},
		{"no JSON", `"RAW"`},
	},
}

// deep is JSON as deep as the readers of JSON accept.
var deep = strings.Repeat("[", 9990) + strings.Repeat("]", 9990)

// wideOf is a list of that many bytes, of small values: decoded, they take many times
// their text.
func wideOf(size int) string { return "[" + strings.Repeat("[],", size/3) + "0]" }

// sized returns the messages of a kind with bombs of a size in them, in one line.
func (k kind) sized(opener string, size int, session holdfast.SessionID) string {
	quoted, _ := json.Marshal(bombOf(opener, size))
	if len(quoted) > size+2 { // some openers take more than a byte for each of theirs
		quoted, _ = json.Marshal(bombOf(opener, size*size/len(quoted)))
	}
	out := strings.ReplaceAll(k.text, `"BOMB"`, string(quoted))
	out = strings.ReplaceAll(out, `"RAW"`, strings.ReplaceAll(bombOf(opener, size), "\n", " "))
	return strings.NewReplacer(`"DEEP"`, deep, `"WIDE"`, wideOf(size), "SESSION", string(session)).Replace(out)
}

// TestBombsOnStandardInput sends openers, 10 MB and the most that a line may have, in
// each message to holdfast acp and holdfast mcp. Both live until the input ends.
func TestBombsOnStandardInput(t *testing.T) {
	testkit.Long(t)
	bombStandardInput(t, every(1))
}

func bombStandardInput(t *testing.T, some *sample) {
	t.Helper()
	p := launchOn(t, testkit.BaseDir(t), "mem", holdfast.Untrusted)
	for name, kinds := range stdioKinds {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("holdfast", name)
			cmd.Env = append(cmd.Environ(), "HOLDFAST_URL="+p.url, "HOLDFAST_HOME="+p.data)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			errs := &screen{}
			cmd.Stderr = errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c := &process{t: t, cmd: cmd, done: make(chan struct{})}
			id := p.session()
			n := 0
			for i, k := range kinds {
				for j, opener := range bombOpeners(i) {
					if some.skips() {
						continue
					}
					size := []int{4_000_000, bombSize, 8_500_000}[j]
					if _, err := io.WriteString(in, k.sized(opener, size, id)+"\n"); err != nil {
						t.Fatalf("%s %q: %v\n%s", k.name, opener, err, tail(errs.String()))
					}
					n++
				}
			}
			mb := c.peak()
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, tail(errs.String()))
			}
			t.Logf("%d messages, peak %d MB", n, mb)
			if mb > peakLimit {
				t.Errorf("it took %d MB", mb)
			}
		})
	}
	p.idle()
	p.survived("standard input")
}

// TestBombsInAnswersOfHooks: commands on the host, commands in the box and URLs answer
// with openers.
func TestBombsInAnswersOfHooks(t *testing.T) {
	testkit.Long(t)
	bombHooks(t, every(1))
}

func bombHooks(t *testing.T, some *sample) {
	t.Helper()
	dir := testkit.BaseDir(t)
	file := filepath.Join(dir, "answer")
	var answer atomic.Pointer[string]
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, *answer.Load())
	}))
	defer receiver.Close()
	hooks := map[string]any{"preToolUse": []any{map[string]any{"hooks": []any{
		map[string]any{"type": "command", "command": "cat " + file},
		map[string]any{"type": "command", "command": "cat " + file, "where": "box"},
		map[string]any{"type": "http", "url": receiver.URL},
	}}}}
	p := launchOn(t, filepath.Join(dir, "data"), "host", holdfast.Trusted, "--config", settingsFile(t, map[string]any{"hooks": hooks}))
	kinds := []kind{
		{"control", `{"decision":"block","reason":"the hook was heard"}`},
		{"reason", `{"decision":"block","reason":"BOMB"}`},
		{"context", `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","additionalContext":"BOMB"}}`},
		{"input", `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"BOMB"}}}`},
		{"deep", `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"DEEP"}}}`},
		{"raw", `"RAW"`},
	}
	n := 0
	for i, k := range kinds {
		for j, opener := range bombOpeners(i) {
			if some.skips() {
				continue
			}
			text := k.sized(opener, []int{bombSize, 900_000, 30_000}[j], "")
			answer.Store(&text)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			id := p.session()
			p.finished(id, p.send(id, scriptOf(t, bashStep("true"), map[string]any{"say": "x"})))
			if i == 0 && !p.heard(id, "the hook was heard") {
				t.Fatal("the hook is not heard")
			}
			p.survived(fmt.Sprintf("hook %s %q", k.name, opener))
			n++
		}
	}
	t.Logf("%d answers, peak %d MB", n, p.peak())
}

// TestBombsInFoldersOfAgents deploys folders whose files hold openers: 10 MB, and the
// most that their readers accept.
func TestBombsInFoldersOfAgents(t *testing.T) {
	testkit.Long(t)
	bombFolders(t, every(1))
}

func bombFolders(t *testing.T, some *sample) {
	t.Helper()
	p := launchOn(t, testkit.BaseDir(t), "mem", holdfast.Untrusted)
	n, deployed := 0, 0
	for i, name := range []string{
		"CLAUDE.md", "holdfast.yaml", ".claude/settings.json", ".claude/agents/a.md", ".claude/commands/a.md", ".claude/skills/a/SKILL.md", ".mcp.json",
	} {
		for j := range 12 {
			opener := openers[(i*6+j*4)%len(openers)]
			for _, size := range []int{bombSize, 127 << 10, 60_000, 1900} {
				if size == bombSize && j >= 3 {
					continue
				}
				for _, front := range []string{"", "---\ndescription: "} {
					if front != "" && !strings.HasSuffix(name, ".md") || some.skips() {
						continue
					}
					text := front + bombOf(opener, size)
					if front != "" {
						text += "\n---\nx\n"
					}
					agent := holdfast.AgentName(fmt.Sprintf("a%d-%d", i, j))
					_, err := p.DeployAgent(t.Context(), agent, folderOf(t, map[string]string{"CLAUDE.md": "x", name: text}))
					n++
					if err == nil {
						deployed++
						s, err := p.CreateSession(t.Context(), holdfast.CreateSession{Agent: string(agent)}, "")
						if err == nil {
							p.finished(s.ID, p.send(s.ID, "go"))
						}
					}
				}
			}
		}
		p.survived("agent " + name)
	}
	t.Logf("%d folders, %d of them deployed, peak %d MB", n, deployed, p.peak())
}

// folderOf is a tar of files.
func folderOf(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, text := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// answeringAgent sends before each answer the file in $0 that has the method's name, if
// it exists, with the request's id for @ID@.
const answeringAgent = `answer() { [ ! -e "$0/$1" ] || { sed "s/@ID@/$id/" "$0/$1"; echo; }; printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$2"; }
while IFS= read -r line; do
id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case $line in
*'"initialize"'*) answer initialize '{"protocolVersion":1,"agentCapabilities":{}}';;
*'"session/new"'*) answer new '{"sessionId":"s"}';;
*'"session/prompt"'*) answer prompt '{"stopReason":"end_turn"}';;
esac
done`

// TestBombsInAnswersOfAnAgent: an ACP agent answers the server's requests with openers.
func TestBombsInAnswersOfAnAgent(t *testing.T) {
	testkit.Long(t)
	bombAnswers(t, every(1))
}

func bombAnswers(t *testing.T, some *sample) {
	t.Helper()
	agents := map[string]any{"evil": map[string]any{"command": []string{"/bin/sh", "-c", answeringAgent, "/workspace"}}}
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "local", holdfast.Untrusted, "--config", settingsFile(t, map[string]any{"acp": agents}))
	n := 0
	for i, k := range []kind{
		{"prompt", `{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32000,"message":"the agent was heard"}}`},
		{"initialize", `{"jsonrpc":"2.0","id":@ID@,"result":{"protocolVersion":1,"agentCapabilities":{"x":"DEEP"},"agentInfo":{"name":"BOMB","version":"BOMB"}}}`},
		{"initialize", `{"jsonrpc":"2.0","id":@ID@,"result":{"protocolVersion":1,"agentCapabilities":"RAW"}}`},
		{"new", `{"jsonrpc":"2.0","id":@ID@,"result":{"sessionId":"BOMB"}}`},
		{"new", `{"jsonrpc":"2.0","id":@ID@,"result":{"sessionId":"s","modes":{"currentModeId":"BOMB","availableModes":[]},"models":"DEEP"}}`},
		{"new", `{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32000,"message":"BOMB","data":"DEEP"}}`},
		{"prompt", `{"jsonrpc":"2.0","id":@ID@,"result":{"stopReason":"BOMB"}}`},
		{"prompt", `{"jsonrpc":"2.0","id":@ID@,"error":{"code":-32000,"message":"BOMB"}}`},
	} {
		for j, opener := range bombOpeners(i) {
			if some.skips() {
				continue
			}
			size := []int{bombSize, 3_000_000, 200_000}[j]
			if strings.Count(k.text, "BOMB") > 1 {
				size /= 2
			}
			p.attacked(t, k.name, k.sized(opener, size, ""), i == 0)
			p.survived(fmt.Sprintf("acp %s %q", k.name, opener))
			n++
		}
	}
	t.Logf("%d answers, peak %d MB", n, p.peak())
}
