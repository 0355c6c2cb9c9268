//go:build linux

package app_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// acpAgents are the agents that run offline, with what their tool for commands wants.
var acpAgents = map[string]string{"claude-code-acp": "Bash", "opencode": "bash"}

// withRuntimes are the settings of a server that has these CLIs.
func withRuntimes(t *testing.T, names ...string) config.Config {
	t.Helper()
	cfg := settings(t, "local")
	// The trees are what they are to the bit, whoever links to them.
	if out, err := exec.Command("cp", "-al", testkit.Runtimes(t, names...), filepath.Join(cfg.Data, "runtimes")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(cfg.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestACPTurns: turns 1, 2 and 3 of each real agent in a box without a network, in
// one process: each knows what was before it.
func TestACPTurns(t *testing.T) {
	testkit.Long(t)
	for name, tool := range acpAgents {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, withRuntimes(t, name))
			s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Runtime: "acp:" + name}, "")
			if err != nil {
				t.Fatal(err)
			}
			say := func(text string) holdfast.TurnEnded { return turn(t, c, s.ID, text) }
			if end := say("one"); !strings.Contains(end.Result, "You have sent 1 messages") {
				t.Errorf("turn 1 said %q", end.Result)
			}
			script := fmt.Sprintf(`<script>[{"think":"hm","say":"now","tool":%q,"input":{"command":"echo a >> f; cat f","description":"d"}},{"say":"done"}]</script>`, tool)
			// An agent may send what the model said before a tool call after the call.
			if end := say(script); !strings.HasSuffix(end.Result, "done") || end.Steps < 2 {
				t.Errorf("turn 2: %+v", end)
			}
			if end := say("three"); !strings.Contains(end.Result, "You have sent 3 messages") || !strings.Contains(end.Result, "1 tool results") {
				t.Errorf("turn 3 said %q", end.Result)
			}
			wantTiers(t, c, s.ID, "fresh live live")
		})
	}
}

func acpSession(t *testing.T, c *client.Client, name string) holdfast.Session {
	t.Helper()
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Runtime: "acp:" + name}, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// command is a step that runs a command with an agent's tool for it.
func command(name, text string) string {
	return fmt.Sprintf(`{"tool":%q,"input":{"command":%q,"description":"d"}}`, acpAgents[name], text)
}

// wantTiers holds that a session's agent was come by in these ways.
func wantTiers(t *testing.T, c *client.Client, id holdfast.SessionID, want string) {
	t.Helper()
	if got := tiersOf(t, c, id); got != want {
		t.Errorf("tiers %s, want %s", got, want)
	}
}

// tiersOf are the ways in which a session's agent was come by, in order.
func tiersOf(t *testing.T, c *client.Client, id holdfast.SessionID) string {
	t.Helper()
	var out []string
	for _, a := range logged[holdfast.AgentStarted](t, c, id, holdfast.EventAgentStarted) {
		out = append(out, string(a.Tier))
	}
	return strings.Join(out, " ")
}

// TestACPDecisions: our rules decide what real agents ask; a tool that is denied does
// not run, and the denial is in the log with its rule.
func TestACPDecisions(t *testing.T) {
	testkit.Long(t)
	for name := range acpAgents {
		t.Run(name, func(t *testing.T) {
			cfg := withRuntimes(t, name)
			cfg.Permissions.Deny = []string{"Bash(rm *)"}
			c, _ := serve(t, cfg)
			s := acpSession(t, c, name)
			end := turn(t, c, s.ID, scriptOf("["+command(name, "echo a >> f")+","+command(name, "rm -rf f")+`,{"say":"done"}]`))
			denied := logged[holdfast.ToolDecision](t, c, s.ID, holdfast.EventToolDenied)
			if len(denied) != 1 || denied[0].Rule != "Bash(rm *)" || denied[0].By != "deny rule" || effects(cfg, s.ID) != "a\n" {
				t.Errorf("%+v, effects %q, %+v", denied, effects(cfg, s.ID), end)
			}
			if n := len(logged[holdfast.Notice](t, c, s.ID, holdfast.EventNotice)); n != 0 {
				t.Errorf("%d notices", n)
			}
			if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "You have sent 2 messages") {
				t.Errorf("afterwards: %q", end.Result)
			}
		})
	}
}

