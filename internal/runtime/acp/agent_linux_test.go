//go:build linux

package acp_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/acp"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// rig is a session of the scripted agent in a real box.
type rig struct {
	*runtimetest.World
	t *testing.T
	r *acp.Runtime
	// workspace is the path at which the agent has its workspace.
	workspace string
}

// scriptedAgent makes one; change may alter its profile.
func scriptedAgent(t *testing.T, change func(*acp.Config)) *rig {
	t.Helper()
	dir := testkit.BaseDir(t)
	script, err := os.ReadFile(filepath.Join("testdata", "agent.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.sh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := acp.Config{
		Profile: acp.Profile{
			Name: "scripted", State: ".scripted", Env: map[string]string{"MODEL": "{model}"},
			Find: func(holdfast.Trust) (acp.Program, error) {
				return acp.Program{Argv: []string{"/bin/bash", "/opt/holdfast/agent.sh"}, Version: "1"}, nil
			},
			Modes: map[holdfast.Mode]string{holdfast.ModePlan: "plan", "": "ask"},
		},
		Now: time.Now, Grace: 3 * time.Second, Handshake: 10 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	r, err := acp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := runtimetest.Config{InBox: true, Runtime: r.Name(), Boxes: boxes(dir), UID: suiteUID}.NewWorld(t)
	return &rig{World: w, t: t, r: r, workspace: runtime.Box.Workspace}
}

// try runs a turn to whatever end.
func (r *rig) try(text string) runtimetest.Ran {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	h := r.NewHost()
	defer h.Close()
	id := r.Begin(text)
	turn := r.Turn(id, false)
	turn.Place.Workspace = r.workspace
	ran := h.Run(ctx, r.r, turn)
	switch {
	case ran.Err != nil:
		r.End(id, holdfast.EventTurnFailed)
	default:
		r.Complete(id, ran.Result)
	}
	r.CheckAnswered()
	return ran
}

// say runs a turn to its good end.
func (r *rig) say(text, want string) {
	r.t.Helper()
	if ran := r.try(text); ran.Err != nil || ran.Result.Text != want {
		r.t.Fatalf("%s: said %q, want %q: %v", text, ran.Result.Text, want, ran.Err)
	}
}

func (r *rig) file(name string) string {
	b, err := os.ReadFile(filepath.Join(r.Workspace(), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) write(name string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.Workspace(), name), nil, 0o666); err != nil {
		r.t.Fatal(err)
	}
}

// receipts are the tiers that were taken.
func (r *rig) receipts() []holdfast.AgentStarted {
	return runtimetest.Payloads[holdfast.AgentStarted](r.World, holdfast.EventAgentStarted)
}

func (r *rig) tiers() string {
	var out []string
	for _, s := range r.receipts() {
		out = append(out, string(s.Tier))
	}
	return strings.Join(out, " ")
}

func (r *rig) notices(code string) (n int) {
	for _, x := range runtimetest.Payloads[holdfast.Notice](r.World, holdfast.EventNotice) {
		if x.Code == code {
			n++
		}
	}
	return n
}

// TestTurnsOfOneProcess: one process serves all turns; the receipt of each says what
// it knows.
func TestTurnsOfOneProcess(t *testing.T) {
	r := scriptedAgent(t, nil)
	r.say("one", "prompt 1")
	r.say("two", "prompt 2")
	r.say("PLAN", "done")
	if got := r.tiers(); got != "fresh live live" {
		t.Errorf("tiers %s", got)
	}
	last := r.receipts()[2]
	if last.Turns != 2 || last.Of != 2 || last.Version != "7.1" || last.AgentID != "sess" {
		t.Errorf("%+v", last)
	}
	if n := strings.Count(r.file("starts"), "start"); n != 1 {
		t.Errorf("%d processes", n)
	}
	if s := r.States(); len(s) != 1 || s[0].Turns != 3 || s[0].Upto == 0 || s[0].Taken == 0 {
		t.Errorf("%+v", s)
	}
	if r.notices("agent.plan") != 1 {
		t.Error("the plan was not told")
	}
	if strings.Contains(r.file("prompts"), "conversation_history") || !strings.Contains(r.file("prompts"), "Be brief.") {
		t.Errorf("prompts %s", r.file("prompts"))
	}
}

// TestASH13_UnknownKindsArePassedOn: an update of a kind that this server does not know is
// in the log as the agent sent it, and a flood of them ends.
func TestASH13_UnknownKindsArePassedOn(t *testing.T) {
	r := scriptedAgent(t, nil)
	r.say("FUTURE", "fine")
	told := runtimetest.Payloads[holdfast.Notice](r.World, holdfast.EventNotice)
	if len(told) != 10 || told[0].Code != "agent.unknown" || !strings.HasSuffix(told[0].Text, `"update":{"sessionUpdate":"from_the_future","n":1}}`) {
		t.Errorf("%d notices: %+v", len(told), told)
	}
}

// TestBadAgents: whatever an agent says, the turn goes on or fails cleanly, and the
// session can be used.
func TestBadAgents(t *testing.T) {
	for word, want := range map[string]string{
		"GARBAGE": "fine", "METHODS": "fine", "ORDER": "mine", "UNASKED": "done", "ALWAYS": "done", "TWICE": "done", "LATE": "done", "OPEN": "done", "TOOL": "done",
		"DIESONCE": "again", "FLOOD": "", "HUGE": "", "HALF": "", "DIES": "", "MIDTOOL": "", "ERROR": "",
	} {
		t.Run(word, func(t *testing.T) {
			r := scriptedAgent(t, nil)
			r.say("before", "prompt 1")
			ran := r.try(word)
			switch {
			case want == "" && !holdfast.IsKind(ran.Err, holdfast.KindUnavailable):
				t.Errorf("ended with %v, %q", ran.Err, ran.Result.Text)
			case want == "" && holdfast.HintOf(ran.Err) == "":
				t.Errorf("no hint: %v", ran.Err)
			case want != "" && (ran.Err != nil || ran.Result.Text != want):
				t.Errorf("said %q: %v", ran.Result.Text, ran.Err)
			}
			if ran := r.try("after"); ran.Err != nil || !strings.HasPrefix(ran.Result.Text, "prompt ") {
				t.Errorf("afterwards: %q %v", ran.Result.Text, ran.Err)
			}
			r.checkWord(word)
		})
	}
}

// checkWord looks at what a word leaves behind.
func (r *rig) checkWord(word string) {
	r.t.Helper()
	finished := runtimetest.Payloads[holdfast.ToolFinished](r.World, holdfast.EventToolFinished)
	switch word {
	case "GARBAGE":
		if r.notices("agent.garbage") != 1 {
			r.t.Error("nobody was told of the garbage")
		}
	case "METHODS":
		if got := r.file("refused"); !strings.Contains(got, "-32601") || !strings.Contains(got, `"cancelled"`) {
			r.t.Errorf("it was answered %s", got)
		}
	case "UNASKED":
		if r.notices("agent.unasked") != 1 || len(finished) != 1 {
			r.t.Errorf("a tool that ran unasked: %d notices, %+v", r.notices("agent.unasked"), finished)
		}
	case "ALWAYS":
		if got := r.file("answered"); !strings.Contains(got, `"n"`) || len(runtimetest.Payloads[holdfast.ToolDecision](r.World, holdfast.EventToolDenied)) != 1 {
			r.t.Errorf("an agent that offers only a yes for ever was answered %s", got)
		}
	case "TWICE":
		if got := r.file("answered"); !strings.Contains(got, `"y"`) || len(finished) != 1 {
			r.t.Errorf("answered %s, %+v", got, finished)
		}
	case "LATE":
		// It asks about a call whose outcome is in the log.
		if got := r.file("answered"); !strings.Contains(got, `"n"`) || len(finished) != 1 {
			r.t.Errorf("answered %s, %+v", got, finished)
		}
	case "OPEN":
		if n := len(runtimetest.Payloads[holdfast.ToolUnknown](r.World, holdfast.EventToolUnknown)); n != 1 {
			r.t.Errorf("%d unknown outcomes", n)
		}
	case "DIESONCE":
		if r.notices("agent.restarted") != 1 || r.tiers() != "fresh live own live" && r.tiers() != "fresh live own own live" {
			r.t.Errorf("%d restarts, tiers %s", r.notices("agent.restarted"), r.tiers())
		}
	case "MIDTOOL":
		if n := len(runtimetest.Payloads[holdfast.ToolUnknown](r.World, holdfast.EventToolUnknown)); n != 1 {
			r.t.Errorf("%d unknown outcomes", n)
		}
		// What the agent may have lost it is told.
		if got := r.lastPrompt(); !strings.Contains(got, "MIDTOOL") || !strings.Contains(got, "I begin") {
			r.t.Errorf("the next prompt was %s", got)
		}
	}
}

func (r *rig) lastPrompt() string {
	lines := strings.Split(strings.TrimSpace(r.file("prompts")), "\n")
	return lines[len(lines)-1]
}

// TestAgentsThatDoNotStart: each says why, with a hint, and leaves no process.
func TestAgentsThatDoNotStart(t *testing.T) {
	for bad, want := range map[string]string{
		"version": "does not speak version 1", "exit": "no such thing", "unnamed": "did not open a session", "refused": "log in", "silent": "did not answer",
	} {
		t.Run(bad, func(t *testing.T) {
			r := scriptedAgent(t, func(c *acp.Config) {
				c.Profile.Env = map[string]string{"BAD": bad}
				if bad == "silent" {
					c.Handshake = 2 * time.Second
				}
			})
			ran := r.try("hello")
			if !holdfast.IsKind(ran.Err, holdfast.KindUnavailable) || !strings.Contains(ran.Err.Error(), want) || holdfast.HintOf(ran.Err) == "" {
				t.Errorf("ended with %v", ran.Err)
			}
			if s := r.States(); len(s) != 1 || s[0].Call != "" {
				t.Errorf("%+v", s)
			}
		})
	}
	r := scriptedAgent(t, func(c *acp.Config) {
		c.Profile.Find = func(holdfast.Trust) (acp.Program, error) {
			return acp.Program{}, holdfast.Errorf(holdfast.KindUnavailable, "runtime", "not installed").WithHint("holdfast runtime install x")
		}
	})
	if ran := r.try("hello"); holdfast.HintOf(ran.Err) != "holdfast runtime install x" {
		t.Errorf("a program that is missing: %v", ran.Err)
	}
}

// TestLadder: an agent whose box ended loads what it kept when that is all of it;
// otherwise a new one is told everything, and the old one is put aside.
func TestLadder(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *rig)
		tier  string
		turns int64
		kept  holdfast.AgentHealth
	}{
		"whole":      {func(*rig) {}, "own", 2, ""},
		"refuses":    {func(r *rig) { r.write("noload") }, "injected", 2, holdfast.HealthQuarantined},
		"lost one":   {func(r *rig) { r.home("echo 1 > .scripted/count") }, "injected", 2, holdfast.HealthQuarantined},
		"moved":      {func(r *rig) { r.workspace = "/tmp" }, "injected", 2, holdfast.HealthLeft},
		"state gone": {func(r *rig) { r.home("rm -r .scripted") }, "injected", 2, holdfast.HealthLeft},
	} {
		t.Run(name, func(t *testing.T) {
			r := scriptedAgent(t, nil)
			r.say("first word", "prompt 1")
			r.say("second word", "prompt 2")
			c.spoil(r)
			r.KillBox()
			ran := r.try("third word")
			if ran.Err != nil {
				t.Fatal(ran.Err)
			}
			last := r.receipts()[2]
			if string(last.Tier) != c.tier || last.Turns != c.turns || last.Of != 2 || last.Reason == "" {
				t.Errorf("%+v", last)
			}
			told := strings.Contains(r.lastPrompt(), "first word")
			if told != (c.tier == "injected") {
				t.Errorf("prompt %s", r.lastPrompt())
			}
			states := r.States()
			if c.kept == "" && len(states) != 1 || c.kept != "" && (len(states) != 2 || states[0].Health != c.kept || states[1].Health != holdfast.HealthCurrent) {
				t.Errorf("%+v", states)
			}
			if quarantined := len(runtimetest.Payloads[holdfast.AgentQuarantined](r.World, holdfast.EventAgentQuarantined)); (quarantined == 1) != (c.kept == holdfast.HealthQuarantined) {
				t.Errorf("%d quarantined", quarantined)
			}
		})
	}
}

