package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// claudeRig is a server in a process of its own, whose sessions run the real Claude
// Code CLI in local boxes, and the model that these speak to through the broker.
type claudeRig struct {
	*process
	model *double.Server
	at    string
	more  []string
	// trusted makes session create trusted sessions, which ask nobody.
	trusted bool
}

const claudeModel = "anthropic/claude-sonnet-5-5"

func newClaudeRig(t *testing.T, more ...string) *claudeRig {
	t.Helper()
	runtimes := testkit.Runtimes(t, "claude")
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &claudeRig{model: double.Serve(l, double.Config{}), more: more}
	t.Cleanup(func() { _ = r.model.Close() })
	r.more = append(r.more, "--set", "anthropic.key_file="+keyFile(t))
	data := testkit.BaseDir(t)
	// The trees are what they are to the bit, whoever links to them.
	if exec.Command("cp", "-al", runtimes, filepath.Join(data, "runtimes")).Run() != nil {
		if out, err := exec.Command("cp", "-a", runtimes, filepath.Join(data, "runtimes")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	r.at = "http://" + l.Addr().String()
	r.start(t, data)
	return r
}

// keyFile is a file with the key of a provider. It leaves the environment alone, which tests
// that run beside this one share.
func keyFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, []byte("sk-of-the-server\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// start starts a server on the directory, the first one or the next.
func (r *claudeRig) start(t *testing.T, data string) {
	p := launchOn(t, data, "local", holdfast.Untrusted, append([]string{"--set", "anthropic.url=" + r.at}, r.more...)...)
	r.process = p
	t.Cleanup(func() {
		if r.process == p {
			r.sweep(t)
		}
	})
}

// sweep ends the server and the boxes that it has.
func (r *claudeRig) sweep(t *testing.T) {
	p := r.process
	list, err := p.Containers(context.WithoutCancel(t.Context()))
	if err == nil && len(list) > 0 {
		_, err = p.StopContainers(context.WithoutCancel(t.Context()), holdfast.StopContainers{All: true})
	}
	if err != nil {
		t.Error(err)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

// claudeSession is one that works with the CLI.
type claudeSession struct {
	*claudeRig
	t  *testing.T
	id holdfast.SessionID
}

func (r *claudeRig) session(t *testing.T) *claudeSession {
	t.Helper()
	req := holdfast.CreateSession{Runtime: "claude", Model: claudeModel}
	if r.trusted {
		req.Trust, req.Mode = string(holdfast.Trusted), string(holdfast.ModeBypassPermissions)
	}
	s, err := r.CreateSession(t.Context(), req, "")
	if err != nil {
		t.Fatal(err)
	}
	return &claudeSession{r, t, s.ID}
}

func (s *claudeSession) send(text string) holdfast.TurnID {
	s.t.Helper()
	sent, err := s.Send(s.t.Context(), s.id, holdfast.SendMessage{Text: text})
	if err != nil {
		s.t.Fatal(err)
	}
	return sent.Turn.ID
}

// until follows the session's log to an event; its deltas count.
func (s *claudeSession) until(what string, is func(holdfast.Event) bool) holdfast.Event {
	s.t.Helper()
	return s.within(90*time.Second, what, is)
}

func (s *claudeSession) within(limit time.Duration, what string, is func(holdfast.Event) bool) holdfast.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	var seen []string
	for ev, err := range s.Follow(ctx, s.id, 0) {
		if err != nil {
			s.t.Fatalf("%s: %v; the last events:\n%s", what, err, strings.Join(seen[max(0, len(seen)-12):], "\n"))
		}
		seen = append(seen, fmt.Sprintf("%d %s %s %.200s", ev.Seq, ev.Time.Format("05.000"), ev.Type, ev.Data))
		if is(ev) {
			return ev
		}
	}
	s.t.Fatalf("there was no %s", what)
	return holdfast.Event{}
}

// end waits for the end of a turn.
func (s *claudeSession) end(turn holdfast.TurnID) (holdfast.EventType, holdfast.TurnEnded) {
	s.t.Helper()
	return s.endWithin(turn, 90*time.Second)
}

func (s *claudeSession) endWithin(turn holdfast.TurnID, limit time.Duration) (holdfast.EventType, holdfast.TurnEnded) {
	s.t.Helper()
	ev := s.within(limit, "end of the turn", func(ev holdfast.Event) bool { return ev.Turn == turn && ev.EndsTurn() })
	var d holdfast.TurnEnded
	if err := ev.Decode(&d); err != nil {
		s.t.Fatal(err)
	}
	return ev.Type, d
}

// say is a turn that completes.
func (s *claudeSession) say(text string) string {
	s.t.Helper()
	typ, d := s.end(s.send(text))
	if typ != holdfast.EventTurnCompleted {
		s.t.Fatalf("%s: %s", typ, d.Message)
	}
	return d.Result
}

func eventsOf[T any](s *claudeSession, typ holdfast.EventType) []T {
	s.t.Helper()
	var out []T
	for ev, err := range s.AllEvents(s.t.Context(), s.id, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		if ev.Type == typ {
			var v T
			if err := ev.Decode(&v); err != nil {
				s.t.Fatal(err)
			}
			out = append(out, v)
		}
	}
	return out
}

func (s *claudeSession) receipt() holdfast.AgentStarted {
	s.t.Helper()
	all := eventsOf[holdfast.AgentStarted](s, holdfast.EventAgentStarted)
	if len(all) == 0 {
		s.t.Fatal("no agent was started")
	}
	return all[len(all)-1]
}

func (s *claudeSession) dir(name ...string) string {
	return filepath.Join(append([]string{s.data, "sessions", string(s.id)}, name...)...)
}

func (s *claudeSession) effects() string {
	b, _ := os.ReadFile(s.dir("workspace", "effects"))
	return string(b)
}

// allow lets the tool of a turn go on.
func (s *claudeSession) allow(turn int) {
	s.t.Helper()
	if err := os.MkdirAll(s.dir("workspace"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.dir("workspace", fmt.Sprint("go-", turn)), nil, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// cli is the process of the session's agent on this host.
func (s *claudeSession) cli() int {
	s.t.Helper()
	id := s.receipt().AgentID
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if bytes.Contains(line, []byte("stream-json")) && bytes.Contains(line, []byte(id)) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				s.t.Fatal(err)
			}
			return pid
		}
	}
	s.t.Fatalf("agent %s does not run", id)
	return 0
}

func (s *claudeSession) boxd() int {
	s.t.Helper()
	list, err := s.Containers(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range list {
		if c.Session == s.id && c.PID > 1 {
			return c.PID
		}
	}
	s.t.Fatal("the session has no box")
	return 0
}

func (s *claudeSession) stopBox() {
	s.t.Helper()
	if _, err := s.StopContainers(s.t.Context(), holdfast.StopContainers{IDs: []string{string(s.id.Box())}}); err != nil {
		s.t.Fatal(err)
	}
}

// asked is the newest request that the model was sent with a text in it.
func (s *claudeSession) asked(text string) string {
	s.t.Helper()
	for _, req := range slices.Backward(s.model.Requests()) {
		if body := string(req.Body); strings.Contains(body, text) && strings.HasPrefix(req.Path, "/v1/messages") {
			return body
		}
	}
	s.t.Fatalf("the model was never asked %q", text)
	return ""
}

var memorySentence = regexp.MustCompile(`^You have sent (\d+) messages\. The first was: "(.*)"\. The last was: "(.*)"\. I have seen (\d+) tool results\.$`)

// work is a turn in which each of five moments can be met.
func work(n int) string {
	return fmt.Sprintf(`Work %d: <script>[{"think":"which file","say":"I am going to append line %d","chunks":6,"stall_ms":300,`+
		`"tool":"Bash","input":{"command":"echo line-%d >> effects; until [ -e go-%d ]; do sleep 0.02; done"}},`+
		`{"delay_ms":300,"say":"line %d is there"}]</script>`, n, n, n, n, n)
}

// claudeKills is how often each moment is met: 1, or HOLDFAST_CLAUDE_KILLS.
func claudeKills(t *testing.T) int {
	t.Helper()
	return numberFrom(t, "HOLDFAST_CLAUDE_KILLS", 1)
}

var claudeMoments = []string{"init", "text", "tool", "tool-result", "result"}

// await waits until the turn has come to a moment.
func (s *claudeSession) await(moment string, turn holdfast.TurnID, n int) {
	s.t.Helper()
	if moment == "tool" {
		testkit.Eventually(s.t, "the tool runs", func() bool { return strings.Contains(s.effects(), fmt.Sprint("line-", n)) })
		return
	}
	typ := map[string]holdfast.EventType{
		"init": holdfast.EventAgentStarted, "text": holdfast.DeltaText, "tool-result": holdfast.EventToolFinished, "result": holdfast.EventTurnCompleted,
	}[moment]
	s.until(moment, func(ev holdfast.Event) bool { return ev.Type == typ && ev.Turn == turn })
}

// TestHZ12_ClaudeSurvivesKills: with the real CLI, at five moments of turn 2, the CLI,
// boxd or the server dies by SIGKILL. The next turn's request holds every turn that
// completed, its receipt says how the agent was come by and that nothing is missing,
// and no effect is there twice.
func TestHZ12_ClaudeSurvivesKills(t *testing.T) {
	testkit.Long(t)
	newClaudeRig(t).kills(t)
}

// TestHZ12_TrustedClaudeSurvivesKills: the same on the host, in trusted sessions.
func TestHZ12_TrustedClaudeSurvivesKills(t *testing.T) {
	testkit.Long(t)
	r := newClaudeRig(t)
	r.trusted = true
	r.kills(t)
}

func (r *claudeRig) kills(t *testing.T) {
	for round := range claudeKills(t) {
		// Turns of other sessions go on while one loses its agent or its box.
		t.Run(fmt.Sprint("in the box/", round), func(t *testing.T) {
			for _, victim := range []string{"cli", "boxd"} {
				for _, moment := range claudeMoments {
					t.Run(victim+"/"+moment, func(t *testing.T) {
						t.Parallel()
						r.session(t).killed(victim, moment)
					})
				}
			}
		})
		for _, moment := range claudeMoments {
			t.Run(fmt.Sprint("server/", moment, "/", round), func(t *testing.T) { r.session(t).killed("server", moment) })
		}
	}
}

// killed is one cell of the matrix.
func (s *claudeSession) killed(victim, moment string) {
	t := s.t
	s.allow(1)
	if got := s.say(work(1)); got != "line 1 is there" {
		t.Fatalf("turn 1 said %q", got)
	}
	if moment != "tool" {
		s.allow(2)
	}
	turn := s.send(work(2))
	s.await(moment, turn, 2)
	s.kill(victim)
	s.allow(2)
	typ, end := s.end(turn)
	completed := 1
	if typ == holdfast.EventTurnCompleted {
		completed++
		if end.Result != "line 2 is there" {
			t.Errorf("turn 2 said %q", end.Result)
		}
	}
	if must := victim == "server" || moment == "result"; must && completed != 2 {
		t.Errorf("turn 2 ended with %s: %s", typ, end.Message)
	}
	last := "Memory of " + string(s.id) + "?"
	m := memorySentence.FindStringSubmatch(s.say(last))
	if m == nil {
		t.Fatal("turn 3 remembers nothing")
	}
	// A prompt that was cut off is known as well; one that was sent again, twice.
	if n, _ := strconv.Atoi(m[1]); n < completed+1 || n > 4 || victim == "server" && n != 3 || !strings.HasPrefix(m[2], "Work 1:") || m[3] != last {
		t.Errorf("turn 3 remembers %q after %d completed turns", m[0], completed)
	}
	request := s.asked(last)
	for n := 1; n <= completed; n++ {
		for _, want := range []string{fmt.Sprint("Work ", n, ":"), fmt.Sprintf("line %d is there", n), fmt.Sprintf("I am going to append line %d", n)} {
			if !strings.Contains(request, want) {
				t.Errorf("the request of turn 3 misses %q", want)
			}
		}
	}
	got := s.receipt()
	if got.Turns != int64(completed) || got.Of != int64(completed) || got.Truncated {
		t.Errorf("the receipt says %d of %d turns, there are %d: %+v", got.Turns, got.Of, completed, got)
	}
	tiers := []holdfast.Tier{holdfast.TierOwn, holdfast.TierRebuilt}
	if victim == "server" {
		tiers = []holdfast.Tier{holdfast.TierLive}
	} else if completed == 2 && moment != "result" {
		tiers = append(tiers, holdfast.TierLive) // of the agent that ended turn 2
	}
	if !slices.Contains(tiers, got.Tier) {
		t.Errorf("the receipt says %s (%s), want one of %v", got.Tier, got.Reason, tiers)
	}
	if strings.Count(s.effects(), "line-1") != 1 || strings.Count(s.effects(), "line-2") > 1 || completed == 2 && !strings.Contains(s.effects(), "line-2") {
		t.Errorf("effects %q", s.effects())
	}
	for _, f := range eventsOf[holdfast.ToolFinished](s, holdfast.EventToolFinished) {
		if f.Outcome == holdfast.ExitOK && strings.Count(s.effects(), "line-") < 1 {
			t.Errorf("an acknowledged effect is not there: %+v", f)
		}
	}
	t.Logf("%s at %s: %s, %s (%s), %d of %d turns", victim, moment, typ, got.Tier, got.Reason, got.Turns, got.Of)
}

func (s *claudeSession) kill(victim string) {
	t := s.t
	t.Helper()
	switch victim {
	case "cli":
		if err := syscall.Kill(s.cli(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	case "boxd":
		if err := syscall.Kill(s.boxd(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	case "server":
		s.signal(syscall.SIGKILL)
		s.wait()
		s.start(s.process.t, s.data)
	}
}