// TestACPApprovalAcrossARestart: a question that a tool waits for is answered through
// the API after the server restarted around the living agent, and the tool runs once.
func TestACPApprovalAcrossARestart(t *testing.T) {
	testkit.Long(t)
	for name := range acpAgents {
		t.Run(name, func(t *testing.T) {
			cfg := withRuntimes(t, name)
			cfg.OnShutdown = config.ShutdownKeep
			cfg.Permissions.Ask = []string{"Bash(echo asked *)"}
			c, stop := serve(t, cfg)
			s := acpSession(t, c, name)
			k := startTurn(t, c, s.ID, scriptOf("["+command(name, "echo asked >> f")+`,{"say":"done"}]`))
			k.until(holdfast.EventApprovalAsked)
			stop()
			// The box of the test ends with its last server.
			cfg.OnShutdown = config.ShutdownStop
			c, _ = serve(t, cfg)
			page, err := c.Approvals(t.Context(), holdfast.ApprovalFilter{Session: string(s.ID)})
			if err != nil || len(page.Approvals) != 1 {
				t.Fatalf("%+v %v", page, err)
			}
			if _, err := c.AnswerApproval(t.Context(), page.Approvals[0].ID, holdfast.AnswerApproval{Decision: "allow"}); err != nil {
				t.Fatal(err)
			}
			completes(t, c, s.ID)
			if got := effects(cfg, s.ID); got != "asked\n" || len(logged[holdfast.Approval](t, c, s.ID, holdfast.EventApprovalAsked)) != 1 {
				t.Errorf("effects %q", got)
			}
			if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "You have sent 2 messages") || tiersOf(t, c, s.ID) != "fresh live" {
				t.Errorf("afterwards: %q, tiers %s", end.Result, tiersOf(t, c, s.ID))
			}
		})
	}
}

// TestACPInterruptAndReturn: an interrupt ends what a real agent runs; after the end
// of its box it loads what it kept; another server goes on with it.
func TestACPInterruptAndReturn(t *testing.T) {
	testkit.Long(t)
	for name := range acpAgents {
		t.Run(name, func(t *testing.T) {
			cfg := withRuntimes(t, name)
			c, stop := serve(t, cfg)
			s := acpSession(t, c, name)
			turn(t, c, s.ID, "first word")
			k := startTurn(t, c, s.ID, scriptOf("["+command(name, "sleep 100; echo b >> f")+`,{"say":"never"}]`))
			k.until(holdfast.EventToolStarted)
			if _, err := c.Interrupt(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
			if typ, end := k.end(); typ != holdfast.EventTurnInterrupted {
				t.Errorf("%s %+v", typ, end)
			}
			if end := turn(t, c, s.ID, "third"); !strings.Contains(end.Result, `The first was: "first word"`) {
				t.Errorf("after the interrupt: %q", end.Result)
			}
			if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
				t.Fatal(err)
			}
			if end := turn(t, c, s.ID, "fourth"); !strings.Contains(end.Result, `The first was: "first word"`) {
				t.Errorf("after the end of the box: %q", end.Result)
			}
			stop()
			c, _ = serve(t, cfg)
			end := turn(t, c, s.ID, "fifth")
			if !strings.Contains(end.Result, `The first was: "first word"`) || effects(cfg, s.ID) != "" {
				t.Errorf("on another server: %q, effects %q", end.Result, effects(cfg, s.ID))
			}
			if tiers := tiersOf(t, c, s.ID); !strings.HasSuffix(tiers, "own own") {
				t.Errorf("tiers %s", tiers)
			}
		})
	}
}

