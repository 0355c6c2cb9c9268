package workspaces_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

// TestWSR27_EnvironmentOfAWorkspace: a workspace shows the names of its environment and no value, neither to readers nor in
// the file, the log or the database. Updates, and changes of the file, touch only the names that they name; *** stands for
// what is stored. The values outlive a new root key and a start.
func TestWSR27_EnvironmentOfAWorkspace(t *testing.T) {
	h := open(t)
	const secret, other = "c4nary-one", "c4nary-two"
	has := func(when string, want map[string]string) {
		t.Helper()
		w := h.get(t, "site") // which imports a file that changed
		env, err := workspaces.Environment(h.Workspaces)(t.Context(), "site")
		if err != nil || !maps.Equal(env, want) {
			t.Errorf("%s: %v, %v; want %v", when, env, err, want)
		}
		names := map[string]string(nil)
		for name := range want {
			if names == nil {
				names = map[string]string{}
			}
			names[name] = "***"
		}
		if !reflect.DeepEqual(w.Env, names) || w.ConfigError != "" {
			t.Errorf("%s: shown as %+v", when, w)
		}
	}
	update := func(req holdfast.UpdateWorkspace) {
		t.Helper()
		if _, err := h.Update(t.Context(), "site", req); err != nil {
			t.Fatal(err)
		}
	}
	h.create(t, "site", holdfast.WorkspaceSettings{Env: map[string]string{"TOKEN": secret, "EMPTY": ""}})
	has("created", map[string]string{"TOKEN": secret, "EMPTY": ""})
	if got := h.read(t, h.config("site")); !strings.HasSuffix(got, "\nenv:\n  EMPTY: \"***\"\n  TOKEN: \"***\"\n") {
		t.Errorf("exported: %q", got)
	}
	update(holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Env: map[string]string{"NEW": other, "TOKEN": "***"}}, RemoveEnv: []string{"EMPTY", "NONE"}})
	has("updated", map[string]string{"TOKEN": secret, "NEW": other})
	update(holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: text("x")}})
	has("updated otherwise", map[string]string{"TOKEN": secret, "NEW": other})

	h.edit(t, "site", "  NEW: \"***\"\n", "  THIRD: c4nary-three\n")
	has("imported", map[string]string{"TOKEN": secret, "THIRD": "c4nary-three"})
	if got := h.read(t, h.config("site")); strings.Contains(got, "c4nary") {
		t.Errorf("the file keeps a value: %q", got)
	}
	if _, err := h.vault.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	has("with a new root key", map[string]string{"TOKEN": secret, "THIRD": "c4nary-three"})
	h.restart(t)
	has("after a start", map[string]string{"TOKEN": secret, "THIRD": "c4nary-three"})

	good := h.read(t, h.config("site"))
	for config, want := range map[string]string{
		"env: [c4nary]\n": ":1:6: env: the value is not a map",
		"env:\n  TOKEN: \"***\"\n  GONE: \"***\"\n": ":3:9: env.GONE: *** stands for a variable's stored value, but none is stored",
		"env:\n  PORT: 8080\n":                      ":2:9: env.PORT: the value is not a text: put it in quotes",
		"env:\n  HOLDFAST_X: c4nary\n":              ":2:15: env.HOLDFAST_X: ",
		"env:\n  A-B: c4nary\n":                     ":2:8: env.A-B: ",
		"env:\n  A: {c4nary: x}\n":                  ":2:6: env.A: the value is not a text",
	} {
		h.put(t, h.config("site"), config)
		if w := h.get(t, "site"); !strings.Contains(w.ConfigError, want) || strings.Contains(w.ConfigError, "c4nary") {
			t.Errorf("%q: %q, want %q", config, w.ConfigError, want)
		}
	}
	h.put(t, h.config("site"), good)
	h.refuse(t, secret)
	has("after refusals", map[string]string{"TOKEN": secret, "THIRD": "c4nary-three"})
	if strings.Contains(h.log.String(), "c4nary") {
		t.Errorf("the log has a value: %s", &h.log)
	}
	h.nowhere(t, "c4nary")
}

// A key that is taken away takes the whole environment away.
//
// WS-R27.
func TestEnvironmentIsTakenAway(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{Env: map[string]string{"A": "1"}})
	h.edit(t, "site", "env:\n  A: \"***\"\n", "title: x\n")
	w := h.get(t, "site")
	if env, err := workspaces.Environment(h.Workspaces)(t.Context(), "site"); len(env) != 0 || err != nil || w.Env != nil || w.Title != "x" {
		t.Errorf("%+v, %v, %v", w, env, err)
	}
}

// refuse sets environments that the workspace site cannot have; no error has the value.
func (h *home) refuse(t *testing.T, secret string) {
	t.Helper()
	for _, env := range []map[string]string{{"GONE": "***"}, {"HOLDFAST_X": secret}, {"A=B": secret}, {"A": secret + "\x00"}} {
		_, err := h.Update(t.Context(), "site", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Env: env}})
		if err == nil || strings.Contains(err.Error()+holdfast.HintOf(err), secret) {
			t.Errorf("%v: %v", env, err)
		}
	}
}

// nowhere closes the store and looks for a text in its files.
func (h *home) nowhere(t *testing.T, text string) {
	t.Helper()
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(h.data, "holdfast.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err != nil || bytes.Contains(b, []byte(text)) {
			t.Errorf("%s has a value, or %v", name, err)
		}
	}
}
