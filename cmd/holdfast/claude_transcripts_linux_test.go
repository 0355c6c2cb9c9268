package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// damages are what may become of a transcript, and what the receipt says of it.
var damages = map[string]struct {
	do   func([]byte) []byte
	says string
}{
	"half":        {func(b []byte) []byte { return b[:len(b)/2] }, "is damaged"},
	"half a line": {func(b []byte) []byte { return b[:len(b)-5] }, "has no newline"},
	"NULs":        {func(b []byte) []byte { return make([]byte, len(b)) }, "is damaged"},
	"emptied":     {func([]byte) []byte { return []byte{} }, "is empty"},
	"deleted":     {func([]byte) []byte { return nil }, "is gone"},
	"a bad line": {func(b []byte) []byte {
		lines := bytes.SplitAfter(b, []byte{'\n'})
		lines[len(lines)/2] = []byte("{\"type\":\"user\",\n")
		return bytes.Join(lines, nil)
	}, "is not a valid entry"},
	"other words": {func(b []byte) []byte {
		return bytes.ReplaceAll(b, []byte("turn one is done"), []byte("I owe you 1000"))
	}, "differs from what the session's log recorded"},
	"older": {func(b []byte) []byte {
		return b[:bytes.Index(b, []byte(`"tool_result"`))][:bytes.LastIndexByte(b[:bytes.Index(b, []byte(`"tool_result"`))], '\n')+1]
	}, "lacks"},
}

// TestHZ12_ClaudeBrokenTranscripts: whatever becomes of the transcript in the box, the
// next turn knows every turn, from the log; the receipt says so, and what was broken
// is kept.
func TestHZ12_ClaudeBrokenTranscripts(t *testing.T) {
	testkit.Long(t)
	r := newClaudeRig(t)
	t.Run("all", func(t *testing.T) {
		for name, d := range damages {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := r.session(t)
				s.talkTwice()
				file := s.transcript()
				whole, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				broken := d.do(bytes.Clone(whole))
				if bytes.Equal(broken, whole) {
					t.Fatal("nothing is broken")
				}
				if broken == nil {
					err = os.Remove(file)
				} else {
					err = os.WriteFile(file, broken, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				s.goesOn(holdfast.TierRebuilt, d.says)
				s.kept(broken)
				// What was written anew is as good as what the agent wrote.
				s.stopBox()
				if got := s.say("four"); !strings.HasPrefix(got, `You have sent 4 messages. The first was: "one". The last was: "four".`) {
					t.Errorf("turn 4 said %q", got)
				}
				if got := s.receipt(); got.Tier != holdfast.TierOwn || got.Turns != 3 {
					t.Errorf("receipt of turn 4: %+v", got)
				}
			})
		}
		t.Run("nothing", func(t *testing.T) {
			t.Parallel()
			s := r.session(t)
			s.talkTwice()
			s.goesOn(holdfast.TierOwn, "no process")
		})
		t.Run("the whole home", func(t *testing.T) {
			t.Parallel()
			s := r.session(t)
			s.talkTwice()
			if err := os.RemoveAll(s.dir("home", ".claude")); err != nil {
				t.Fatal(err)
			}
			s.goesOn(holdfast.TierRebuilt, "is gone")
		})
	})
}

func (s *claudeSession) transcript() string {
	return s.dir("home", ".claude", "projects", "-workspace", s.receipt().AgentID+".jsonl")
}

// talkTwice has two turns, and ends the box.
func (s *claudeSession) talkTwice() {
	s.t.Helper()
	s.say("one")
	if got := s.say(`<script>[{"think":"hm","tool":"Bash","input":{"command":"echo line-2 >> effects"}},{"say":"turn one is done"}]</script>`); got != "turn one is done" {
		s.t.Fatalf("turn 2 said %q", got)
	}
	s.stopBox()
}

// goesOn has a third turn, which knows everything.
func (s *claudeSession) goesOn(tier holdfast.Tier, why string) {
	s.t.Helper()
	last := "Memory of " + string(s.id) + "?"
	const want = `You have sent 3 messages. The first was: "one".`
	if got := s.say(last); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "I have seen 1 tool results.") {
		s.t.Errorf("turn 3 said %q", got)
	}
	request := s.asked(last)
	for _, want := range []string{"You have sent 1 messages", "line-2 >> effects", "turn one is done"} {
		if !strings.Contains(request, want) {
			s.t.Errorf("the request of turn 3 misses %q", want)
		}
	}
	got := s.receipt()
	if got.Tier != tier || got.Turns != 2 || got.Of != 2 || got.Generation != 1 || !strings.Contains(got.Reason, why) {
		s.t.Errorf("receipt %+v, want %s because %q", got, tier, why)
	}
	if s.effects() != "line-2\n" {
		s.t.Errorf("effects %q", s.effects())
	}
}