// TestSwitching: a session goes from runtime to runtime; each knows all turns before
// it, whoever ran them, and says how it came to know them. The CLI has no transcript of the turns that another runtime ran, so
// its first turn gets them as text. A later turn of the CLI resumes the transcript that it has written since (WS-R101).
func TestSwitching(t *testing.T) {
	testkit.Long(t)
	cfg := withRuntimes(t, "claude", "claude-code-acp", "opencode")
	c, _ := serve(t, cfg)
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Title: "goes around"}, "")
	if err != nil {
		t.Fatal(err)
	}
	// The CLI of the runtime claude may end with the switch and come back from its file.
	tiers := []string{"", "injected", "injected", "injected", "", "own live", "live", "live"}
	for i, runtime := range []string{"native", "claude", "acp:claude-code-acp", "acp:opencode", "native", "claude", "acp:claude-code-acp", "acp:opencode"} {
		if _, err := c.UpdateSession(t.Context(), s.ID, holdfast.UpdateSession{Runtime: &runtime}); err != nil {
			t.Fatal(err)
		}
		before := logged[holdfast.AgentStarted](t, c, s.ID, holdfast.EventAgentStarted)
		text := "What do you remember?"
		if i == 0 {
			text = "first of all"
		}
		end := turn(t, c, s.ID, text)
		if want := fmt.Sprintf("You have sent %d messages", i+1); !strings.Contains(end.Result, want) || !strings.Contains(end.Result, `"first of all"`) {
			t.Errorf("%s in turn %d: %q", runtime, i+1, end.Result)
		}
		receipts := logged[holdfast.AgentStarted](t, c, s.ID, holdfast.EventAgentStarted)[len(before):]
		switch {
		case tiers[i] == "" && len(receipts) != 0:
			t.Errorf("%s says %+v", runtime, receipts)
		case tiers[i] != "" && (len(receipts) != 1 || !strings.Contains(tiers[i], string(receipts[0].Tier)) || receipts[0].Runtime != runtime || receipts[0].Turns != int64(i) || receipts[0].Of != int64(i)):
			t.Errorf("%s in turn %d says %+v", runtime, i+1, receipts)
		}
	}
}

// TestHZ6_ACPSettingsInTheBoxSilenceNothing: files that an agent can write allow all
// tools. Ours are asked all the same, for tools that only read as well.
func TestHZ6_ACPSettingsInTheBoxSilenceNothing(t *testing.T) {
	testkit.Long(t)
	read := map[string]string{
		"claude-code-acp": `{"tool":"Read","input":{"file_path":"/workspace/secret"}}`,
		"opencode":        `{"tool":"read","input":{"filePath":"/workspace/secret"}}`,
	}
	for name := range acpAgents {
		t.Run(name, func(t *testing.T) {
			cfg := withRuntimes(t, name)
			cfg.Permissions.Deny = []string{"Bash(echo *)", "Read(/workspace/secret)"}
			c, _ := serve(t, cfg)
			s := acpSession(t, c, name)
			execute(t, c, s.ID, `cd /workspace; echo canary > secret
mkdir -p .claude .opencode /home/agent/.claude /home/agent/.config/opencode
for f in .claude/settings.json .claude/settings.local.json /home/agent/.claude/settings.json; do
	echo '{"permissions":{"allow":["Bash","Read"],"defaultMode":"bypassPermissions"},"disableAllHooks":true}' > $f
done
for f in opencode.json .opencode/opencode.json /home/agent/.config/opencode/opencode.json; do
	echo '{"permission":{"*":"allow","bash":"allow","read":"allow","bash":{"*":"allow"}}}' > $f
done`)
			turn(t, c, s.ID, scriptOf("["+command(name, "echo a >> f")+`,{"say":"done"}]`))
			turn(t, c, s.ID, scriptOf("["+read[name]+`,{"say":"done"}]`))
			var rules []string
			for _, d := range logged[holdfast.ToolDecision](t, c, s.ID, holdfast.EventToolDenied) {
				rules = append(rules, d.Rule)
			}
			if fmt.Sprint(rules) != "[Bash(echo *) Read(/workspace/secret)]" || effects(cfg, s.ID) != "" {
				t.Errorf("denied by %v, effects %q", rules, effects(cfg, s.ID))
			}
			for _, ev := range events(t, c, s.ID) {
				if ev.Type == holdfast.EventToolFinished && strings.Contains(string(ev.Data), "canary") {
					t.Errorf("the agent read what it must not: %s", ev.Data)
				}
			}
		})
	}
}

