package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/check"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const stricter = `permissions: {sandbox: {deniedPaths: [/workspace/docs]}}`

func writes(name, text string) step {
	return step{"tool": "Write", "input": step{"file_path": name, "content": text}}
}

// TestHZ25_RulesThatChangeStartTheBoxAgain: at its next use a box runs with the walls
// that its session's rules ask for; equal rules restart nothing.
func TestHZ25_RulesThatChangeStartTheBoxAgain(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("echo 1"), say("one")))
	m.run(id, script(writes("holdfast.yaml", stricter), bash("echo 2"), bash("echo 3"), say("two")))
	if n := len(datas[holdfast.BoxStarted](m.world, id, "box.started")); n != 2 {
		t.Errorf("started %d times\n%s", n, m.dump(id))
	}
	stopped := datas[holdfast.BoxEnded](m.world, id, "box.stopped")
	if len(stopped) != 1 || !strings.Contains(stopped[0].Reason, "path rules changed") {
		t.Errorf("stopped %+v", stopped)
	}
	m.run(id, script(bash("echo 4"), say("three")))
	m.exec(id, "echo 5")
	if n := len(datas[holdfast.BoxStarted](m.world, id, "box.started")); n != 2 {
		t.Errorf("the same rules started the box again\n%s", m.dump(id))
	}
	m.put(id, "holdfast.yaml", "permissions: {deny: [Bash(x)]}")
	m.exec(id, "echo 6")
	if n := len(datas[holdfast.BoxStarted](m.world, id, "box.started")); n != 3 {
		t.Errorf("looser rules left the walls standing\n%s", m.dump(id))
	}
	m.sound(id)
}

// TestHZ25_OlderWallsAreSaid: while something runs in the box a turn goes on with the
// older walls, and reports it once; a person's command is refused.
func TestHZ25_OlderWallsAreSaid(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.exec(id, "true")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo > began; while [ ! -f go ]; do sleep 0.01; done"}, nil, nil)
	}()
	m.appears(id, "began")
	m.run(id, script(writes("holdfast.yaml", stricter), bash("echo 2"), bash("echo 3"), say("done")))
	pending := 0
	for _, n := range datas[holdfast.Notice](m.world, id, "notice") {
		if n.Code == "walls.pending" {
			pending++
		}
	}
	if pending != 1 {
		t.Errorf("%d notices of older walls\n%s", pending, m.dump(id))
	}
	_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
	m.wantKind(err, holdfast.KindBusy)
	if holdfast.HintOf(err) == "" {
		t.Errorf("%v has no hint", err)
	}
	m.put(id, "go", "")
	<-ended
	m.exec(id, "true")
	if n := len(datas[holdfast.BoxStarted](m.world, id, "box.started")); n != 2 {
		t.Errorf("started %d times\n%s", n, m.dump(id))
	}
}

// breaking is a driver whose walls the test removes.
type breaking struct {
	*mem.Driver
	lost *atomic.Bool
}

func (b breaking) WallsHold(holdfast.BoxID) bool { return !b.lost.Load() }

// Ensure starts a box with all its walls.
func (b breaking) Ensure(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	b.lost.Store(false)
	return b.Driver.Ensure(ctx, s)
}

// TestHZ25_NoCallWithoutItsWalls: a wall that the host removed is back before the next
// call; while something else runs in the box the call fails.
func TestHZ25_NoCallWithoutItsWalls(t *testing.T) {
	var lost atomic.Bool
	m := newMachine(t, func(m *machine) {
		m.pool = func(c *pool.Config) {
			if d, ok := c.Driver.(*mem.Driver); ok {
				c.Driver = breaking{d, &lost}
			}
		}
	})
	id := m.create(holdfast.CreateSession{})
	m.exec(id, "true")
	m.put(id, "holdfast.yaml", stricter)
	m.exec(id, "true")
	lost.Store(true)
	m.run(id, script(bash("echo 1"), say("one")))
	stopped := datas[holdfast.BoxEnded](m.world, id, "box.stopped")
	if len(stopped) != 2 || !strings.Contains(stopped[1].Reason, "removed a wall") {
		t.Errorf("stopped %+v", stopped)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo > began; while [ ! -f go ]; do sleep 0.01; done"}, nil, nil)
	}()
	m.appears(id, "began")
	lost.Store(true)
	_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
	m.wantKind(err, holdfast.KindUnavailable)
	if holdfast.HintOf(err) == "" || !strings.Contains(err.Error(), "renamed on the host") {
		t.Errorf("%v (%s)", err, holdfast.HintOf(err))
	}
	m.put(id, "go", "")
	<-ended
	m.exec(id, "true")
}

// TestHZ25_NoticeOfNoWalls: with path rules a trusted session reports that nothing
// enforces them; without path rules it reports nothing.
func TestHZ25_NoticeOfNoWalls(t *testing.T) {
	for _, c := range []struct {
		settings *check.Settings
		trust    string
		want     int
	}{
		{&check.Settings{DeniedPaths: []string{"/x"}}, "trusted", 1},
		{&check.Settings{DeniedPaths: []string{"/x"}}, "untrusted", 0},
		{&check.Settings{DeniedCommands: []string{"x"}}, "trusted", 0},
	} {
		d := newDecider("Bash", "")
		w, _, _ := layered(t, d, nil, policy.Config{Sandbox: c.settings})
		id := w.create(holdfast.CreateSession{Trust: c.trust})
		n := 0
		for _, notice := range datas[holdfast.Notice](w, id, "notice") {
			if notice.Code == "walls.none" {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%s with %+v: %d notices, want %d", c.trust, c.settings, n, c.want)
		}
	}
}

// TestHZ25_AgentsAtRestKeepNoWalls: an agent's program that waits for the next turn
// does not keep a box from starting again with the present walls.
func TestHZ25_AgentsAtRestKeepNoWalls(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.exec(id, "true")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo > began; while [ ! -f go ]; do sleep 0.01; done"}, nil, nil)
	}()
	m.appears(id, "began")
	calls, err := m.live[holdfast.Untrusted].Live(m.box(id)).Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(calls, func(c wire.CallState) bool { return c.Status == wire.CallRunning })
	c := journal.NewChange(id)
	c.States = []holdfast.AgentState{{Generation: 1, Runtime: "claude", AgentID: "a", Health: holdfast.HealthCurrent, Call: calls[at].Call, Box: m.box(id)}}
	if _, err := m.journal.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	m.put(id, "holdfast.yaml", stricter)
	m.run(id, script(bash("echo 2"), say("done")))
	<-ended
	if n := len(datas[holdfast.BoxStarted](m.world, id, "box.started")); n != 2 {
		t.Errorf("started %d times\n%s", n, m.dump(id))
	}
	for _, n := range datas[holdfast.Notice](m.world, id, "notice") {
		if n.Code == "walls.pending" {
			t.Errorf("the turn ran with older walls\n%s", m.dump(id))
		}
	}
}