// kept: what was broken lies in its own place, as it was, and the log says where.
func (s *claudeSession) kept(broken []byte) {
	s.t.Helper()
	aside := eventsOf[holdfast.AgentQuarantined](s, holdfast.EventAgentQuarantined)
	if len(aside) != 1 || (aside[0].Kept == "") != (broken == nil) {
		s.t.Fatalf("put aside: %+v", aside)
	}
	if broken == nil {
		return
	}
	below := strings.TrimPrefix(aside[0].Kept, "/home/agent/")
	got, err := os.ReadFile(s.dir("home", below, aside[0].AgentID+".jsonl"))
	if err != nil || !bytes.Equal(got, broken) {
		s.t.Errorf("%d bytes of %d are kept: %v", len(got), len(broken), err)
	}
	if _, err := os.Stat(filepath.Dir(s.transcript())); errors.Is(err, fs.ErrNotExist) {
		s.t.Error(err)
	}
}

// TestSwitchingKeepsTheConversation: a session changes its runtime between turns, there
// and back. Each one knows every turn once; the CLI goes on from what it kept of itself
// and is told only what it missed.
func TestSwitchingKeepsTheConversation(t *testing.T) {
	s := newClaudeRig(t).session(t)
	runtime := "claude"
	say := func(n int, on, text, want string) {
		t.Helper()
		if on != runtime {
			runtime = on
			if _, err := s.UpdateSession(t.Context(), s.id, holdfast.UpdateSession{Runtime: &on}); err != nil {
				t.Fatal(err)
			}
		}
		if want == "" {
			want = fmt.Sprintf(`You have sent %d messages. The first was: "one". The last was: "%s".`, n, text)
		}
		if got := s.say(text); !strings.HasPrefix(got, want) {
			t.Errorf("turn %d on %s said %q, want %q", n, on, got, want)
		}
	}
	tool := func(n int) string {
		return fmt.Sprintf(`<script>[{"say":"now","tool":"Bash","input":{"command":"echo line-%d >> effects"}},{"say":"line %d is there"}]</script>`, n, n)
	}
	tier := func(want holdfast.Tier, turns int64) {
		t.Helper()
		if got := s.receipt(); got.Tier != want || got.Turns != turns || got.Of != turns || got.Truncated {
			t.Errorf("receipt %+v, want %s with %d turns", got, want, turns)
		}
	}
	say(1, "native", "one", "")
	say(2, "native", tool(2), "line 2 is there")
	say(3, "claude", "three", "")
	tier(holdfast.TierInjected, 2)
	say(4, "claude", tool(4), "line 4 is there")
	tier(holdfast.TierLive, 3)
	say(5, "native", "five", "")
	say(6, "claude", "six", "")
	tier(holdfast.TierOwn, 5)
	say(7, "native", tool(7), "line 7 is there")
	s.stopBox()
	say(8, "claude", "eight", "")
	tier(holdfast.TierOwn, 7)
	// What the user said stays as it was said.
	for _, m := range eventsOf[holdfast.UserMessage](s, holdfast.EventMessageUser) {
		if strings.Contains(m.Text(), "conversation_history") {
			t.Errorf("the log holds %q", m.Text())
		}
	}
	if got := s.effects(); got != "line-2\nline-4\nline-7\n" {
		t.Errorf("effects %q", got)
	}
	agents, err := s.SessionAgents(t.Context(), s.id)
	if err != nil || len(agents) != 1 || agents[0].Turns != 8 {
		t.Errorf("agents %+v: %v", agents, err)
	}
}

// TestClaudeIdleBoxStops: an agent that waits for its next turn keeps no box: it is
// stopped when it was idle for long enough, or when another one needs its place, and the
// agent comes back with everything.
//
// DOC-5, DOC-35, WS-R56, WS-R58, WS-R76.
func TestClaudeIdleBoxStops(t *testing.T) {
	r := newClaudeRig(t, "--set", "freeze_after=100ms", "--set", "stop_after=1s", "--set", "max_boxes=1")
	s, other := r.session(t), r.session(t)
	s.say("one")
	other.say("one") // in the only place
	s.say("two")
	ended := func(s *claudeSession) []holdfast.BoxEnded {
		return eventsOf[holdfast.BoxEnded](s, holdfast.EventBoxStopped)
	}
	testkit.Eventually(t, "the idle stop", func() bool { return len(ended(s)) == 2 })
	if got := s.say("three"); got != `You have sent 3 messages. The first was: "one". The last was: "three". I have seen 0 tool results.` {
		t.Errorf("turn 3 said %q", got)
	}
	if got := s.receipt(); got.Tier != holdfast.TierOwn || got.Turns != 2 {
		t.Errorf("receipt %+v", got)
	}
	for i, want := range []string{"evicted", "idle"} {
		if e := ended(s)[i]; !strings.Contains(e.Reason, want) || len(e.Processes) != 0 {
			t.Errorf("stop %d: %+v", i, e)
		}
	}
}