// home runs a command in the agent's home.
func (r *rig) home(command string) {
	r.t.Helper()
	h := r.NewHost()
	defer h.Close()
	runIn(r.t, h, "cd /home/agent && "+command)
}

// TestInterrupt: an agent stops when it is told to, or is killed; the turn's cause is
// given back and the session goes on.
func TestInterrupt(t *testing.T) {
	stop := errors.New("stop")
	for _, deaf := range []bool{false, true} {
		r := scriptedAgent(t, nil)
		r.say("before", "prompt 1")
		if deaf {
			r.write("deaf")
		}
		h := r.NewHost()
		ctx, cancel := context.WithCancelCause(t.Context())
		h.OnDelta = func(holdfast.EventType, any) { cancel(stop) }
		id := r.Begin("WAIT")
		ran := h.Run(ctx, r.r, r.Turn(id, false))
		cancel(nil)
		if !errors.Is(ran.Err, stop) {
			t.Errorf("deaf %v: ended with %v", deaf, ran.Err)
		}
		r.End(id, holdfast.EventTurnInterrupted)
		h.Close()
		if !strings.Contains(r.file("cancels"), "cancel") {
			t.Error("it was not told to stop")
		}
		if ran := r.try("after"); ran.Err != nil {
			t.Errorf("deaf %v: afterwards %v", deaf, ran.Err)
		}
		if want := map[bool]string{false: "fresh live live", true: "fresh live own"}[deaf]; r.tiers() != want {
			t.Errorf("deaf %v: tiers %s", deaf, r.tiers())
		}
	}
}

