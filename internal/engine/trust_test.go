package engine_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
)

// TestMaxTrustOfAKey: above a key's maximum an explicit wish is denied, and what
// would be inherited is lowered and told (decisions: Trust).
func TestMaxTrustOfAKey(t *testing.T) {
	w := newWorld(t, newPuppet(), func(c *engine.Config) { c.Defaults.Trust = holdfast.Trusted })
	_, _, err := w.Create(t.Context(), holdfast.CreateSession{Trust: "full", MaxTrust: holdfast.Untrusted}, "")
	w.wantKind(err, holdfast.KindDenied)
	if !strings.Contains(holdfast.HintOf(err), "--max-trust trusted") {
		t.Errorf("hint %q", holdfast.HintOf(err))
	}

	low, _, err := w.Create(t.Context(), holdfast.CreateSession{MaxTrust: holdfast.Untrusted}, "")
	if err != nil || low.Trust != holdfast.Untrusted || low.Mode != holdfast.Untrusted.DefaultMode() {
		t.Fatalf("%+v, %v", low, err)
	}
	notices := datas[holdfast.Notice](w, low.ID, holdfast.EventNotice)
	if len(notices) != 1 || notices[0].Code != "trust.lowered" {
		t.Errorf("notices %+v", notices)
	}
	for _, req := range []holdfast.CreateSession{{}, {MaxTrust: holdfast.Trusted}, {Trust: "trusted", MaxTrust: holdfast.Trusted}} {
		if s, _, err := w.Create(t.Context(), req, ""); err != nil || s.Trust != holdfast.Trusted || len(datas[holdfast.Notice](w, s.ID, holdfast.EventNotice)) != 0 {
			t.Errorf("%+v: %+v, %v", req, s, err)
		}
	}

	trusted, mode, title := "trusted", "plan", "a title"
	_, err = w.Update(t.Context(), low.ID, holdfast.UpdateSession{Trust: &trusted, MaxTrust: holdfast.Untrusted})
	w.wantKind(err, holdfast.KindDenied)
	if s, err := w.Update(t.Context(), low.ID, holdfast.UpdateSession{Mode: &mode, MaxTrust: holdfast.Untrusted}); err != nil || s.Mode != holdfast.ModePlan {
		t.Errorf("%+v, %v", s, err)
	}

	// What works on the host is not such a key's to drive: labels are.
	high := w.create(holdfast.CreateSession{})
	_, err = w.Send(t.Context(), high, holdfast.SendMessage{Text: "x", MaxTrust: holdfast.Untrusted})
	w.wantKind(err, holdfast.KindDenied)
	_, err = w.Send(t.Context(), low.ID, holdfast.SendMessage{Text: "x", Trust: "trusted", MaxTrust: holdfast.Untrusted})
	w.wantKind(err, holdfast.KindDenied)
	_, err = w.Send(t.Context(), low.ID, holdfast.SendMessage{Text: "x", Trust: "trusted"})
	w.wantKind(err, holdfast.KindConflict)
	_, err = w.Send(t.Context(), high, holdfast.SendMessage{Text: "x", Trust: "untrusted", MaxTrust: holdfast.Untrusted})
	w.wantKind(err, holdfast.KindConflict)
	_, err = w.Send(t.Context(), low.ID, holdfast.SendMessage{Text: "x", Trust: "root"})
	w.wantKind(err, holdfast.KindInvalid)
	if _, err := w.Send(t.Context(), low.ID, holdfast.SendMessage{Text: "x", Trust: "sandboxed", MaxTrust: holdfast.Untrusted}); err != nil {
		t.Error(err)
	}
	_, err = w.Update(t.Context(), high, holdfast.UpdateSession{Mode: &mode, MaxTrust: holdfast.Untrusted})
	w.wantKind(err, holdfast.KindDenied)
	if s, err := w.Update(t.Context(), high, holdfast.UpdateSession{Title: &title, MaxTrust: holdfast.Untrusted}); err != nil || s.Title != title {
		t.Errorf("%+v, %v", s, err)
	}
}
