package engine_test

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// TestPrune: boxes of live sessions stay; the record of a stopped box goes, as does a
// box without a session. A box whose process died left nothing to prune. A dry run
// names exactly what a prune removes, and after it nothing is left.
//
// WS-R67, WS-P16.
func TestPrune(t *testing.T) {
	m := newMachine(t, nil)
	runs, idle, died := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	paused := m.create(holdfast.CreateSession{Trust: "trusted"})
	for _, id := range []holdfast.SessionID{idle, died, paused} {
		m.exec(id, "echo kept > kept")
	}
	turn := m.send(runs, script(bash(gated), say("ok")))
	m.appears(runs, "begun")
	if _, err := m.Pause(t.Context(), paused, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.StopContainers(t.Context(), holdfast.StopContainers{IDs: []string{string(m.box(paused))}}); err != nil {
		t.Fatal(err)
	}
	m.untrusted.KillBox(m.box(died))
	until(t, func() bool {
		list, err := m.Containers(t.Context())
		return err == nil && len(list) == 3 && slices.Contains(m.types(died), "box.lost")
	})
	stray := holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057").Box()
	if _, err := m.untrusted.Ensure(t.Context(), sandbox.Spec{Box: stray, Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}

	planned, err := m.PruneContainers(t.Context(), true)
	if err != nil || !planned.DryRun {
		t.Fatalf("%+v, %v", planned, err)
	}
	list, err := m.Containers(t.Context())
	if err != nil || len(list) != 4 {
		t.Errorf("a dry run left %+v, %v", list, err)
	}
	done, err := m.PruneContainers(t.Context(), false)
	if err != nil || done.DryRun || !slices.Equal(done.Pruned, planned.Pruned) {
		t.Fatalf("pruned %+v, %v; planned %+v", done, err, planned)
	}
	var names []string
	for _, p := range done.Pruned {
		names = append(names, p.Name)
		if p.Reason == "" || p.Driver == "" {
			t.Errorf("%+v says too little", p)
		}
	}
	want := []string{string(stray), string(m.box(paused))}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("pruned %v, not %v", names, want)
	}
	if again, err := m.PruneContainers(t.Context(), false); err != nil || len(again.Pruned) != 0 {
		t.Errorf("again %+v, %v", again, err)
	}
	if list, err := m.Containers(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("left %+v, %v", list, err)
	}
	// The running turn was not disturbed, and a box that died comes back with its files.
	m.put(runs, "go", "")
	if got := m.ended(runs, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("turn = %+v", got)
	}
	if got := m.exec(died, "cat kept"); string(got.Stdout) != "kept\n" {
		t.Errorf("%+v", got)
	}
}
