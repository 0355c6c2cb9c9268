package engine_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/obs"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// The checks of sessions.md, section 6, that the engine can show with boxes; the
// others stand beside what they test.

// TestASH2_IdentityNeverChanges: id, workspace path and working directory are the
// same through restarts, dead boxes and resumes.
//
// DOC-4.
func TestASH2_IdentityNeverChanges(t *testing.T) {
	m := newMachine(t, nil)
	s, _, err := m.Create(t.Context(), holdfast.CreateSession{Title: "one", Tags: []string{"a"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	id := s.ID
	for name, change := range map[string]func(){
		"nothing":  func() {},
		"box died": func() { m.untrusted.KillBox(m.box(id)) },
		"restart":  m.restart,
		"paused": func() {
			if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
		},
		"stopped": func() {
			if _, err := m.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		got := m.run(id, script(bash("pwd; echo $HOME; echo x >> count"), say("ok")))
		if got.Session != id || got.Status != holdfast.TurnCompleted {
			t.Errorf("%s: turn = %+v", name, got)
		}
	}
	for _, f := range datas[holdfast.ToolFinished](m.world, id, "tool.finished") {
		if !strings.Contains(f.Content, "/workspace\n/home/agent\n") {
			t.Errorf("the agent is at %q", f.Content)
		}
	}
	if n := m.lines(id, "count"); n != 5 {
		t.Errorf("%d lines in the one workspace, want 5", n)
	}
	now, err := m.Session(t.Context(), id)
	if err != nil || now.Title != s.Title || now.AgentVersion != s.AgentVersion || !now.CreatedAt.Equal(s.CreatedAt) {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestASH5_PauseAndResumeThreeTimes keeps files, history and the processes, and is
// counted.
//
// DOC-1, DOC-2, DOC-11.
func TestASH5_PauseAndResumeThreeTimes(t *testing.T) {
	m := newMachine(t, nil)
	metrics := obs.NewMetrics(obs.MetricsConfig{Now: time.Now})
	counted := func(c journal.Encoded) {
		for _, d := range c.Events {
			metrics.Event(d.Type, d.Data)
		}
	}
	m.committed.Store(&counted)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("echo first > f; (until [ -f go ]; do sleep 0.01; done; echo ended > survivor) > /dev/null 2>&1 &"), say("ok")))
	boot := m.live[holdfast.Untrusted].Live(m.box(id)).Boot()
	for range 3 {
		if _, err := m.Pause(t.Context(), id, holdfast.EndSession{Reason: "lunch"}); err != nil {
			t.Fatal(err)
		}
		res, err := m.Resume(t.Context(), id, holdfast.ResumeSession{})
		if err != nil || res.Receipt.Path != "fast" || res.Receipt.Tier != holdfast.TierLive || res.Receipt.Files != holdfast.FilesKept || res.Receipt.Box != "kept" {
			t.Errorf("%+v, %v", res.Receipt, err)
		}
		got := m.run(id, "hello")
		if got.Status != holdfast.TurnCompleted {
			t.Errorf("turn = %+v", got)
		}
	}
	if got := m.run(id, "and now?"); !strings.Contains(got.Result, "You have sent 5 messages.") || !strings.Contains(got.Result, "I have seen 1 tool results.") {
		t.Errorf("result %q", got.Result)
	}
	if now := m.exec(id, "cat f"); string(now.Stdout) != "first\n" {
		t.Errorf("f = %q", now.Stdout)
	}
	if got := m.live[holdfast.Untrusted].Live(m.box(id)).Boot(); got != boot {
		t.Error("the box is another one")
	}
	m.put(id, "go", "")
	m.appears(id, "survivor")
	page := httptest.NewRecorder()
	metrics.Handler(func(context.Context) obs.State { return obs.State{} }).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if !strings.Contains(page.Body.String(), "holdfast_resumes_total{path=\"fast\"} 3\n") {
		t.Error("three resumes are not counted as three")
	}
}

// TestASH6_RestartAndResume: after a restart and a resume the agent knows the
// earlier turns and files; also when it was paused before.
//
// DOC-1, DOC-3, DOC-23.
func TestASH6_RestartAndResume(t *testing.T) {
	for _, paused := range []bool{false, true} {
		t.Run(fmt.Sprintf("paused %v", paused), func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.create(holdfast.CreateSession{})
			m.run(id, "my name is Ada")
			m.run(id, script(bash("echo ada > name"), say("noted")))
			if paused {
				if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
					t.Fatal(err)
				}
			}
			m.stop(true)
			m.start()
			if paused {
				res, err := m.Resume(t.Context(), id, holdfast.ResumeSession{})
				if err != nil || res.Receipt.Path != "cold" || res.Receipt.Turns != 2 || res.Receipt.Files != holdfast.FilesKept {
					t.Errorf("%+v, %v", res.Receipt, err)
				}
			}
			got := m.run(id, "who am I?")
			for _, want := range []string{"You have sent 3 messages.", `The first was: "my name is Ada".`, "I have seen 1 tool results."} {
				if !strings.Contains(got.Result, want) {
					t.Errorf("result %q, want %q in it", got.Result, want)
				}
			}
			if got := m.exec(id, "cat name"); string(got.Stdout) != "ada\n" {
				t.Errorf("name = %q", got.Stdout)
			}
		})
	}
}

// TestASH7_AfterHardKills of the box, of the server, and of both, in turns.
func TestASH7_AfterHardKills(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	kills := []struct {
		name string
		kill func()
	}{
		{"nothing", func() {}},
		{"box", func() { m.untrusted.KillBox(m.box(id)) }},
		{"server", m.restart},
		{"both", func() { m.stop(false); m.untrusted.KillBox(m.box(id)); m.start() }},
		{"both, and paused", func() {
			if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
			m.stop(false)
			m.untrusted.KillBox(m.box(id))
			m.start()
		}},
	}
	for i, k := range kills {
		k.kill()
		if got := m.run(id, script(bash(fmt.Sprintf("echo %d >> f; cat f", i)), say("ok"))); got.Status != holdfast.TurnCompleted {
			t.Errorf("after %s: %+v", k.name, got)
		}
		if n := m.lines(id, "f"); n != i+1 {
			t.Errorf("after %s the file has %d lines", k.name, n)
		}
	}
	if got := m.run(id, "sum up"); !strings.Contains(got.Result, fmt.Sprintf("You have sent %d messages.", len(kills)+1)) {
		t.Errorf("result %q", got.Result)
	}
	m.sound(id)
}

// TestASH8_AgentDeleted: its session fails in a defined way, the workspace stays.
func TestASH8_AgentDeleted(t *testing.T) {
	agents := &someAgents{}
	m := newMachine(t, func(m *machine) { m.agents = agents })
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("echo kept > f"), say("ok")))
	fresh := m.create(holdfast.CreateSession{})
	agents.gone.Store(true)
	got := m.run(id, "hello")
	if got.Status != holdfast.TurnFailed || !strings.Contains(got.Error, "no such version") {
		t.Errorf("turn = %+v", got)
	}
	if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusActive || m.file(id, "f") != "kept\n" {
		t.Errorf("session is %s, f is %q", s.Status, m.file(id, "f"))
	}
	// A workspace that was not made yet is not made without the agent's files.
	_, err := m.Exec(t.Context(), fresh, holdfast.ExecRequest{Command: "true"}, nil, nil)
	m.wantKind(err, holdfast.KindNotFound)
	if _, err := os.Stat(m.path(fresh, "")); err == nil {
		t.Error("a workspace without the agent's files")
	}
	agents.gone.Store(false)
	if got := m.run(id, "hello"); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	m.exec(fresh, "cat CLAUDE.md")
}

