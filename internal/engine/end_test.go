package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

func TestContainers(t *testing.T) {
	m := newMachine(t, nil)
	a, b := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{Trust: "trusted"})
	m.exec(a, "true")
	m.exec(b, "true")
	list, err := m.Containers(t.Context())
	if err != nil || len(list) != 2 || list[0].Session != a || list[1].Session != b {
		t.Fatalf("%+v, %v", list, err)
	}
	for name, c := range map[string]struct {
		req  holdfast.StopContainers
		kind holdfast.Kind
	}{
		"nothing": {holdfast.StopContainers{}, holdfast.KindInvalid},
		"both":    {holdfast.StopContainers{All: true, IDs: []string{string(m.box(a))}}, holdfast.KindInvalid},
		"no id":   {holdfast.StopContainers{IDs: []string{"../x"}}, holdfast.KindInvalid},
		"unknown": {holdfast.StopContainers{IDs: []string{"s-01890a5d-ac96-774b-bcce-b302099a8057"}}, holdfast.KindNotFound},
	} {
		if _, err := m.StopContainers(t.Context(), c.req); !holdfast.IsKind(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stopped, err := m.StopContainers(t.Context(), holdfast.StopContainers{IDs: []string{string(m.box(a))}})
	if err != nil || len(stopped) != 1 || stopped[0].Session != a {
		t.Errorf("%+v, %v", stopped, err)
	}
	if !slices.Contains(m.types(a), "box.stopped") || slices.Contains(m.types(b), "box.stopped") {
		t.Errorf("a has %v, b has %v", m.types(a), m.types(b))
	}
	if s, _ := m.Session(t.Context(), a); s.Status != holdfast.StatusActive {
		t.Errorf("the session of a stopped box is %s", s.Status)
	}
	if stopped, err = m.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil || len(stopped) == 0 {
		t.Errorf("%+v, %v", stopped, err)
	}
	if !slices.Contains(m.types(b), "box.stopped") {
		t.Errorf("b has %v", m.types(b))
	}
}

// TestOneDriverForBothTrusts: each box is listed once and stopped by the pool
// that has it, which tells so.
func TestOneDriverForBothTrusts(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.trusted = m.untrusted })
	for _, trust := range []string{"trusted", "untrusted"} {
		stopped, ended := m.create(holdfast.CreateSession{Trust: trust}), m.create(holdfast.CreateSession{Trust: trust})
		m.exec(stopped, "true")
		m.exec(ended, "true")
		list, err := m.Containers(t.Context())
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		if _, err := m.StopContainers(t.Context(), holdfast.StopContainers{IDs: []string{string(m.box(stopped))}}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.End(t.Context(), ended, holdfast.EndSession{}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []holdfast.SessionID{stopped, ended} {
			if types := m.types(id); !slices.Contains(types, "box.stopped") || slices.Contains(types, "box.lost") {
				t.Errorf("%s: %v", trust, types)
			}
		}
		if _, err := m.End(t.Context(), stopped, holdfast.EndSession{}); err != nil {
			t.Fatal(err)
		}
		m.noBoxes()
	}
}

// TestASH12_EndReleasesTheBox: an end leaves no box, and leaves the files.
//
// DOC-5.
func TestASH12_EndReleasesTheBox(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("echo kept > f; sleep 3600 > /dev/null &"), say("ok")))
	for range 2 {
		s, err := m.End(t.Context(), id, holdfast.EndSession{Reason: "enough"})
		if err != nil || s.Status != holdfast.StatusEnded {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	m.noBoxes()
	if m.file(id, "f") != "kept\n" {
		t.Error("an end took the files")
	}
	ended := datas[holdfast.Reason](m.world, id, "session.ended")
	if len(ended) != 1 || ended[0].Reason != "enough" {
		t.Errorf("session.ended = %+v", ended)
	}
	if got := m.log(id); len(got) == 0 {
		t.Error("the log of an ended session is gone")
	}
}

// TestEndTakesTheBoxThatItsCallerDidNotWaitFor: the end goes through although
// the caller is gone, and a second end finds what the first could not remove.
func TestEndTakesTheBoxThatItsCallerDidNotWaitFor(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.exec(id, "true")
	ctx, cancel := context.WithCancel(t.Context())
	m.whenCommitted("session.ended", cancel)
	if _, err := m.End(ctx, id, holdfast.EndSession{}); err != nil {
		t.Errorf("end: %v", err)
	}
	m.noBoxes()
}

// TestNoBoxForAnEndedSession: an exec that began before the end finds its
// session gone instead of starting a box that nobody would end.
func TestNoBoxForAnEndedSession(t *testing.T) {
	for _, purge := range []bool{false, true} {
		t.Run(fmt.Sprintf("purge %v", purge), func(t *testing.T) {
			entered, let := make(chan struct{}), make(chan struct{})
			m := newMachine(t, func(m *machine) { m.agents = slowAgents{entered: entered, let: let} })
			id := m.create(holdfast.CreateSession{})
			answered := make(chan error, 1)
			go func() {
				_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
				answered <- err
			}()
			<-entered // between its look at the session and its box
			if purge {
				if err := m.Delete(t.Context(), id, holdfast.EndSession{Purge: true}); err != nil {
					t.Fatal(err)
				}
			} else if _, err := m.End(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
			close(let)
			if err := <-answered; !holdfast.IsKind(err, holdfast.KindGone) && !holdfast.IsKind(err, holdfast.KindNotFound) {
				t.Errorf("exec: %v", err)
			}
			m.noBoxes()
			if _, err := os.Stat(m.path(id, "")); purge && err == nil {
				t.Error("a deleted session has a workspace again")
			}
		})
	}
}

// TestExecsWhileSessionsEnd is the same at all other moments.
func TestExecsWhileSessionsEnd(t *testing.T) {
	m := newMachine(t, nil)
	for range 20 {
		id := m.create(holdfast.CreateSession{})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
				if err != nil && !holdfast.IsKind(err, holdfast.KindGone) && !holdfast.IsKind(err, holdfast.KindUnavailable) {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			if _, err := m.End(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	}
	m.noBoxes()
}

func TestDeleteRemovesFilesAndLog(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("mkdir -p d/e; echo x > d/e/f"), say("ok")))
	r, err := m.Follow(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := m.Delete(t.Context(), id, holdfast.EndSession{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "sessions", string(id))); !os.IsNotExist(err) {
		t.Errorf("the directory of a deleted session: %v", err)
	}
	_, err = m.Events(t.Context(), id, holdfast.EventFilter{})
	m.wantKind(err, holdfast.KindNotFound)
	m.noBoxes()
	// Readers end instead of waiting for a log that nobody writes.
	for err == nil || holdfast.IsKind(err, holdfast.KindNotFound) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err = r.Next(ctx)
		cancel()
	}
	m.wantKind(err, holdfast.KindGone)
	// The id may be used again, and nothing of the old session shows.
	if _, _, err := m.Create(t.Context(), holdfast.CreateSession{ID: string(id)}, ""); err != nil {
		t.Fatal(err)
	}
	if got := m.types(id); !slices.Equal(got, []holdfast.EventType{"session.created"}) {
		t.Errorf("the new log begins with %v", got)
	}
	if got := m.run(id, "hello"); !strings.Contains(got.Result, "You have sent 1 messages.") {
		t.Errorf("result %q", got.Result)
	}
}

func TestDeleteDuringATurn(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.send(id, script(bash(gated), say("ok")))
	m.appears(id, "begun")
	m.wantKind(m.Delete(t.Context(), id, holdfast.EndSession{Purge: true}), holdfast.KindConflict)
	if err := m.Delete(t.Context(), id, holdfast.EndSession{Purge: true, Interrupt: true}); err != nil {
		t.Fatal(err)
	}
	_, err := m.Session(t.Context(), id)
	m.wantKind(err, holdfast.KindNotFound)
}

func TestTrustChange(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("echo x > f"), say("ok")))
	turn := m.send(id, script(bash(gated), say("ok")))
	queued := m.send(id, script(bash("cat f"), say("in the other box")))
	m.appears(id, "begun")
	trusted := "trusted"
	_, err := m.Update(t.Context(), id, holdfast.UpdateSession{Trust: &trusted})
	m.wantKind(err, holdfast.KindConflict)
	s, err := m.Update(t.Context(), id, holdfast.UpdateSession{Trust: &trusted, Interrupt: true})
	if err != nil || s.Trust != holdfast.Trusted {
		t.Fatalf("%+v, %v", s, err)
	}
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
		t.Errorf("the running turn: %+v", got)
	}
	// What waited is not taken down with it: it runs, with the new trust.
	if got := m.ended(id, queued.ID); got.Status != holdfast.TurnCompleted || got.Result != "in the other box" {
		t.Errorf("the waiting turn: %+v\n%s", got, m.dump(id))
	}
	list, err := m.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.State != holdfast.BoxStopped && m.live[holdfast.Trusted].Live(c.ID) == nil {
			t.Errorf("a box of the old trust runs: %+v", c)
		}
	}
	if m.live[holdfast.Untrusted].Live(m.box(id)) != nil || m.live[holdfast.Trusted].Live(m.box(id)) == nil {
		t.Error("the session's box is not the trusted one")
	}
	// An end reaches the records of both.
	if _, err := m.End(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	m.noBoxes()
}

