//go:build linux

package pipetest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// rounds is how often each moment is tried: 1, or PIPE_TEST_ROUNDS.
func rounds(t *testing.T) int {
	t.Helper()
	n := 1
	if v := os.Getenv("PIPE_TEST_ROUNDS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil || n < 1 {
			t.Fatalf("PIPE_TEST_ROUNDS is %q", v)
		}
	}
	return n
}

// TestHZ12_ServerKilledAtFiveMoments: the server dies by SIGKILL in the second of
// four turns; the next one adopts the box, reattaches to the agent where the
// durable offset says, shakes hands again, and every prompt is answered once,
// every effect there once, and the conversation whole.
func TestHZ12_ServerKilledAtFiveMoments(t *testing.T) {
	testkit.Long(t)
	for round := range rounds(t) {
		for _, moment := range []string{"init", "text", "tool", "permission", "result"} {
			t.Run(fmt.Sprintf("%s/%d", moment, round), func(t *testing.T) { killedAt(t, moment) })
		}
	}
}

// TestHZ12_HalfALineNeverReachesTheAgent: the server dies with half of a prompt's
// line sent. The next one is told so, and sends it whole; half a line before it
// would have ended the CLI.
func TestHZ12_HalfALineNeverReachesTheAgent(t *testing.T) { killedAt(t, "half") }

// TestClaudeAsAnOrdinaryUser is the same with the server's user an ordinary one,
// who is the agent's as well.
func TestClaudeAsAnOrdinaryUser(t *testing.T) {
	dir := testkit.BaseDir(t)
	program := filepath.Join(testkit.Claude(t), "claude")
	if err := os.Link(program, filepath.Join(dir, "claude")); err != nil {
		// Another disk. The clone itself may be closed to others.
		raw, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "claude"), raw, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testkit.AsUser(t, "^Test(ClaudeThroughThePipe|HZ12_ServerKilledAtFiveMoments)$", func(c *exec.Cmd) {
		c.Env = append(c.Env, "HOLDFAST_TEST_CLAUDE="+dir)
	})
}

func killedAt(t *testing.T, moment string) {
	turn := func(n int) string {
		return script(
			map[string]any{
				"think": "which file", "say": fmt.Sprintf("I am going to append line %d", n), "chunks": 6, "stall_ms": 50, "tool": "Bash",
				"input": map[string]any{"command": fmt.Sprintf("echo line-%d >> effects; until [ -e go-%d ]; do sleep 0.01; done", n, n)},
			},
			say(fmt.Sprintf("line %d is there", n)),
		)
	}
	// The callback of the second handshake decides in the third turn.
	third := script(bash("echo FORBIDDEN >> effects"), say("line 3 is not"))
	r := newRig(t, "kill", turn(1), turn(2), third, "What do you remember?")
	s := r.serve(moment, 1)
	r.allow(1)
	if moment != "tool" {
		r.allow(2)
	}
	if moment == "tool" {
		testkit.Eventually(t, "the tool runs", func() bool { return strings.Contains(r.effects(), "line-2") })
	} else {
		s.wait("at " + moment)
	}
	s.kill()
	s = r.serve("", 0)
	s.wait("attached")
	r.allow(2)
	s.wait("done")
	s.kill()
	got := r.results()
	if len(got) != 4 {
		t.Fatalf("%d results for 4 prompts", len(got))
	}
	for i, want := range []string{"line 1 is there", "line 2 is there", "line 3 is not", "You have sent 4 messages."} {
		if !strings.HasPrefix(got[i].Result, want) || got[i].IsError || got[i].Subtype != "success" {
			t.Errorf("result %d: %+v, want %q", i, got[i], want)
		}
		if len(got[i].UUIDs) > 0 && !slices.Equal(got[i].UUIDs, []string{r.job.Prompts[i].UUID}) {
			t.Errorf("result %d answers %v, want %s", i, got[i].UUIDs, r.job.Prompts[i].UUID)
		}
	}
	if !strings.Contains(got[3].Result, "I have seen 3 tool results") {
		t.Errorf("the agent remembers: %s", got[3].Result)
	}
	if e := r.effects(); e != "line-1\nline-2\n" {
		t.Errorf("effects %q", e)
	}
	// The agent's note on an answer that was cut goes into the message it answered. While
	// a tool runs and between turns no request is under way.
	most := 0
	if moment != "result" && moment != "tool" {
		most = 1
	}
	r.checkPrefix(most)
}

// allow lets the tool of a turn end. The directory is there with the box.
func (r *rig) allow(n int) {
	r.t.Helper()
	testkit.Eventually(r.t, "the workspace", func() bool { _, err := os.Stat(r.workspace); return err == nil })
	if err := os.WriteFile(filepath.Join(r.workspace, fmt.Sprint("go-", n)), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
}
