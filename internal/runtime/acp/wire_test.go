package acp

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/policy"
)

func TestPick(t *testing.T) {
	all := []option{{"aa", "allow_always"}, {"ao", "allow_once"}, {"ra", "reject_always"}, {"ro", "reject_once"}}
	for _, c := range []struct {
		options []option
		yes, no string
	}{
		{all, "ao", "ro"},
		{all[:1], "", ""},
		{all[2:3], "", "ra"},
		{[]option{{"x", "from_the_future"}}, "", ""},
		{nil, "", ""},
	} {
		p := permission{Options: c.options}
		if yes, no := p.pick(true), p.pick(false); yes != c.yes || no != c.no {
			t.Errorf("%v: %q %q", c.options, yes, no)
		}
	}
}

func TestLines(t *testing.T) {
	const id = jsonrpc.ID(`"p-1"`)
	for _, c := range []struct{ got, want string }{
		{string(request(3, "session/new", map[string]any{"cwd": "/"})), `{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"/"}}`},
		{string(chosen(id, "yes")), `{"jsonrpc":"2.0","id":"p-1","result":{"outcome":{"optionId":"yes","outcome":"selected"}}}`},
		{string(chosen(id, "")), `{"jsonrpc":"2.0","id":"p-1","result":{"outcome":{"outcome":"cancelled"}}}`},
		{string(refuse(id, "fs/x")), `{"jsonrpc":"2.0","id":"p-1","error":{"code":-32601,"message":"holdfast does not serve \"fs/x\""}}`},
	} {
		got := c.got
		var a, b any
		if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal([]byte(c.want), &b) != nil || strings.Count(got, "\n") != 1 {
			t.Fatalf("%s", got)
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if string(x) != string(y) {
			t.Errorf("%s, want %s", x, y)
		}
	}
}

// TestToolsOfRealAgents: what real agents send about their tools comes out as our
// names and fields, which rules are written for.
func TestToolsOfRealAgents(t *testing.T) {
	for name, c := range map[string]struct {
		updates []string
		tool    string
		input   map[string]any
	}{
		"claude bash": {[]string{
			`{"_meta":{"claudeCode":{"toolName":"Bash"}},"toolCallId":"t","name":"Bash","rawInput":{},"status":"pending","title":"Terminal","kind":"execute","content":[]}`,
			`{"toolCallId":"t","rawInput":{"command":"ls"},"title":"ls","locations":[{"path":"/workspace/x"}]}`,
		}, "Bash", map[string]any{"command": "ls"}},
		"claude write": {[]string{
			`{"toolCallId":"t","name":"Write","rawInput":{},"title":"Preparing file…","kind":"edit"}`,
			`{"toolCallId":"t","rawInput":{"file_path":"/workspace/n","content":"hi"},"content":[{"type":"diff","path":"/workspace/n","oldText":null,"newText":"hi"}]}`,
		}, "Write", map[string]any{"file_path": "/workspace/n", "content": "hi"}},
		"claude edit": {[]string{
			`{"toolCallId":"t","name":"Edit","rawInput":{"file_path":"/workspace/n"},"title":"Edit","kind":"edit"}`,
			`{"toolCallId":"t","rawInput":{"file_path":"/workspace/n","old_string":"a","new_string":"b","replace_all":false}}`,
		}, "Edit", map[string]any{"file_path": "/workspace/n", "old_string": "a", "new_string": "b", "replace_all": false}},
		"opencode bash": {[]string{
			`{"toolCallId":"t","title":"bash","kind":"execute","status":"pending","locations":[{"path":"/workspace"}],"rawInput":{"cwd":"/workspace"}}`,
			`{"toolCallId":"t","status":"in_progress","kind":"execute","title":"rm x","rawInput":{"command":"rm x","description":"d","cwd":"/workspace"}}`,
			`{"toolCallId":"t","title":"rm x","kind":"execute","status":"pending","locations":[],"rawInput":{"command":"rm x"}}`,
		}, "Bash", map[string]any{"command": "rm x", "description": "d", "cwd": "/workspace"}},
		"opencode read": {[]string{
			`{"toolCallId":"t","title":"read","kind":"read","status":"pending","locations":[],"rawInput":{}}`,
			`{"toolCallId":"t","status":"in_progress","kind":"read","title":"read","locations":[{"path":"/workspace/e"}],"rawInput":{"filePath":"/workspace/e"}}`,
			`{"toolCallId":"t","title":"read","kind":"read","status":"pending","locations":[],"rawInput":{}}`,
		}, "Read", map[string]any{"file_path": "/workspace/e"}},
		"opencode write": {[]string{
			`{"toolCallId":"t","title":"write","kind":"edit","rawInput":{}}`,
			`{"toolCallId":"t","kind":"edit","title":"write","locations":[{"path":"/workspace/n"}],"rawInput":{"filePath":"/workspace/n","content":"hi"}}`,
			`{"toolCallId":"t","title":"/workspace/n","kind":"edit","rawInput":{"filepath":"/workspace/n"},"content":[{"type":"diff","path":"/workspace/n","oldText":"","newText":"hi"}]}`,
		}, "Write", map[string]any{"file_path": "/workspace/n", "content": "hi", "filepath": "/workspace/n"}},
		"opencode edit": {[]string{
			`{"toolCallId":"t","title":"edit","kind":"edit","rawInput":{"filePath":"/workspace/n","oldString":"a","newString":"b"}}`,
		}, "Edit", map[string]any{"file_path": "/workspace/n", "old_string": "a", "new_string": "b"}},
		"opencode grep": {[]string{`{"toolCallId":"t","title":"grep","kind":"search","rawInput":{"pattern":"one"}}`}, "Grep", map[string]any{"pattern": "one"}},
		"opencode glob": {[]string{`{"toolCallId":"t","title":"glob","kind":"search","rawInput":{"pattern":"*"}}`}, "Glob", map[string]any{"pattern": "*"}},
		"opencode todo": {[]string{`{"toolCallId":"t","title":"todowrite","kind":"other","rawInput":{}}`}, "TodoWrite", map[string]any{}},
		"a fetch":       {[]string{`{"toolCallId":"t","title":"Fetching","kind":"fetch","rawInput":{"uri":"https://x.example"}}`}, "WebFetch", map[string]any{"url": "https://x.example"}},
		"a list of words": {
			[]string{`{"toolCallId":"t","title":"run","kind":"execute","rawInput":{"command":["bash","-lc","echo 'a b'"]}}`},
			"Bash",
			map[string]any{"command": `bash -lc 'echo '\''a b'\'''`},
		},
		"nothing but a title": {[]string{`{"toolCallId":"t","title":"rm -rf /","kind":"execute"}`}, "Bash", map[string]any{"command": "rm -rf /"}},
		"a command task":      {[]string{`{"toolCallId":"t","title":"task","kind":"execute"}`}, "Bash", map[string]any{"command": "task"}},
		"a title that lies":   {[]string{`{"toolCallId":"t","title":"read","kind":"execute","rawInput":{"command":"read"}}`}, "Bash", map[string]any{"command": "read"}},
		"a deletion":          {[]string{`{"toolCallId":"t","title":"Delete","kind":"delete","locations":[{"path":"/workspace/d"}]}`}, "Edit", map[string]any{"file_path": "/workspace/d"}},
		"a tool of its own":   {[]string{`{"toolCallId":"t","title":"skill: do/it","kind":"other","rawInput":{"a":1}}`}, "mcp__agent__skill__do_it", map[string]any{"a": float64(1)}},
		"a tool of a server":  {[]string{`{"toolCallId":"t","name":"mcp__srv__x","title":"x","kind":"other"}`}, "mcp__srv__x", map[string]any{}},
		"input that is none":  {[]string{`{"toolCallId":"t","title":"x","kind":"read","rawInput":[1],"locations":[{"path":"/workspace/p"}]}`}, "Read", map[string]any{"file_path": "/workspace/p"}},
	} {
		var call tool
		for _, u := range c.updates {
			tc, ok := toolOf(json.RawMessage(u))
			if !ok {
				t.Fatalf("%s: %s", name, u)
			}
			call.learn(tc)
		}
		got := call.named("agent")
		if got != c.tool {
			t.Errorf("%s: %s, want %s", name, got, c.tool)
		}
		want, _ := json.Marshal(c.input)
		if in := call.input(got, nil); string(in) != string(want) {
			t.Errorf("%s: input %s, want %s", name, in, want)
		}
	}
}

// TestEveryFileIsDecided: rules for paths hold for each file that one call touches.
func TestEveryFileIsDecided(t *testing.T) {
	var call tool
	tc, _ := toolOf(json.RawMessage(`{"toolCallId":"t","kind":"edit","locations":[{"path":"/workspace/a"},{"path":"/workspace/b"}],"content":[{"type":"diff","path":"/workspace/c","newText":"x","oldText":"y"}]}`))
	call.learn(tc)
	name := call.named("agent")
	input := call.input(name, nil)
	var got []string
	for _, in := range append([]json.RawMessage{input}, call.more(name, input)...) {
		var p struct {
			Path string `json:"file_path"`
		}
		if err := json.Unmarshal(in, &p); err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Path)
	}
	if !slices.Equal(got, []string{"/workspace/a", "/workspace/b", "/workspace/c"}) {
		t.Errorf("%s decides about %v", name, got)
	}
	if more := (&tool{Paths: []string{"/a", "/b"}}).more("Bash", nil); more != nil {
		t.Errorf("a command has files: %s", more)
	}
}

