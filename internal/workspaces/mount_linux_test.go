package workspaces_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// tree makes a directory that is the server's tree from the next start on.
func (h *home) tree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(h.own), "tree")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.cfg.TreeRoot = dir
	h.restart(t)
	return dir
}

// refuses checks that an error has a kind, names what is wrong and says what to do.
func refuses(t *testing.T, what string, err error, kind holdfast.Kind, names string) {
	t.Helper()
	if !holdfast.IsKind(err, kind) || !strings.Contains(err.Error(), names) || holdfast.HintOf(err) == "" {
		t.Errorf("%s: %v (hint: %s), want %s that names %s", what, err, holdfast.HintOf(err), kind, names)
	}
}

// TestWSR28_NoSessionIsWiderThanItsWorkspace: a session has the mount scope of its workspace or a narrower one.
func TestWSR28_NoSessionIsWiderThanItsWorkspace(t *testing.T) {
	h := open(t)
	h.tree(t)
	wide, narrow, none := &holdfast.Workspace{ID: "a", Mount: holdfast.MountTree}, &holdfast.Workspace{ID: "a"}, &holdfast.Workspace{}
	for _, tc := range []struct {
		space *holdfast.Workspace
		asked string
		trust holdfast.Trust
		want  string
		kind  holdfast.Kind
	}{
		{none, "", holdfast.Untrusted, "", ""},
		{none, "workspace", holdfast.Trusted, "", ""},
		{none, "tree-ro", holdfast.Untrusted, "", holdfast.KindConflict},
		{narrow, "", holdfast.Untrusted, "", ""},
		{narrow, "tree-ro", holdfast.Untrusted, "", holdfast.KindConflict},
		{wide, "", holdfast.Untrusted, "tree-ro", ""},
		{wide, "", holdfast.Trusted, "tree-ro", ""},
		{wide, "workspace", holdfast.Untrusted, "", ""},
		{wide, "tree-ro", holdfast.Untrusted, "tree-ro", ""},
		{wide, "tree-ro", holdfast.Trusted, "", holdfast.KindInvalid},
		{wide, "tree-rw", holdfast.Untrusted, "", holdfast.KindInvalid},
		{wide, "Workspace", holdfast.Untrusted, "", holdfast.KindInvalid},
	} {
		got, err := h.Mounts.Choose(tc.space, tc.asked, tc.trust)
		if got != tc.want || tc.kind == "" != (err == nil) {
			t.Errorf("%+v: %q, %v", tc, got, err)
		}
		if tc.kind != "" {
			refuses(t, tc.asked, err, tc.kind, "")
		}
	}
	h.cfg.TreeRoot = ""
	h.restart(t)
	_, err := h.Mounts.Choose(wide, "", holdfast.Untrusted)
	refuses(t, "without tree_root", err, holdfast.KindConflict, "no tree")
	if got, err := h.Mounts.Choose(wide, "workspace", holdfast.Untrusted); got != "" || err != nil {
		t.Errorf("the narrow scope without tree_root: %q, %v", got, err)
	}
}

