package resume_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/resume"
)

// TestPlanResume: each combination of facts has its receipt.
func TestPlanResume(t *testing.T) {
	base := holdfast.Session{ID: "01890a5d-ac96-774b-bcce-b302099a8057", Status: holdfast.StatusPaused, CompletedTurns: 3, LastSeq: 20}
	with := func(f func(*resume.Facts)) resume.Facts {
		x := resume.Facts{Session: base, Files: resume.Files{Workspace: true, HadFiles: true}}
		f(&x)
		return x
	}
	for name, c := range map[string]struct {
		facts resume.Facts
		fresh bool
		kind  holdfast.Kind
		want  holdfast.Receipt
	}{
		"box lives": {
			facts: with(func(f *resume.Facts) { f.BoxLive = true }),
			want:  holdfast.Receipt{From: "paused", Tier: "live", Path: "fast", Turns: 3, Events: 20, Files: "kept", Box: "kept"},
		},
		"box gone": {
			facts: with(func(*resume.Facts) {}),
			want:  holdfast.Receipt{From: "paused", Tier: "rebuilt", Path: "cold", Turns: 3, Events: 20, Files: "kept", Box: "none"},
		},
		"an agent of its own, box lives": {
			facts: with(func(f *resume.Facts) { f.Agent, f.BoxLive = true, true }),
			want:  holdfast.Receipt{From: "paused", Tier: "pending", Path: "fast", Turns: 3, Events: 20, Files: "kept", Box: "kept"},
		},
		"an agent of its own, box gone": {
			facts: with(func(f *resume.Facts) { f.Agent = true }),
			want:  holdfast.Receipt{From: "paused", Tier: "pending", Path: "cold", Turns: 3, Events: 20, Files: "kept", Box: "none"},
		},
		"files gone":       {facts: with(func(f *resume.Facts) { f.Workspace = false }), kind: holdfast.KindConflict},
		"files gone, live": {facts: with(func(f *resume.Facts) { f.Workspace, f.BoxLive = false, true }), kind: holdfast.KindConflict},
		"files gone, fresh": {
			facts: with(func(f *resume.Facts) { f.Workspace = false }), fresh: true,
			want: holdfast.Receipt{From: "paused", Tier: "rebuilt", Path: "cold", Turns: 3, Events: 20, Files: "lost", Box: "none", Lost: []string{"all files of the workspace"}},
		},
		"never had files": {
			facts: with(func(f *resume.Facts) { f.Workspace, f.HadFiles = false, false }),
			want:  holdfast.Receipt{From: "paused", Tier: "rebuilt", Path: "cold", Turns: 3, Events: 20, Files: "empty", Box: "none"},
		},
		"files gone, a snapshot": {
			facts: with(func(f *resume.Facts) { f.Workspace, f.Snapshot = false, "snap" }),
			want:  holdfast.Receipt{From: "paused", Tier: "rebuilt", Path: "cold", Turns: 3, Events: 20, Files: "restored", Box: "none"},
		},
		"files there, a snapshot": {
			facts: with(func(f *resume.Facts) { f.Snapshot = "snap" }),
			want:  holdfast.Receipt{From: "paused", Tier: "rebuilt", Path: "cold", Turns: 3, Events: 20, Files: "kept", Box: "none"},
		},
		"no turns": {
			facts: with(func(f *resume.Facts) { f.Session.CompletedTurns = 0 }),
			want:  holdfast.Receipt{From: "paused", Tier: "fresh", Path: "cold", Events: 20, Files: "kept", Box: "none"},
		},
		"ended": {facts: with(func(f *resume.Facts) { f.Session.Status = holdfast.StatusEnded }), kind: holdfast.KindGone},
	} {
		plan, err := resume.Decide(c.facts, c.fresh)
		if holdfast.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, plan.Receipt); err == nil && d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if c.kind == holdfast.KindConflict && !strings.Contains(holdfast.HintOf(err), "--fresh") {
			t.Errorf("%s: hint %q", name, holdfast.HintOf(err))
		}
	}
}
