package app_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// boxds are the boxd processes of a data directory, with boxes or ready for one.
func boxds(t *testing.T, data string) (out []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if exe, err := os.Readlink(l); err == nil && strings.HasPrefix(exe, data+"/") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(l)))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pid)
		}
	}
	return out
}

// boxOf is the boxd of a session's box.
func boxOf(t *testing.T, c *client.Client, id holdfast.SessionID) int {
	t.Helper()
	list, err := c.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(b holdfast.Container) bool { return b.Session == id && b.PID > 0 })
	if i < 0 {
		t.Fatalf("session %s has no box: %+v", id, list)
	}
	return list[i].PID
}

// provider is a model's provider that counts how often it was asked, and shown the key.
type provider struct {
	*double.Server
	url          string
	asked, shown atomic.Int64
}

func newProvider(t *testing.T, key string) *provider {
	t.Helper()
	t.Setenv("ANTHROPIC_API_KEY", key)
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{Server: double.Serve(l, double.Config{})}
	t.Cleanup(func() { _ = p.Close() })
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		if r.Header.Get("X-Api-Key") == key {
			p.shown.Add(1)
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	p.url = front.URL
	return p
}

// TestASH6_PooledOrNot: with boxes that stand ready and without, a session has
// the same paths (ASH-2) and its own environment (ASH-4) in its first box and in
// the one after a restart, and the agent knows the earlier turns and files.
//
// WS-R38.
func TestASH6_PooledOrNot(t *testing.T) {
	for _, prewarm := range []int{0, 2} {
		t.Run(fmt.Sprintf("pool of %d", prewarm), func(t *testing.T) {
			cfg := settings(t, "local")
			cfg.Prewarm = prewarm
			c, stop := serve(t, cfg)
			testkit.Eventually(t, "the pool is full", func() bool { return len(boxds(t, cfg.Data)) == prewarm })
			ready := boxds(t, cfg.Data)
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Env: map[string]string{"PROJECT": "apollo"}}, "")
			if err != nil {
				t.Fatal(err)
			}
			const look = `pwd; echo $HOME $PROJECT`
			const want = "/workspace\n/home/agent apollo\n"
			if got := execute(t, c, ses.ID, look); got != want {
				t.Errorf("the first box: %q", got)
			}
			if pid := boxOf(t, c, ses.ID); slices.Contains(ready, pid) != (prewarm > 0) {
				t.Errorf("the first box is process %d, ready stood %v", pid, ready)
			}
			turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"echo $PROJECT >> f; pwd >> f"}},{"say":"noted"}]</script>`)
			stop()
			c, _ = serve(t, cfg)
			if got := execute(t, c, ses.ID, look); got != want {
				t.Errorf("the box after a restart: %q", got)
			}
			if got := execute(t, c, ses.ID, "cat f"); got != "apollo\n/workspace\n" {
				t.Errorf("f is %q", got)
			}
			end := turn(t, c, ses.ID, "What do you know?")
			if !strings.HasPrefix(end.Result, "You have sent 2 messages.") || !strings.Contains(end.Result, "I have seen 1 tool results.") {
				t.Errorf("memory: %q", end.Result)
			}
			if now, err := c.Session(t.Context(), ses.ID); err != nil || now.ID != ses.ID || now.Env["PROJECT"] != "***" {
				t.Errorf("%+v, %v", now, err)
			}
		})
	}
}

// TestASH4_EffectiveInEveryRun: in a box that stood ready or not, and in the one after a
// stop and a restart, a session has its environment, and its agent's instructions, model,
// mode and rules; its provider is shown the server's key.
func TestASH4_EffectiveInEveryRun(t *testing.T) {
	for _, runtime := range []string{"native", "claude"} {
		for _, prewarm := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s, pool of %d", runtime, prewarm), func(t *testing.T) { wantEffective(t, runtime, prewarm) })
		}
	}
}

func wantEffective(t *testing.T, runtime string, prewarm int) {
	cfg := claudeSettings(t)
	p := newProvider(t, "sk-ant-of-the-server")
	cfg.Models.Anthropic.URL, cfg.Prewarm, cfg.OnShutdown = p.url, prewarm, config.ShutdownStop
	c, stop := serve(t, cfg)
	if _, err := c.DeployAgent(t.Context(), "pilot", tarOf(
		t, entry{name: "CLAUDE.md", data: "You fly apollo."},
		entry{name: "holdfast.yaml", data: "runtime: " + runtime + "\nmodel: anthropic/claude-of-the-agent\nmode: dontAsk\n" +
			"permissions:\n  allow: [\"Bash(echo *)\"]\n  deny: [\"Bash(touch *)\"]\n"},
	)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the pool is full", func() bool { return len(boxds(t, cfg.Data)) == prewarm })
	ready := boxds(t, cfg.Data)
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "pilot", Env: map[string]string{"PROJECT": "apollo"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for run := range 2 {
		before := len(p.Requests())
		turn(t, c, s.ID, `<script>[{"tools":[{"tool":"Bash","input":{"command":"echo for $PROJECT"}},`+
			`{"tool":"Bash","input":{"command":"touch g"}},{"tool":"Write","input":{"file_path":"/workspace/g","content":"x"}}]},{"say":"done"}]</script>`)
		said := logged[holdfast.ToolFinished](t, c, s.ID, holdfast.EventToolFinished)
		if len(said) != run+1 || strings.TrimSpace(said[run].Content) != "for apollo" {
			t.Errorf("run %d: the tool said %+v", run, said)
		}
		denied := logged[holdfast.ToolDecision](t, c, s.ID, holdfast.EventToolDenied)
		if len(denied) != 2*(run+1) || denied[2*run].Rule != "Bash(touch *)" || denied[2*run+1].By != "mode" || !strings.Contains(denied[2*run+1].Reason, "dontAsk") {
			t.Errorf("run %d: denied %+v", run, denied)
		}
		for i, req := range p.Requests()[before:] {
			for _, want := range []string{"You fly apollo.", `"model":"claude-of-the-agent"`} {
				if !strings.Contains(string(req.Body), want) {
					t.Errorf("run %d: request %d misses %s", run, i, want)
				}
			}
		}
		if n := len(p.Requests()) - before; n < 2 || p.shown.Load() != p.asked.Load() {
			t.Errorf("run %d: %d requests; asked %d times, shown the key %d times", run, n, p.asked.Load(), p.shown.Load())
		}
		pid := boxOf(t, c, s.ID)
		if pooled := slices.Contains(ready, pid); pooled != (run == 0 && prewarm > 0) || pid == last {
			t.Errorf("run %d: the box is process %d, before it %d, ready stood %v", run, pid, last, ready)
		}
		last = pid
		stop()
		c, stop = serve(t, cfg)
	}
}

// TestHZ6_SettingsSilenceNothingOfClaude: files that an agent can write allow all tools,
// switch hooks off and bring hooks of their own. The server decides all the same, about
// tools that only read as well, and no hook of theirs runs.
func TestHZ6_SettingsSilenceNothingOfClaude(t *testing.T) {
	cfg := claudeSettings(t)
	p := newProvider(t, "sk-ant-of-the-server")
	cfg.Models.Anthropic.URL, cfg.DefaultModel = p.url, "anthropic/claude-sonnet-5-5"
	cfg.Permissions.Deny = []string{"Bash(touch *)", "Read(/workspace/FORBIDDEN)"}
	c, _ := serve(t, cfg)
	for _, off := range []string{"false", "true"} {
		s := claudeSession(t, c, nil)
		execute(t, c, s.ID, `off=`+off+`; echo canary-7f3a > FORBIDDEN
