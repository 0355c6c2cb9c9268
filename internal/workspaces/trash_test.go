package workspaces_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// TestTimeInTheTrash: the files of a deleted workspace stay in the trash as long as they are to, however long ago the
// workspace was changed last, and at whatever point the server was killed: their directory has the time of the
// deletion before it is moved.
func TestTimeInTheTrash(t *testing.T) {
	const keep = 7 * 24 * time.Hour
	h := open(t)
	b := h.boxed(t)
	h.create(t, "site", holdfast.WorkspaceSettings{})
	h.put(t, b.files, "kept")
	site, trashed := filepath.Dir(h.config("site")), filepath.Join(h.data, "workspaces", ".trash", "site.1")
	old := time.Unix(0, h.clock.Load()).Add(-2 * keep)
	if err := os.Chtimes(site, old, old); err != nil {
		t.Fatal(err)
	}
	// The move fails, so the directory is as a server leaves it that is killed before the move.
	if err := os.MkdirAll(filepath.Join(trashed, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Delete(t.Context(), "site", false, false); err == nil {
		t.Fatal("the directory was moved over another one")
	}
	if st, err := os.Stat(site); err != nil || st.ModTime().UnixNano() != h.clock.Load() {
		t.Fatalf("before the move the directory has the time %v, %v", st.ModTime(), err)
	}
	// As a server leaves it that is killed after the move.
	if err := os.RemoveAll(trashed); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(site, trashed); err != nil {
		t.Fatal(err)
	}
	h.restart(t)
	if _, err := h.Get(t.Context(), "site"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("after the start: %v", err)
	}
	kept := filepath.Join(trashed, "files", "kept")
	for range 2 {
		if err := h.Empty(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("the files are gone too early: %v", err)
		}
		h.later(keep - time.Hour)
	}
	h.later(time.Hour)
	if err := h.Empty(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept); err == nil {
		t.Error("the files are still there after their time")
	}
}

// TestNoTurnStartsDuringADeletion: from the moment at which a deletion looks whether turns run, the sessions of the workspace
// accept no message, each until it is out. They do again after a deletion that was refused.
func TestNoTurnStartsDuringADeletion(t *testing.T) {
	h := open(t)
	b := h.boxed(t)
	var accepts func(holdfast.SessionID) error
	running := true
	var one, two holdfast.SessionID
	asked := 0
	closed := func(when string, want map[holdfast.SessionID]bool) {
		t.Helper()
		asked++
		for id, closed := range want {
			if err := accepts(id); (err != nil) != closed {
				t.Errorf("%s: %s: %v", when, id, err)
			} else if closed {
				isKind(t, err, holdfast.KindConflict, "site", string(id))
			}
		}
	}
	h.cfg.Running = func(context.Context, holdfast.SessionID) (bool, error) {
		closed("during the look", map[holdfast.SessionID]bool{one: true, two: true})
		return running, nil
	}
	h.restart(t)
	h.create(t, "site", holdfast.WorkspaceSettings{})
	one, two = h.join(t, "site"), h.join(t, "site")
	one, two = min(one, two), max(one, two) // sessions leave in the order of their ids
	accepts = workspaces.Accepting(h.Workspaces)

	if _, err := h.Delete(t.Context(), "site", false, false); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("while a turn runs: %v", err)
	}
	closed("after a refusal", map[holdfast.SessionID]bool{one: false, two: false})
	running, b.fail = false, "leave"
	if _, err := h.Delete(t.Context(), "site", false, false); err == nil {
		t.Error("a deletion whose box does not end has no error")
	}
	closed("after a failure", map[holdfast.SessionID]bool{one: true, two: true})
	b.fail = ""
	b.leaves = func() {
		_, in := h.Of(one)
		closed("while they leave", map[holdfast.SessionID]bool{one: in, two: true})
	}
	if _, err := h.Delete(t.Context(), "site", false, false); err != nil {
		t.Fatal(err)
	}
	closed("afterwards", map[holdfast.SessionID]bool{one: false, two: false})
	if asked < 9 {
		t.Errorf("looked %d times", asked)
	}
}