// TestHZ12_NothingIsSentTwice: a server that dies anywhere in a turn leaves an agent
// that got the prompt once, and each answer once.
func TestHZ12_NothingIsSentTwice(t *testing.T) {
	for _, p := range []runtimetest.Point{
		{Name: runtimetest.AfterRecord, N: 3},
		{Name: "prompted"},
		{Name: "asked"},
		{Name: "decided"},
		{Name: "decided", N: 1},
		{Name: "answered"},
		{Name: runtimetest.AfterRecord},
		{Name: runtimetest.AfterRecord, N: 1},
		{Name: runtimetest.BeforeRecord, N: 2},
		{Name: "agent-intent"},
		{Name: "agent-started"},
	} {
		r := scriptedAgent(t, nil)
		h := r.NewHost()
		h.Die = p
		id := r.Begin("TOOL")
		if ran := h.Run(t.Context(), r.r, r.Turn(id, false)); !ran.Died {
			t.Errorf("%v: the server lives: %v", p, ran.Err)
		}
		h = r.NewHost()
		ran := h.Run(t.Context(), r.r, r.Turn(id, true))
		if ran.Err != nil || ran.Result.Text != "done" {
			t.Fatalf("%v: %q %v", p, ran.Result.Text, ran.Err)
		}
		r.Complete(id, ran.Result)
		h.Close()
		r.CheckAnswered()
		if got := r.file("prompts"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "Be brief.") {
			t.Errorf("%v: prompts %s", p, got)
		}
		if got := r.file("answered"); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"selected"`) {
			t.Errorf("%v: answered %s", p, r.file("answered"))
		}
		r.say("after", "prompt 2")
	}
}

// leaver is a server that goes while somebody is asked.
type leaver struct{ *runtimetest.Host }

var errLeaves = errors.New("the server is leaving")

func (leaver) Decide(context.Context, policy.Request) (policy.Decision, error) {
	return policy.Decision{}, &policy.Undecided{Err: errLeaves}
}

// TestAQuestionOutlivesItsServer: a call that waits for an answer when the server leaves
// is left as it stands. The next server asks again, and the call runs once.
func TestAQuestionOutlivesItsServer(t *testing.T) {
	r := scriptedAgent(t, nil)
	id := r.Begin("TOOL")
	h := r.NewHost()
	if _, err := r.r.Run(t.Context(), r.Turn(id, false), leaver{h}); !errors.Is(err, errLeaves) {
		t.Fatalf("ended with %v", err)
	}
	h.Close()
	if n := len(runtimetest.Payloads[holdfast.ToolFinished](r.World, holdfast.EventToolFinished)); n != 0 {
		t.Errorf("the call was answered by a server that left")
	}
	h = r.NewHost()
	defer h.Close()
	ran := h.Run(t.Context(), r.r, r.Turn(id, true))
	if ran.Err != nil || ran.Result.Text != "done" {
		t.Fatalf("%q %v", ran.Result.Text, ran.Err)
	}
	r.Complete(id, ran.Result)
	r.CheckAnswered()
}

// TestLongAnswer: an answer that is longer than what may stay untaken is recorded in
// parts, and no word of it is lost.
//
// WS-N2.
func TestLongAnswer(t *testing.T) {
	r := scriptedAgent(t, nil)
	if ran := r.try("LONG"); ran.Err != nil {
		t.Fatal(ran.Err)
	}
	total := 0
	for _, m := range runtimetest.Payloads[holdfast.AssistantMessage](r.World, holdfast.EventMessageAssistant) {
		for _, p := range m.Parts {
			total += len(p.Text)
		}
	}
	if want := 4000 * len("a text that is to fill up the spool of this call, piece by piece by piece by piece"); total != want {
		t.Errorf("%d bytes of %d", total, want)
	}
}

// TestModeAndModel: the agent gets the mode that goes with the session's; another
// model is another process that loads what the first kept.
func TestModeAndModel(t *testing.T) {
	r := scriptedAgent(t, nil)
	r.say("one", "prompt 1")
	r.Session.Mode = holdfast.ModePlan
	r.say("two", "prompt 2")
	if got := r.file("modes"); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"plan"`) {
		t.Errorf("modes %s", got)
	}
	r.Session.Model = "another"
	r.say("three", "prompt 3")
	if last := r.receipts()[2]; last.Tier != holdfast.TierOwn || last.Reason != "the session's model has changed" {
		t.Errorf("%+v", last)
	}
}

// runIn runs a command in the box.
func runIn(t *testing.T, h *runtimetest.Host, command string) {
	t.Helper()
	box, err := h.Box(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	res, err := box.Exec(t.Context(), sandbox.Call{ID: holdfast.CallID(id)}, wire.ExecRequest{Shell: command}, sandbox.ExecOptions{})
	if err != nil || res.Class != holdfast.ExitOK {
		t.Fatalf("%s: %+v %v", command, res, err)
	}
}