// TestWSR28_TheTreeIsApart: a tree that contains the data directory, a directory of it or a home, or lies in one of the
// data directory, is refused, whatever symlinks, nested directories and mounts lead there.
func TestWSR28_TheTreeIsApart(t *testing.T) {
	h := open(t)
	top := filepath.Dir(h.data)
	make := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.MkdirAll(filepath.Join(top, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(filepath.Join(top, to), filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	make("fine/deep", "elsewhere/sessions", "data/sessions-of-old/one/home", "alias", "aside/part")
	link("elsewhere/sessions", "data/sessions") // a part of the data directory on another disk
	link("fine", "link")
	link("elsewhere", "fine/deep/link") // leads nowhere in a box
	link("missing", "data/dangling")
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(dir, names string) {
		t.Helper()
		h.cfg.TreeRoot = dir
		if dir != "" && !filepath.IsAbs(dir) {
			h.cfg.TreeRoot = filepath.Join(top, dir)
		}
		h.restart(t)
		err := h.Mounts.Intact(h.own)
		if names == "" {
			if err != nil {
				t.Errorf("%s: %v", dir, err)
			}
			return
		}
		refuses(t, dir, err, holdfast.KindConflict, names)
	}
	for dir, names := range map[string]string{
		"fine": "", "fine/deep": "", "aside": "",
		"data": "data directory", "data/workspaces": "data directory", "data/sessions-of-old/one/home": "data directory", ".": "data directory",
		"elsewhere": "data directory", "elsewhere/sessions": "data directory", "data/sessions": "symlink",
		"link": "symlink", "link/deep": "symlink", "missing": "no such file", "file": "not a directory",
		"/": "root of the file system", "/root": "home directory", "": "no tree",
	} {
		check(dir, names)
	}
	if os.Getuid() != 0 {
		t.Skip("only root mounts")
	}
	bind := func(from, to string) {
		t.Helper()
		if err := unix.Mount(filepath.Join(top, from), filepath.Join(top, to), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(top, to), unix.MNT_DETACH) })
	}
	bind("data/workspaces", "alias")
	check("alias", "data directory")
	bind("data", "aside/part")
	check("aside/part", "data directory")
	check("aside/part/sessions-of-old", "data directory")
	check("aside", "") // its box has not what is mounted in it
	make("work/site")
	own := h.own
	for _, h.own = range []string{filepath.Join(top, "work"), filepath.Join(top, "work/site"), own} {
		check("work", "")
		check("work/site", "")
	}
	make("other-name")
	bind("work", "other-name")
	h.own = filepath.Join(top, "work/site")
	check("other-name", "under another path")
	h.own = filepath.Join(top, "work")
	check("other-name", "under another path")
	check("other-name/site", "under another path")
}

// TestWSR28_TheMountOfAWorkspace: the mount scope is a setting of a workspace as others are, in the API and in
// config.yaml, and only a server with a tree has it.
func TestWSR28_TheMountOfAWorkspace(t *testing.T) {
	h := open(t)
	h.restart(t)
	create := func(id, mount string) error {
		_, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: id, WorkspaceSettings: holdfast.WorkspaceSettings{Mount: &mount}})
		return err
	}
	refuses(t, "a workspace without a tree", create("a", "tree-ro"), holdfast.KindConflict, "no tree")
	h.tree(t)
	refuses(t, "an unknown scope", create("a", "tree"), holdfast.KindInvalid, `"tree"`)
	if err := create("a", "tree-ro"); err != nil {
		t.Fatal(err)
	}
	if got := h.get(t, "a").Mount; got != "tree-ro" {
		t.Errorf("mount %q", got)
	}
	h.edit(t, "a", "mount: tree-ro", "mount: workspace")
	if w := h.get(t, "a"); w.Mount != "" || w.ConfigError != "" || strings.Contains(h.read(t, h.config("a")), "\nmount") {
		t.Errorf("after an import: %+v", w)
	}
	h.put(t, h.config("a"), "mount: everything\n")
	if w := h.get(t, "a"); w.Mount != "" || !strings.Contains(w.ConfigError, "config.yaml:1:8: mount") {
		t.Errorf("an unknown scope in the file: %+v", w)
	}
	h.put(t, h.config("a"), "mount: tree-ro\ntitle: A\n")
	if w := h.get(t, "a"); w.Mount != "tree-ro" || w.ConfigError != "" {
		t.Errorf("the scope in the file: %+v", w)
	}
	// Without the tree the setting stays, and other settings can be changed.
	h.cfg.TreeRoot = ""
	h.restart(t)
	if w, err := h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: text("B")}}); err != nil || w.Mount != "tree-ro" {
		t.Errorf("another setting: %+v, %v", w, err)
	}
	h.edit(t, "a", "title: B", "title: C")
	if w := h.get(t, "a"); w.Title != "C" || w.ConfigError != "" {
		t.Errorf("another setting in the file: %+v", w)
	}
	if w, err := h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Mount: text("")}}); err != nil || w.Mount != "" {
		t.Errorf("the narrow scope: %+v, %v", w, err)
	}
	_, err := h.Update(t.Context(), "a", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Mount: text("tree-ro")}})
	refuses(t, "the wide scope again", err, holdfast.KindConflict, "no tree")
	h.put(t, h.config("a"), "title: C\nmount: tree-ro\n")
	if w := h.get(t, "a"); w.Mount != "" || !strings.Contains(w.ConfigError, "mount") || !strings.Contains(w.ConfigError, "tree_root") {
		t.Errorf("the wide scope in the file: %+v", w)
	}
}