mkdir -p .claude /home/agent/.claude
for f in .claude/settings.json .claude/settings.local.json /home/agent/.claude/settings.json; do
	echo '{"permissions": {"allow": ["Bash", "Read"], "defaultMode": "bypassPermissions"}, "disableAllHooks": '$off',
		"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "echo hook >> /workspace/f"}]}]}}' > $f
done`)
		end := turn(t, c, s.ID, `<script>[{"tools":[{"tool":"Bash","input":{"command":"touch g"}},{"tool":"Read","input":{"file_path":"/workspace/FORBIDDEN"}},`+
			`{"tool":"Bash","input":{"command":"echo allowed >> f"}}]},{"say":"done"}]</script>`)
		if got := effects(cfg, s.ID); end.Result != "done" || got != "allowed\n" {
			t.Errorf("with disableAllHooks %s: %+v, effects %q", off, end, got)
		}
		denied := logged[holdfast.ToolDecision](t, c, s.ID, holdfast.EventToolDenied)
		if len(denied) != 2 || denied[0].Rule != "Bash(touch *)" || denied[1].Rule != "Read(/workspace/FORBIDDEN)" {
			t.Errorf("denied %+v", denied)
		}
	}
	for _, req := range p.Requests() {
		if strings.Contains(string(req.Body), "canary-7f3a") {
			t.Error("the model was shown the forbidden file")
		}
	}
}
