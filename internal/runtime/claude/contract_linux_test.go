package claude_test

import (
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

const inBox = "/opt/holdfast"

// realCLI is the pinned Claude Code CLI in local boxes, over a double of the model.
func realCLI(t *testing.T, change func(*claude.Config)) runtimetest.Config {
	t.Helper()
	runtimes := testkit.Runtimes(t, "claude")
	in, err := agentcli.New(agentcli.Config{Dir: runtimes}).Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = model.Close() })
	argv, env := in.At(inBox)
	prog := claude.Program{Argv: argv, Version: in.Version}
	for k, v := range env {
		prog.Env = append(prog.Env, k+"="+v)
	}
	cfg := claude.Config{Program: func(holdfast.Trust) (claude.Program, error) { return prog, nil }, Now: time.Now, Rand: rand.Reader}
	if change != nil {
		change(&cfg)
	}
	points := 6
	if os.Getenv("HOLDFAST_CLAUDE_KILLS") != "" {
		points = 0 // all of them
	}
	return runtimetest.Config{
		InBox: true, Runtime: claude.Name, UID: 1_878_700_000, Points: points,
		New: func(t *testing.T) runtime.Runtime {
			r, err := claude.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		Boxes: func(t *testing.T) (sandbox.Driver, string) {
			home := testkit.BaseDir(t)
			program := testkit.Boxd(t)
			d, err := local.New(local.Config{
				Home: home, Boxd: boxd.File(program), ReadOnly: []string{runtimes + ":" + inBox},
				LimitsMode: sandbox.LimitsBestEffort, Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(home),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d, filepath.Join(home, "s")
		},
		Told: func(text string) bool {
			return slices.ContainsFunc(model.Requests(), func(r double.Request) bool { return strings.Contains(string(r.Body), text) })
		},
		Accepted: func(_ holdfast.SessionID, _ string, conn net.Conn) { testkit.Forward(conn, l.Addr().String()) },
	}
}

// TestRuntime is the contract with the real CLI.
func TestRuntime(t *testing.T) {
	testkit.Long(t)
	runtimetest.Run(t, realCLI(t, nil))
}

// speaker says something in a world, each time on a server of its own, and gives the answer.
func speaker(t *testing.T, cfg runtimetest.Config, w *runtimetest.World) func(text string) string {
	return func(text string) string {
		t.Helper()
		ran := runOne(t, cfg, w, text, t.Context())
		if ran.Err != nil {
			t.Fatal(ran.Err)
		}
		return ran.Result.Text
	}
}

// TestARefusedTranscript: a CLI that does not go on from a transcript, whole as it is,
// is started anew and told the history; what it refused is put aside.
//
// WS-R84, WS-R91, WS-R97, WS-R99, WS-R103, WS-R122, WS-P6, WS-N10, WS-N11.
func TestARefusedTranscript(t *testing.T) {
	cfg := realCLI(t, func(c *claude.Config) {
		found := c.Program
		c.Program = func(holdfast.Trust) (claude.Program, error) {
			p, err := found(holdfast.Untrusted)
			refusing := []string{"/bin/sh", "-c", `case "$*" in *--resume*)
				echo '{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"errors":["No conversation found"]}'
				echo "No conversation found" >&2; exit 1;; esac; exec "$@"`, "sh"}
			p.Argv = append(refusing, p.Argv...)
			return p, err
		}
	})
	w := cfg.NewWorld(t)
	say := speaker(t, cfg, w)
	say("one")
	say("two")
	w.KillBox()
	if got := say("three"); !strings.HasPrefix(got, `You have sent 3 messages. The first was: "one". The last was: "three".`) {
		t.Error(got)
	}
	all := runtimetest.Payloads[holdfast.AgentStarted](w, holdfast.EventAgentStarted)
	got := all[len(all)-1]
	if got.Tier != holdfast.TierInjected || got.Turns != 2 || got.Of != 2 || got.Generation != 2 || !strings.Contains(got.Reason, "No conversation found") {
		t.Errorf("receipt %+v", got)
	}
	aside := runtimetest.Payloads[holdfast.AgentQuarantined](w, holdfast.EventAgentQuarantined)
	if len(aside) != 1 || aside[0].Generation != 1 || aside[0].AgentID == got.AgentID || !strings.HasPrefix(aside[0].Kept, "/home/agent/.claude/quarantine/") {
		t.Fatalf("put aside: %+v", aside)
	}
	if s := w.States(); len(s) != 2 || s[0].Health != holdfast.HealthQuarantined || s[1].Health != holdfast.HealthCurrent || s[1].Turns != 3 {
		t.Errorf("states %+v", s)
	}
	if got := say("four"); !strings.HasPrefix(got, "You have sent 4 messages.") {
		t.Error(got)
	}
	for i, m := range runtimetest.Payloads[holdfast.UserMessage](w, holdfast.EventMessageUser) {
		if want := []string{"one", "two", "three", "four"}[i]; m.Text() != want {
			t.Errorf("message %d in the log is %q, want %q", i+1, m.Text(), want)
		}
	}
}

// TestChildAgentsComeBack: what an agent's children said is in the log as well, and is
// written anew with the rest.
func TestChildAgentsComeBack(t *testing.T) {
	cfg := realCLI(t, nil)
	w := cfg.NewWorld(t)
	say := speaker(t, cfg, w)
	if got := say(`<script>[{"tool":"Task","input":{"description":"d","prompt":"<script>[{\"say\":\"the child was here\"}]</script>","subagent_type":"general-purpose"}},{"say":"done"}]</script>`); got != "done" {
		t.Fatal(got)
	}
	w.KillBox()
	home := filepath.Join(w.Workspace(), "..", "home", ".claude")
	// The last processes of the box may still write to it.
	testkit.Eventually(t, "the home is removed", func() bool { return os.RemoveAll(home) == nil })
	if got := say("two"); !strings.HasPrefix(got, "You have sent 2 messages.") {
		t.Error(got)
	}
	for _, kind := range []string{"*.jsonl", "*.meta.json"} {
		files := testkit.Glob(home, "projects/-workspace/*/subagents/"+kind)
		if len(files) != 1 {
			t.Fatalf("%s: %v", kind, files)
		}
		b, err := os.ReadFile(files[0])
		if err != nil || kind == "*.jsonl" && !strings.Contains(string(b), "the child was here") || kind != "*.jsonl" && !strings.Contains(string(b), "general-purpose") {
			t.Errorf("%s holds %s: %v", files[0], b, err)
		}
	}
}
