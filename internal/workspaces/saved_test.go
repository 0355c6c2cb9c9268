package workspaces_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestConfigIsSavedTwice: what a person saves while the server imports what they saved before is imported, too; or it is
// kept, if it names the revision before.
func TestConfigIsSavedTwice(t *testing.T) {
	for _, named := range []bool{false, true} {
		h := open(t)
		store := &between{Store: h.store.Workspaces}
		h.cfg.Store = store
		h.restart(t)
		h.create(t, "site", holdfast.WorkspaceSettings{Title: text("one")})
		second := "title: three\nnetwork: [example.com]\n"
		if named {
			second = strings.ReplaceAll(h.read(t, h.config("site")), "one", "three")
		}
		h.edit(t, "site", "one", "two")
		store.after = func() { h.put(t, h.config("site"), second) }
		if w := h.get(t, "site"); w.Title != "two" || w.ConfigError != "" {
			t.Errorf("named %t: the first: %+v", named, w)
		}
		if got := h.read(t, h.config("site")); got != second {
			t.Errorf("named %t: after the first import the file is %q", named, got)
		}
		h.later(time.Hour)
		w := h.get(t, "site")
		switch rejected := h.config("site") + ".rejected"; {
		case !named:
			if w.Title != "three" || len(w.Network) != 1 || w.ConfigError != "" {
				t.Errorf("the second: %+v", w)
			}
		case w.Title != "two" || !strings.Contains(w.ConfigError, rejected) || h.read(t, rejected) != second:
			t.Errorf("the second names an old revision: %+v, kept %q", w, h.read(t, rejected))
		}
		if got := h.read(t, h.config("site")); !strings.Contains(got, fmt.Sprintf("revision %d,", w.Revision)) {
			t.Errorf("named %t: the file is not exported again: %q", named, got)
		}
	}
}

// TestRejectedFilesStay: each file that cannot be imported is kept under a name of its own and listed. When no name is left,
// the file stays as it is.
func TestRejectedFilesStay(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{Title: text("one")})
	stale := h.read(t, h.config("site"))
	if _, err := h.Update(t.Context(), "site", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: text("two")}}); err != nil {
		t.Fatal(err)
	}
	rejected := h.config("site") + ".rejected"
	save := func(n int) (string, holdfast.Workspace) {
		content := fmt.Sprintf("%smodel: m%d\n", stale, n)
		h.put(t, h.config("site"), content)
		return content, h.get(t, "site")
	}
	for n := 1; n <= 3; n++ {
		name := rejected
		if n > 1 {
			name += fmt.Sprint(".", n)
		}
		want, w := save(n)
		if got := h.read(t, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if w.Title != "two" || strings.Count(w.ConfigError, rejected) != n {
			t.Errorf("after %d: %+v", n, w)
		}
	}
	for n := 4; n <= 100; n++ {
		h.put(t, rejected+fmt.Sprint(".", n), "")
	}
	want, w := save(5)
	if !strings.Contains(w.ConfigError, "no free file name is left") || !strings.Contains(w.ConfigError, "hint: ") {
		t.Errorf("without a name: %q", w.ConfigError)
	}
	if got := h.read(t, h.config("site")); got != want {
		t.Errorf("without a name the file is %q", got)
	}
	if err := os.Remove(rejected); err != nil {
		t.Fatal(err)
	}
	h.put(t, h.config("site"), want)
	if w := h.get(t, "site"); h.read(t, rejected) != want || w.Title != "two" {
		t.Errorf("with a name again: %+v", w)
	}
}
