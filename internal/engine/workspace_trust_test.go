package engine_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// inSpace starts a machine whose sessions are all created in the workspace "site", with the default trust that the
// returned value holds.
func inSpace(t *testing.T) (*machine, *atomic.Value) {
	t.Helper()
	trust := &atomic.Value{}
	trust.Store(holdfast.Untrusted)
	m := newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) {
			c.Defaults.Workspace = func(context.Context, string, string, string) (*holdfast.Workspace, error) {
				return &holdfast.Workspace{ID: "site", DefaultTrust: trust.Load().(holdfast.Trust)}, nil
			}
		}
	})
	if _, err := m.store.Workspaces.AddWorkspace(t.Context(), workspaces.Record{Workspace: holdfast.Workspace{ID: "site"}}); err != nil {
		t.Fatal(err)
	}
	return m, trust
}

// wantIn checks that the box of a session runs in the driver of a trust level, and in no other.
func (m *machine) wantIn(id holdfast.SessionID, trust holdfast.Trust) {
	m.t.Helper()
	for level, p := range m.live {
		if runs := p.Live(m.box(id)) != nil; runs != (level == trust) {
			m.t.Errorf("the box of the %s session runs among the %s ones: %t", trust, level, runs)
		}
	}
}

// TestWSR17_TrustOfASessionNotOfItsWorkspace: a trusted session of an untrusted workspace runs on the host, an untrusted one
// of a trusted workspace in a box: the workspace's level is a default, and no floor (WS-R15, WS-R17).
func TestWSR17_TrustOfASessionNotOfItsWorkspace(t *testing.T) {
	m, trust := inSpace(t)
	for workspace, asked := range map[holdfast.Trust]holdfast.Trust{holdfast.Untrusted: holdfast.Trusted, holdfast.Trusted: holdfast.Untrusted} {
		trust.Store(workspace)
		id := m.create(holdfast.CreateSession{Trust: string(asked), Mode: "bypassPermissions"})
		if got := m.run(id, script(bash("true"), say("ok"))); got.Status != holdfast.TurnCompleted {
			t.Errorf("%s in a workspace that is %s: %+v", asked, workspace, got)
		}
		m.wantIn(id, asked)
		inherits := m.create(holdfast.CreateSession{Mode: "bypassPermissions"})
		m.run(inherits, script(bash("true"), say("ok")))
		m.wantIn(inherits, workspace)
	}
}

// TestWSR18_TrustStays: trust and workspace of a session are in its row. The second message, and the third
// after a restart,
// run with them, whatever the workspace says by then, and the session is the same one (WS-R18, WS-R19).
//
// WS-R87.
func TestWSR18_TrustStays(t *testing.T) {
	m, trust := inSpace(t)
	id := m.create(holdfast.CreateSession{})
	check := func(when string) {
		t.Helper()
		if got := m.run(id, script(bash("true"), say("ok"))); got.Status != holdfast.TurnCompleted {
			t.Errorf("%s: %+v", when, got)
		}
		m.wantIn(id, holdfast.Untrusted)
		s, err := m.Session(t.Context(), id)
		if err != nil || s.Trust != holdfast.Untrusted || s.Workspace != "site" {
			t.Errorf("%s: %+v, %v", when, s, err)
		}
	}
	check("first message")
	trust.Store(holdfast.Trusted)
	check("second message")
	m.stop(true)
	m.start()
	check("after a restart")
	if page, err := m.List(t.Context(), holdfast.SessionFilter{}); err != nil || len(page.Sessions) != 1 {
		t.Errorf("sessions %+v, %v", page, err)
	}
}

// TestWSN15_UnknownStoredTrust: a session whose stored trust is not a level runs nothing, with an error that says so; an update
// of its trust repairs it.
func TestWSN15_UnknownStoredTrust(t *testing.T) {
	m := newMachine(t, nil)
	for _, stored := range []holdfast.Trust{"complete", ""} {
		id := m.create(holdfast.CreateSession{})
		c := journal.NewChange(id)
		c.Set = &journal.RowPatch{Trust: &stored}
		if _, err := m.journal.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
		m.wantKind(err, holdfast.KindInternal)
		for level, p := range m.live {
			if p.Live(m.box(id)) != nil {
				t.Errorf("%q: a box among the %s ones", stored, level)
			}
		}
		to := "untrusted"
		if _, err := m.Update(t.Context(), id, holdfast.UpdateSession{Trust: &to}); err != nil {
			t.Fatal(err)
		}
		if got := m.run(id, script(bash("true"), say("ok"))); got.Status != holdfast.TurnCompleted {
			t.Errorf("%q, repaired: %+v", stored, got)
		}
		m.wantIn(id, holdfast.Untrusted)
	}
}

// TestWSR60_ShutdownStopsBoxes: a server that ends with its boxes leaves none, and the next one goes on in
// new boxes.
//
// WS-P16.
func TestWSR60_ShutdownStopsBoxes(t *testing.T) {
	m := newMachine(t, nil)
	one, two := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{Trust: "trusted", Mode: "bypassPermissions"})
	m.run(one, script(bash("echo a >> f"), say("ok")))
	m.run(two, script(bash("echo a >> f"), say("ok")))
	running := func() (n int) {
		list, err := m.Containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.State != holdfast.BoxStopped {
				n++
			}
		}
		return n
	}
	if n := running(); n != 2 {
		t.Fatalf("%d boxes before the end", n)
	}
	m.stop(true)
	m.start()
	if n := running(); n != 0 {
		t.Errorf("%d boxes outlive the server", n)
	}
	m.run(one, script(bash("echo a >> f"), say("ok")))
	if n := m.lines(one, "f"); n != 2 {
		t.Errorf("the next box has a file of %d lines", n)
	}
}