// TestOwnACPAgent: an agent of the configuration is a runtime like the others; one
// whose program is not there says so and leaves the session usable.
func TestOwnACPAgent(t *testing.T) {
	cfg := settings(t, "local")
	cfg.ACP = map[string]config.ACPAgent{
		"mine": {Command: []string{"/bin/bash", "-c", `printf '%s\n' "$URL" > /workspace/url
while IFS= read -r l; do
	[[ $l =~ \"id\":([0-9]+) ]]; id=${BASH_REMATCH[1]}
	case $l in
	*'"initialize"'*) r='{"protocolVersion":1}' ;;
	*'"session/new"'*) r='{"sessionId":"s"}' ;;
	*) echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"mine"}}}}'
		r='{"stopReason":"end_turn"}' ;;
	esac
	echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$r}"
done`}, Env: map[string]string{"URL": "{model_url}/{model}"}},
		"gone": {Command: []string{"/opt/holdfast/no/such/agent"}},
	}
	c, _ := serve(t, cfg)
	s := acpSession(t, c, "mine")
	if end := turn(t, c, s.ID, "hello"); end.Result != "mine" {
		t.Errorf("%+v", end)
	}
	if got := execute(t, c, s.ID, "cat url"); !strings.Contains(got, "http://127.0.0.1:3129/scripted") {
		t.Errorf("it was told %q", got)
	}
	// One that is not installed is refused; a command that the box lacks fails the turn.
	missing, gone := "acp:opencode", "acp:gone"
	_, err := c.UpdateSession(t.Context(), s.ID, holdfast.UpdateSession{Runtime: &missing})
	refusedWith(t, err, holdfast.KindUnavailable, "not installed", "holdfast runtime install opencode")
	if _, err := c.UpdateSession(t.Context(), s.ID, holdfast.UpdateSession{Runtime: &gone}); err != nil {
		t.Fatal(err)
	}
	typ, end := startTurn(t, c, s.ID, "hello").end()
	if typ != holdfast.EventTurnFailed || end.Kind != holdfast.KindUnavailable || !strings.Contains(end.Hint, "acp.gone.command") {
		t.Errorf("%s %+v", typ, end)
	}
	native := "native"
	if _, err := c.UpdateSession(t.Context(), s.ID, holdfast.UpdateSession{Runtime: &native}); err != nil {
		t.Fatal(err)
	}
	if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, "You have sent 3 messages") {
		t.Errorf("%+v", end)
	}
}