type someAgents struct {
	oneAgent
	gone atomic.Bool
}

func (a *someAgents) Instructions(ctx context.Context, v holdfast.VersionID) (string, error) {
	if a.gone.Load() {
		return "", holdfast.Errorf(holdfast.KindNotFound, "agent", "no such version %s", v)
	}
	return a.oneAgent.Instructions(ctx, v)
}

func (a *someAgents) Files(ctx context.Context, v holdfast.VersionID) ([]rooted.File, error) {
	if a.gone.Load() {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "agent", "no such version %s", v)
	}
	return a.oneAgent.Files(ctx, v)
}

// TestASH10_ConcurrentUseStartsOneBox: resumes, execs and a message at once.
//
// WS-R40.
func TestASH10_ConcurrentUseStartsOneBox(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("ok")))
	if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := m.Resume(t.Context(), id, holdfast.ResumeSession{}); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo x >> execs"}, nil, nil); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if _, err := m.Send(t.Context(), id, holdfast.SendMessage{Text: script(bash("echo x >> turns"), say("ok"))}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	until(t, func() bool { return m.lines(id, "turns") == 4 && m.lines(id, "execs") == 4 })
	count := map[holdfast.EventType]int{}
	for _, typ := range m.types(id) {
		count[typ]++
	}
	if count["box.started"] != 2 || count["session.resumed"] != 1 {
		t.Errorf("%d boxes, %d resumes\n%s", count["box.started"], count["session.resumed"], m.dump(id))
	}
}