// TestEveryNamedFileIsDecided: wherever a call of a file tool names a path, rules for paths hold for it, and a call that
// names none, or more than are judged, touches them all.
func TestEveryNamedFileIsDecided(t *testing.T) {
	deny, err := policy.ParseRules(nil, nil, []string{"Read(/workspace/secrets)", "Edit(/workspace/secrets)"})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := policy.New(policy.Config{Rules: deny})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range maxPaths {
		names = append(names, fmt.Sprint("/workspace/", i))
	}
	many, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]policy.Verdict{
		`"kind":"read","title":"read_many_files","rawInput":{"paths":["/workspace/a","/workspace/secrets/a"]}`:                                 policy.Denied,
		`"kind":"read","title":"read_many_files","rawInput":{"paths":["/workspace/a"]}`:                                                        policy.Allowed,
		`"kind":"read","title":"read_many_files","rawInput":{"paths":` + string(many) + `}`:                                                    policy.Denied,
		`"kind":"read","title":"Reading","rawInput":{"target_file":"/workspace/secrets/a"}`:                                                    policy.Denied,
		`"kind":"read","title":"Reading","rawInput":{"target_file":"/workspace/a"}`:                                                            policy.Allowed,
		`"kind":"read","title":"Reading","rawInput":{"what":"/workspace/secrets/a"}`:                                                           policy.Denied,
		`"kind":"read","title":"read","rawInput":{"file_path":"x","path":"/workspace/secrets/a"}`:                                              policy.Denied,
		`"kind":"read","title":"read","rawInput":{"file_path":"x","path":"/workspace/` + strings.Repeat("a/../", 1000) + `secrets/a"}`:         policy.Denied,
		`"kind":"read","title":"read","rawInput":{"file_path":"x","context_files":["/workspace/secrets/a"]}`:                                   policy.Denied,
		`"kind":"search","title":"Search","rawInput":{"pattern":".","root":"/workspace/secrets"}`:                                              policy.Denied,
		`"kind":"search","title":"grep","rawInput":{"pattern":"."},"locations":[{"path":"/workspace/secrets/a"}]`:                              policy.Denied,
		`"kind":"search","title":"ls","rawInput":{"path":"/workspace/a"},"locations":[{"path":"/workspace/secrets"}]`:                          policy.Denied,
		`"kind":"search","title":"grep","rawInput":{"pattern":".","path":"/workspace/a"}`:                                                      policy.Allowed,
		`"kind":"delete","title":"Delete","rawInput":{"target":"/workspace/secrets/a"}`:                                                        policy.Denied,
		`"kind":"move","title":"Move","rawInput":{"source":"/workspace/secrets/a","destination":"/workspace/b"}`:                               policy.Denied,
		`"kind":"move","title":"Move","rawInput":{"source":"/workspace/a","destination":"/workspace/b"}`:                                       policy.Allowed,
		`"kind":"edit","title":"apply_patch","rawInput":{"patchText":"*** Begin Patch\n*** Update File: /workspace/secrets/a\n"}`:              policy.Denied,
		`"kind":"edit","title":"edit","rawInput":{"path":"/workspace/a","old_string":"/workspace/secrets/a","file_text":"/workspace/secrets"}`: policy.Allowed,
	} {
		update, ok := toolOf(json.RawMessage(`{"toolCallId":"t",` + call + `}`))
		if !ok {
			t.Fatal(call)
		}
		var made tool
		made.learn(update)
		name := made.named("agent")
		input := made.input(name, nil)
		got := policy.Allowed
		for _, in := range append([]json.RawMessage{input}, made.more(name, input)...) {
			d, err := engine.Decide(t.Context(), policy.Request{Mode: holdfast.ModeBypassPermissions, Tool: name, ReadOnly: policy.Reads(name), Input: in, Unscoped: true, Sandboxed: true})
			if err != nil {
				t.Fatal(err)
			}
			if d.Verdict != policy.Allowed {
				got = d.Verdict
			}
		}
		if got != want {
			t.Errorf("%s: %s is %s, want %s", name, clip.Counted(call, 200), got, want)
		}
	}
}