// TestWSR17_ACPOnTheHost: a trusted session runs each real agent on the host, in a lent directory as the directory's
// owner: with the host's paths, its conversation in the session's home, and rules and the model through the server. A
// stored conversation is loaded after the box was stopped and after a restart. When the trust changes, in either
// direction, a new agent starts and gets the conversation so far as text (WS-R17).
func TestWSR17_ACPOnTheHost(t *testing.T) {
	testkit.Long(t)
	states := map[string]string{"claude-code-acp": ".claude/projects/*/*.jsonl", "opencode": ".local/share/opencode/*"}
	for name := range acpAgents {
		t.Run(name, func(t *testing.T) {
			cfg := withRuntimes(t, name)
			cfg.Permissions.Deny = []string{"Bash(rm *)"}
			c, stop := serve(t, cfg)
			slug, tree := siteOf(t, c, cfg, true)
			owner := statOf(t, tree)
			s, err := c.CreateSession(t.Context(), holdfast.CreateSession{
				Runtime: "acp:" + name, Workspace: string(slug), Trust: string(holdfast.Trusted), Mode: string(holdfast.ModeBypassPermissions),
			}, "")
			if err != nil {
				t.Fatal(err)
			}
			says := func(line, want string) {
				t.Helper()
				end := turn(t, c, s.ID, scriptOf("["+command(name, line)+`,{"say":"done"}]`))
				if got := outcome(t, c, s.ID).Content; !strings.HasSuffix(end.Result, "done") || !strings.Contains(got, want) {
					t.Errorf("%s: the tool says %q, want %q; %+v", line, got, want, end)
				}
			}
			knows := func(messages int) {
				t.Helper()
				if end := turn(t, c, s.ID, "and?"); !strings.Contains(end.Result, fmt.Sprintf("You have sent %d messages", messages)) {
					t.Errorf("it says %q, want %d messages", end.Result, messages)
				}
			}
			home := filepath.Join(cfg.Data, "sessions", string(s.ID), "home")
			says(`pwd; id -u; echo made > made; echo "$HOME"`, tree+"\n"+fmt.Sprint(owner.Uid)+"\n"+home)
			if st := statOf(t, filepath.Join(tree, "made")); st.Uid != owner.Uid {
				t.Errorf("its file belongs to %d", st.Uid)
			}
			if found := testkit.Glob(home, states[name]); len(found) == 0 {
				t.Errorf("no conversation in %s", home)
			}
			end := turn(t, c, s.ID, scriptOf("["+command(name, "rm made")+`,{"say":"done"}]`))
			if _, err := os.Lstat(filepath.Join(tree, "made")); err != nil {
				t.Errorf("a denied command ran: %+v, %v", end, err)
			}
			if _, err := c.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
				t.Fatal(err)
			}
			knows(3)
			stop()
			c, _ = serve(t, cfg)
			knows(4)
			for _, trust := range []string{string(holdfast.Untrusted), string(holdfast.Trusted)} {
				if _, err := c.UpdateSession(t.Context(), s.ID, holdfast.UpdateSession{Trust: &trust}); err != nil {
					t.Fatal(err)
				}
				at := map[string]string{"untrusted": "/workspace", "trusted": tree}[trust]
				says("pwd; cat made", at+"\nmade")
			}
			wantTiers(t, c, s.ID, "fresh live own own injected injected")
			if odd := logged[holdfast.Notice](t, c, s.ID, holdfast.EventNotice); len(odd) > 0 {
				t.Errorf("notices %+v", odd)
			}
		})
	}
}

// TestWSR17_ThePortOnTheHostHasAKey: processes of other users can connect to the port at which an agent on the host reaches
// the model. Without the session's key they get no answer.
func TestWSR17_ThePortOnTheHostHasAKey(t *testing.T) {
	testkit.Long(t)
	c, _ := serve(t, withRuntimes(t, "claude-code-acp"))
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{
		Runtime: "acp:claude-code-acp", Trust: string(holdfast.Trusted), Mode: string(holdfast.ModeBypassPermissions),
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, s.ID, scriptOf("["+command("claude-code-acp", `echo "$ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY"`)+`,{"say":"done"}]`))
	url, key, _ := strings.Cut(strings.TrimSpace(outcome(t, c, s.ID).Content), " ")
	for _, try := range []struct {
		key      string
		stranger bool
	}{{"", true}, {"held-by-the-server", true}, {key, false}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", try.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if refused := resp.StatusCode == http.StatusUnauthorized; refused != try.stranger {
			t.Errorf("key %q at %s: status %d", try.key, url, resp.StatusCode)
		}
	}
}