// TestRootFilesStayOut: what ran on the host as root does not move into a box.
func TestRootFilesStayOut(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.uidBase = 1_879_048_192 })
	id := m.create(holdfast.CreateSession{Trust: "trusted"})
	untrusted := "untrusted"
	m.exec(id, "true")
	_, err := m.Update(t.Context(), id, holdfast.UpdateSession{Trust: &untrusted})
	m.wantKind(err, holdfast.KindConflict)
	fresh := m.create(holdfast.CreateSession{Trust: "trusted"})
	if s, err := m.Update(t.Context(), fresh, holdfast.UpdateSession{Trust: &untrusted}); err != nil || s.Trust != holdfast.Untrusted {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestEveryBoxHasItsOwnUids, derived from the session's number.
//
// WS-N6, WS-R80.
func TestEveryBoxHasItsOwnUids(t *testing.T) {
	var mu sync.Mutex
	specs := map[holdfast.BoxID]sandbox.Spec{}
	m := newMachine(t, func(m *machine) {
		m.uidBase = 1_879_048_192
		m.pool = func(c *pool.Config) {
			c.Driver = &noting{Driver: c.Driver, note: func(s sandbox.Spec) {
				mu.Lock()
				defer mu.Unlock()
				specs[s.Box] = s
			}}
		}
	})
	used := map[uint32]bool{}
	for range 3 {
		id := m.create(holdfast.CreateSession{Trust: "untrusted"})
		m.exec(id, "true")
		mu.Lock()
		s := specs[m.box(id)]
		mu.Unlock()
		if s.BoxdUID < m.uidBase || s.ToolUID != s.BoxdUID+1 || used[s.BoxdUID] || used[s.ToolUID] {
			t.Errorf("uids %d and %d; used: %v", s.BoxdUID, s.ToolUID, used)
		}
		used[s.BoxdUID], used[s.ToolUID] = true, true
	}
}

// noting is a driver that shows the specs it gets.
type noting struct {
	sandbox.Driver
	note func(sandbox.Spec)
}

func (n *noting) Ensure(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	n.note(s)
	return n.Driver.Ensure(ctx, s)
}