func TestSaid(t *testing.T) {
	for raw, want := range map[string]string{
		`{"toolCallId":"t","rawOutput":"plain","content":[{"type":"content","content":{"type":"text","text":"fenced"}}]}`:                                                    "plain",
		`{"toolCallId":"t","rawOutput":{"output":"o","metadata":{"exit":0}}}`:                                                                                                "o",
		`{"toolCallId":"t","rawOutput":{"error":"e"}}`:                                                                                                                       "e",
		`{"toolCallId":"t","content":[{"type":"content","content":{"type":"text","text":"a"}},{"type":"diff","path":"/p","newText":""},{"type":"terminal","terminalId":1}]}`: "a\nchanged /p",
		`{"toolCallId":"t","rawOutput":7,"content":"x"}`:                                                                                                                     "",
	} {
		c, ok := toolOf(json.RawMessage(raw))
		if !ok || said(c) != want {
			t.Errorf("%s: %q", raw, said(c))
		}
	}
	long := `{"toolCallId":"t","rawOutput":"` + strings.Repeat("é", outcomeBytes) + `"}`
	if c, _ := toolOf(json.RawMessage(long)); len(said(c)) > outcomeBytes+40 || !strings.Contains(said(c), "bytes more") {
		t.Errorf("%d bytes are kept", len(said(c)))
	}
}