// TestASH14_ClientDisconnectInMidTurn: the turn does not notice, and a reader who
// comes back misses nothing.
//
// WS-P8.
func TestASH14_ClientDisconnectInMidTurn(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	request, hangUp := context.WithCancel(t.Context())
	sent, err := m.Send(request, id, holdfast.SendMessage{Text: script(bash(gated), say("ok"))})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Follow(request, id, sent.Seq)
	if err != nil {
		t.Fatal(err)
	}
	var seen []holdfast.Event
	for len(seen) < 3 {
		evs, err := r.Next(request)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, evs...)
	}
	m.appears(id, "begun")
	hangUp()
	if _, err := r.Next(request); err == nil {
		t.Error("a reader goes on without its caller")
	}
	r.Close()
	m.put(id, "go", "")
	if got := m.ended(id, sent.Turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "ok" {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	last := int64(0)
	for _, ev := range seen {
		last = max(last, ev.Seq)
	}
	rest, err := m.Events(t.Context(), id, holdfast.EventFilter{After: last, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	all := slices.DeleteFunc(append(seen, rest...), func(ev holdfast.Event) bool { return ev.Seq == 0 })
	if d := cmp.Diff(m.log(id)[sent.Seq:], all); d != "" {
		t.Errorf("what the reader saw in two parts is not the log: %s", d)
	}
}

// TestASH15_StalledReaderHoldsNobodyUp: the turn and other sessions go on.
func TestASH15_StalledReaderHoldsNobodyUp(t *testing.T) {
	m := newMachine(t, nil)
	a, b := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	r, err := m.Follow(t.Context(), a, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // never read
	for range 10 {
		if got := m.run(a, script(bash("seq 2000"), say("ok"))); got.Status != holdfast.TurnCompleted {
			t.Errorf("turn = %+v", got)
		}
	}
	if got := m.run(b, "hello"); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
}

// TestASH19_InterruptKillsTheCommand promptly; what it had said is kept, and the
// session is usable right after.
//
// WS-P7, WS-P9, WS-N1, WS-N13, WS-N14.
func TestASH19_InterruptKillsTheCommand(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash("echo partial output; echo begun > begun; sleep 3600; echo late >> lines"), bash("echo never >> lines"), say("ok")))
	m.appears(id, "begun")
	if _, err := m.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Turn(t.Context(), id, turn.ID); err != nil || got.Status != holdfast.TurnInterrupted {
		t.Fatalf("turn = %+v, %v", got, err)
	}
	f := datas[holdfast.ToolFinished](m.world, id, "tool.finished")
	if len(f) != 1 || f[0].Outcome != holdfast.ExitCanceled || !strings.Contains(f[0].Content, "partial output") {
		t.Errorf("tool.finished = %+v", f)
	}
	if got := m.exec(id, "echo usable"); string(got.Stdout) != "usable\n" {
		t.Errorf("exec = %+v", got)
	}
	if got := m.run(id, "what happened?"); !strings.Contains(got.Result, "I have seen 1 tool results.") {
		t.Errorf("next = %+v", got)
	}
	if n := m.lines(id, "lines"); n != 0 {
		t.Errorf("%d lines of what was interrupted", n)
	}
	m.sound(id)
}
