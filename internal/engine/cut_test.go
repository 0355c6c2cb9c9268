package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// bootWorld is a world whose machine can be cut off; boot is its boot id.
func bootWorld(t *testing.T, boot *string) *world {
	t.Helper()
	p := newPuppet()
	w := &world{t: t, dir: t.TempDir(), rt: p}
	// A turn that says "box" runs one command successfully.
	p.box = func(ctx context.Context, host runtime.Host) error {
		_, err := host.Keep(ctx, nil,
			journal.Draft{Type: holdfast.EventToolRequested, Data: holdfast.ToolRequested{ToolUseID: "u", Name: "Bash", Input: []byte(`{}`)}},
			journal.Draft{Type: holdfast.EventToolFinished, Data: holdfast.ToolFinished{ToolUseID: "u", Outcome: holdfast.ExitOK}})
		return err
	}
	w.tune = func(c *engine.Config) { c.Boot = *boot }
	w.start()
	t.Cleanup(func() { w.stop(true) })
	return w
}

// notices returns a session's notices of power cuts.
func (w *world) notices(id holdfast.SessionID) []holdfast.FilesAtRisk {
	w.t.Helper()
	var out []holdfast.FilesAtRisk
	for _, ev := range w.log(id) {
		var n holdfast.Notice
		if ev.Type == holdfast.EventNotice {
			if err := ev.Decode(&n); err != nil {
				w.t.Fatal(err)
			}
			if n.Code == holdfast.NoticeFilesAtRisk {
				out = append(out, *n.AtRisk)
			}
		}
	}
	return out
}

// TestPowerCutIsTold: after an unclean end of the machine each session whose commands
// ended within the last minute has one notice that names their turns, and so has the
// receipt of its next resume. Neither a crash nor a clean end gives one.
func TestPowerCutIsTold(t *testing.T) {
	boot := "a"
	w := bootWorld(t, &boot)
	id, quiet := w.create(holdfast.CreateSession{}), w.create(holdfast.CreateSession{})
	w.ended(id, w.send(id, "hello").ID)
	second := w.send(id, "box")
	w.ended(id, second.ID)
	w.ended(quiet, w.send(quiet, "hello").ID)
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if got := w.notices(id); len(got) != 0 {
		t.Errorf("a crash of the server gave the notice %+v", got)
	}
	boot = "b"
	w.restart()
	boot = "c"
	w.restart()
	got := w.notices(id)
	if len(got) != 1 || len(got[0].Turns) != 1 || got[0].Turns[0].ID != second.ID || got[0].Turns[0].Number != 2 || got[0].Direct {
		t.Fatalf("notices %+v, want one of turn 2", got)
	}
	if n := w.notices(quiet); len(n) != 0 {
		t.Errorf("a session without commands has the notices %+v", n)
	}
	dry, err := w.Resume(t.Context(), id, holdfast.ResumeSession{DryRun: true})
	if err != nil || dry.Receipt == nil || dry.Receipt.AtRisk == nil {
		t.Errorf("the plan of a resume is %+v, %v", dry.Receipt, err)
	}
	res, err := w.Resume(t.Context(), id, holdfast.ResumeSession{})
	if err != nil || res.Receipt == nil || res.Receipt.AtRisk == nil || !slices.Equal(res.Receipt.AtRisk.Turns, got[0].Turns) {
		t.Errorf("receipt %+v, %v", res.Receipt, err)
	}
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if res, err = w.Resume(t.Context(), id, holdfast.ResumeSession{}); err != nil || res.Receipt.AtRisk != nil {
		t.Errorf("a later receipt tells it again: %+v, %v", res.Receipt, err)
	}
	w.ended(id, w.send(id, "box").ID)
	w.stop(true)
	boot = "d"
	w.start()
	if got := w.notices(id); len(got) != 1 {
		t.Errorf("a clean end of the server gave the notices %+v", got[1:])
	}
}

// TestPowerCutIsToldOnceWhenKilledWhileTelling: if a start ends between two notices,
// the next one writes the rest.
func TestPowerCutIsToldOnceWhenKilledWhileTelling(t *testing.T) {
	boot := "a"
	w := bootWorld(t, &boot)
	var ids []holdfast.SessionID
	for range 3 {
		id := w.create(holdfast.CreateSession{})
		w.ended(id, w.send(id, "box").ID)
		ids = append(ids, id)
	}
	w.stop(false)
	boot = "b"
	n := 0
	w.refuseWhile(func(c journal.Encoded) bool {
		if has(c, holdfast.EventNotice) {
			n++
		}
		return n > 1
	})
	if err := w.try(); err == nil {
		t.Fatal("the start went on without a notice")
	}
	w.stop(false)
	w.acceptAll()
	w.start()
	for _, id := range ids {
		if got := w.notices(id); len(got) != 1 {
			t.Errorf("session %s has %d notices", id, len(got))
		}
		// The receipt repeats it, whichever start wrote the notice.
		if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
			t.Fatal(err)
		}
		if res, err := w.Resume(t.Context(), id, holdfast.ResumeSession{}); err != nil || res.Receipt.AtRisk == nil {
			t.Errorf("session %s: receipt %+v, %v", id, res.Receipt, err)
		}
	}
}

// TestPowerCutIsToldInTheRunningTurn: a turn that goes on after the cut has the notice
// as one of its own events, so that its agent gets it first.
func TestPowerCutIsToldInTheRunningTurn(t *testing.T) {
	boot := "a"
	w := bootWorld(t, &boot)
	id := w.create(holdfast.CreateSession{})
	w.ended(id, w.send(id, "box").ID)
	running := w.send(id, "wait")
	w.stop(false)
	boot = "b"
	w.start()
	for _, ev := range w.log(id) {
		if ev.Type == holdfast.EventNotice && ev.Turn != running.ID {
			t.Errorf("the notice #%d is of turn %q, want %q", ev.Seq, ev.Turn, running.ID)
		}
	}
	if got := w.notices(id); len(got) != 1 {
		t.Errorf("notices %+v", got)
	}
	// The end of that very turn does not keep it from the receipt.
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{Interrupt: true}); err != nil {
		t.Fatal(err)
	}
	w.ended(id, running.ID)
	if res, err := w.Resume(t.Context(), id, holdfast.ResumeSession{}); err != nil || res.Receipt == nil || res.Receipt.AtRisk == nil {
		t.Errorf("receipt %+v, %v", res.Receipt, err)
	}
}

// TestPowerCutNamesEveryTurn: a session may have hundreds of turns in a minute.
func TestPowerCutNamesEveryTurn(t *testing.T) {
	boot := "a"
	w := bootWorld(t, &boot)
	id := w.create(holdfast.CreateSession{})
	const turns = 130
	var last holdfast.TurnID
	for range turns {
		last = w.send(id, "box").ID
	}
	w.ended(id, last)
	boot = "b"
	w.restart()
	got := w.notices(id)
	if len(got) != 1 || len(got[0].Turns) != turns {
		t.Fatalf("notices %+v", got)
	}
	for i, at := range got[0].Turns {
		if at.Number != int64(i)+1 {
			t.Errorf("turn %d is named in place %d", at.Number, i)
		}
	}
	// Their files have left the page cache: another cut does not name them.
	boot = "c"
	w.restart()
	w.ended(id, w.send(id, "box").ID)
	boot = "d"
	w.restart()
	if got := w.notices(id); len(got) != 2 || len(got[1].Turns) != 1 || got[1].Turns[0].Number != turns+1 {
		t.Errorf("notices %+v", got[1:])
	}
}