func TestProfiles(t *testing.T) {
	find := func(holdfast.Trust) (Program, error) { return Program{}, nil }
	for _, p := range []Profile{ClaudeCode(find), OpenCode(find)} {
		for _, model := range []string{"scripted", "anthropic/claude-x", "openai/gpt-x", `we"ird`} {
			for _, kv := range p.environ(Program{Env: map[string]string{"OWN": "{model}"}}, runtime.Place{Home: "/h", Temp: "/t"}, model, "http://127.0.0.1:1", heldKey, "c") {
				name, value, _ := strings.Cut(kv, "=")
				if own := name == "OWN"; !own && (strings.Contains(value, "{model") || strings.Contains(value, "{home") || strings.Contains(value, "{temp")) || strings.ContainsRune(value, '\n') {
					t.Errorf("%s for %s: %s", p.Name, model, kv)
				}
				if strings.Contains(value, policy.Home) || strings.Contains(value, "/tmp") {
					t.Errorf("%s has a path of boxes: %s", p.Name, kv)
				}
				if strings.HasSuffix(name, "_KEY") && value != heldKey {
					t.Errorf("%s has a key: %s", p.Name, kv)
				}
				if name == "OPENCODE_CONFIG_CONTENT" {
					var cfg struct {
						Model    string                     `json:"model"`
						Provider map[string]json.RawMessage `json:"provider"`
					}
					if json.Unmarshal([]byte(value), &cfg) != nil || len(cfg.Provider) != 1 || !strings.HasSuffix(cfg.Model, strings.TrimPrefix(strings.TrimPrefix(model, "openai/"), "anthropic/")) {
						t.Errorf("%s: %s", model, value)
					}
				}
			}
		}
		if err := p.check(); err != nil {
			t.Error(err)
		}
	}
	for name, p := range map[string]Profile{
		"no name": {Find: find}, "a bad name": {Name: "a b", Find: find}, "no command": {Name: "a"},
		"state above": {Name: "a", Find: find, State: "../x"}, "state absolute": {Name: "a", Find: find, State: "/x"},
	} {
		if _, err := New(Config{Profile: p, Now: nil}); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.check(); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStateSurvives: what is kept of an agent is read back as it was.
func TestStateSurvives(t *testing.T) {
	newAgent := func(s holdfast.AgentState) *agent {
		a := &agent{rec: resident.NewRecorder(nil, "t"), out: new(resident.Outbox)}
		a.rec.State = s
		return a
	}
	a := newAgent(holdfast.AgentState{Generation: 1, Runtime: "acp:x", AgentID: "s", Call: "call"})
	a.data.Next, a.data.Model, a.data.Phase = 1, "scripted", phaseHello
	line := a.ask("initialize", map[string]any{})
	a.out.Add(line, "")
	a.data.Prompt = &prompt{ID: 9, Messages: []int64{2}, Tools: []tool{{ID: "t", Ask: `"p"`}}}
	row := a.snapshot(7)
	if row.Taken != 7 {
		t.Fatal(row)
	}
	b := newAgent(row)
	if err := b.decode(); err != nil || b.out.Sent[0].End != int64(len(line)) || b.data.Prompt.Tools[0].ID != "t" || b.data.Asked != 1 || b.data.Next != 2 {
		t.Errorf("%+v %v", b, err)
	}
	if b.stopped(); b.data.Phase != "" || b.data.Model != "scripted" {
		t.Errorf("%+v", b)
	}
	if err := newAgent(holdfast.AgentState{Data: json.RawMessage(`[]`)}).decode(); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Error(err)
	}
	if end != math.MaxInt64 {
		t.Error("the end of the log is not its end")
	}
}

// TestLongCallsLeaveRoomInTheState: a state with long inputs stays one that a store takes, and the calls whose input it does
// not hold are denied by the next server.
func TestLongCallsLeaveRoomInTheState(t *testing.T) {
	a := &agent{rec: resident.NewRecorder(nil, "t"), out: new(resident.Outbox)}
	a.rec.State = holdfast.AgentState{Generation: 1}
	a.data.Prompt = &prompt{Tools: []tool{{ID: "short", Raw: json.RawMessage(`{"command":"x"}`)}, {ID: "long", Raw: json.RawMessage(`{"command":"` + strings.Repeat("<", 100<<10) + `"}`)}}}
	for i := range mostOpen {
		a.data.Prompt.Tools = append(a.data.Prompt.Tools, tool{ID: fmt.Sprint(i), Paths: []string{strings.Repeat("p", maxPath)}})
	}
	row := a.snapshot(0)
	if len(row.Data) > 256<<10 {
		t.Errorf("a state of %d bytes", len(row.Data))
	}
	b := &agent{rec: resident.NewRecorder(nil, "t"), out: new(resident.Outbox)}
	b.rec.State = row
	if err := b.decode(); err != nil {
		t.Fatal(err)
	}
	short, long, last := b.data.Prompt.Tools[0], b.data.Prompt.Tools[1], b.data.Prompt.Tools[mostOpen]
	if !short.whole("Bash", short.Raw) || long.whole("Bash", nil) || a.data.Prompt.Tools[1].Cut {
		t.Errorf("%+v %v", short, long.Cut)
	}
	if _, all := last.paths(nil); all {
		t.Error("paths that the state does not hold are not missed")
	}
}

// FuzzAgent: whatever an agent sends is parsed without a panic, and what comes out of
// it is bounded and encodes.
func FuzzAgent(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","kind":"edit","rawInput":{"path":["a"]},"content":[{"type":"diff"}]}}}`))
	f.Add([]byte(`{"toolCallId":"t","kind":"execute","title":"","rawInput":{"command":["a",null,7]},"locations":[{"path":"x"}],"rawOutput":{"output":"x"}}`))
	f.Add([]byte(`{"id":1,"result":{"stopReason":7}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := jsonrpc.Parse(raw)
		if err == nil {
			_ = m.Answers(jsonrpc.Number(1))
			var u update
			_ = json.Unmarshal(m.Params, &u)
			_ = textOf(u.Update.Content)
		}
		c, ok := toolOf(raw)
		if !ok {
			return
		}
		var call tool
		call.learn(c)
		call.learn(c)
		name := call.named("agent")
		input := call.input(name, nil)
		if !json.Valid(input) || name == "" || len(name) > 256 {
			t.Errorf("%q %s", name, input)
		}
		for _, in := range call.more(name, input) {
			if !json.Valid(in) {
				t.Errorf("%s", in)
			}
		}
		if len(said(c)) > outcomeBytes+64 {
			t.Errorf("%d bytes", len(said(c)))
		}
	})
}

// TestAnotherTool: a permission request for a recorded call names another tool only if it says so.
func TestAnotherTool(t *testing.T) {
	for _, c := range []struct{ first, then, want string }{
		{`"kind":"fetch","name":"mcp__srv__x"`, ``, ""},
		{`"kind":"edit","name":"mcp__srv__x"`, `,"kind":"edit"`, ""},
		{`"kind":"edit","name":"mcp__srv__x"`, `,"kind":"edit","name":"mcp__srv__x"`, ""},
		{`"kind":"edit","name":"mcp__srv__x"`, `,"name":"mcp__srv__y"`, "mcp__srv__y"},
		{`"kind":"read","title":"list"`, `,"kind":"read","title":"a/list"`, ""},
		{`"kind":"read","title":"list"`, `,"kind":"other","title":"external_directory"`, ""},
		{`"kind":"read","title":"list"`, `,"kind":"execute"`, "Bash"},
		{`"kind":"read","title":"list"`, `,"kind":"edit"`, "Edit"},
		{`"kind":"read","title":"list"`, `,"kind":"other","name":"todowrite"`, "TodoWrite"},
		{`"kind":"edit","title":"write"`, `,"kind":"edit","title":"/workspace/n"`, ""},
		{`"kind":"other","title":"skill"`, `,"kind":"execute"`, "Bash"},
	} {
		var call tool
		first, _ := toolOf(json.RawMessage(`{"toolCallId":"t",` + c.first + `}`))
		then, _ := toolOf(json.RawMessage(`{"toolCallId":"t"` + c.then + `}`))
		call.learn(first)
		name := call.named("agent")
		call.Told = true
		if got := call.another(then, name, "agent"); got != c.want {
			t.Errorf("%s, then %s: %q, want %q", c.first, c.then, got, c.want)
		}
	}
}
