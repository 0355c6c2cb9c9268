package workspaces_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/workspaces"
)

func text(s string) *string { return &s }

func (h *home) config(id string) string {
	return filepath.Join(h.data, "workspaces", id, "config.yaml")
}

func (h *home) read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// put writes a file as a person does, some time before the next look.
func (h *home) put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	h.later(time.Hour)
}

// edit replaces a text of a workspace's config.yaml.
func (h *home) edit(t *testing.T, id, from, to string) {
	t.Helper()
	old := h.read(t, h.config(id))
	if !strings.Contains(old, from) {
		t.Fatalf("%q has no %q", old, from)
	}
	h.put(t, h.config(id), strings.ReplaceAll(old, from, to))
}

func (h *home) get(t *testing.T, id holdfast.Slug) holdfast.Workspace {
	t.Helper()
	w, err := h.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (h *home) create(t *testing.T, id string, s holdfast.WorkspaceSettings) holdfast.Workspace {
	t.Helper()
	w, err := h.Create(t.Context(), holdfast.CreateWorkspace{ID: id, WorkspaceSettings: s})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestConfigIsExported: each creation and update writes config.yaml, whose mode is 0600, and which names no slug. A file
// that is missing, or that is older than the database, is written at the start of the server.
func TestConfigIsExported(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{Title: text("one: 'two'"), Network: &[]string{}})
	want := "title: \"one: 'two'\"\nnetwork: []\n"
	got := h.read(t, h.config("site"))
	if !strings.HasSuffix(got, "\n"+want) || !strings.Contains(got, "# exported: revision 1, checksum ") {
		t.Errorf("after the creation: %q, want %q at its end", got, want)
	}
	if st, err := os.Stat(h.config("site")); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := h.Update(t.Context(), "site", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{DefaultTrust: text("vault"), Title: text("")}}); err != nil {
		t.Fatal(err)
	}
	old, got := got, h.read(t, h.config("site"))
	if !strings.HasSuffix(got, "\ndefault_trust_level: untrusted\nnetwork: []\n") || !strings.Contains(got, "revision 2,") {
		t.Errorf("after the update: %q", got)
	}
	for name, spoil := range map[string]func() error{
		"missing": func() error { return os.RemoveAll(filepath.Dir(h.config("site"))) },
		"old":     func() error { return os.WriteFile(h.config("site"), []byte(old), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		h.restart(t)
		if now := h.read(t, h.config("site")); now != got {
			t.Errorf("%s: after a start %q, want %q", name, now, got)
		}
		if w := h.get(t, "site"); w.Revision != 2 || w.ConfigError != "" {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// TestConfigIsImported: what a person writes into config.yaml is imported, by a look at most every two seconds and at
// the server's start; a key that is taken away goes back to the server's default.
func TestConfigIsImported(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{Title: text("one"), Model: text("m"), DefaultTrust: text("trusted")})
	h.get(t, "site")
	h.edit(t, "site", "title: one\n", "# mine\ntitle: two\nnetwork: [example.com]\n")
	if w := h.get(t, "site"); w.Title != "two" || !reflect.DeepEqual(w.Network, []string{"example.com"}) || w.Model != "m" || w.Revision != 2 {
		t.Errorf("after a change: %+v", w)
	}
	if got := h.read(t, h.config("site")); !strings.Contains(got, "revision 2,") || strings.Contains(got, "mine") {
		t.Errorf("the file is not exported again: %q", got)
	}
	h.edit(t, "site", "model: m\n", "")
	if list, err := h.List(t.Context()); err != nil || list[0].Model != "" || list[0].Title != "two" {
		t.Errorf("after a key was taken away: %+v, %v", list, err)
	}
	h.edit(t, "site", "title: two", "title: three")
	if w, err := h.For(t.Context(), "site", "", ""); err != nil || w.Title != "three" {
		t.Errorf("a new session's workspace: %+v, %v", w, err)
	}
	h.edit(t, "site", "title: three", "title: four")
	h.restart(t)
	if w := h.get(t, "site"); w.Title != "four" || w.Revision != 5 {
		t.Errorf("after a start: %+v", w)
	}

	// Between two looks the file may be anything, and a file that was just written is left to its editor.
	h.later(time.Hour)
	h.get(t, "site")
	old := h.read(t, h.config("site"))
	if err := os.WriteFile(h.config("site"), []byte(strings.ReplaceAll(old, "four", "five")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, "four"}, {time.Minute, "five"}} {
		h.later(c.after)
		if w := h.get(t, "site"); w.Title != c.want {
			t.Errorf("%v later: %q, want %q", c.after, w.Title, c.want)
		}
	}
	h.edit(t, "site", "five", "six")
	st, err := os.Stat(h.config("site"))
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Store(st.ModTime().Add(500 * time.Millisecond).UnixNano())
	h.restart(t)
	if w := h.get(t, "site"); w.Title != "five" || w.ConfigError != "" {
		t.Errorf("a file that is half a second old: %+v", w)
	}
}

// TestWSR13_OldKeys: config.yaml may use the key trust_level and the older words for trust; if both keys
// are there the
// new one wins. The slug is the name of the directory, and no key (WS-R11, WS-R13, WS-R119).
//
// WS-R10.
func TestWSR13_OldKeys(t *testing.T) {
	for config, want := range map[string]holdfast.Trust{
		"trust_level: full\n":                                  holdfast.Trusted,
		"trust_level: vault\n":                                 holdfast.Untrusted,
		"trust_level: sandboxed\nruntime: any\n":               holdfast.Untrusted,
		"trust_level: full\ndefault_trust_level: untrusted\n":  holdfast.Untrusted,
		"default_trust_level: full\ntrust_level: anything\n":   holdfast.Trusted,
		"default_trust_level: \"\"\ntrust_level: full\n":       "",
		"title: >\n  a folded\n  text\ntrust_level: 'trusted'": holdfast.Trusted,
	} {
		h := open(t)
		h.create(t, "site", holdfast.WorkspaceSettings{})
		h.put(t, h.config("site"), config)
		if w := h.get(t, "site"); w.ID != "site" || w.DefaultTrust != want || w.ConfigError != "" {
			t.Errorf("%q: %+v, want trust %q", config, w, want)
		}
		if got := h.read(t, h.config("site")); strings.Contains(got, "\ntrust_level:") {
			t.Errorf("%q: exported with the old key: %q", config, got)
		}
	}
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{})
	h.put(t, h.config("site"), "slug: other\n")
	if w := h.get(t, "site"); w.ID != "site" || !strings.Contains(w.ConfigError, `config.yaml:1:1: "slug": the key is not known`) {
		t.Errorf("with a slug: %+v", w)
	}
}

// TestFaultyConfig: a file that cannot be imported changes nothing. The error names file, line, column and key; the log
// has it once, and the workspace shows it until the file is right.
func TestFaultyConfig(t *testing.T) {
	n := 0
	h := open(t)
	for config, want := range map[string]string{
		"":                                           ": it has no keys",
		"# nothing\n":                                ": it has no keys",
		"title: x\ncolour: red\n":                    `:2:1: "colour": the key is not known`,
		"title: x\n  model: m\n":                     ":1:8: ",
		"title: x\ntitle: y\n":                       ":2:1: ",
		"title: [x]\n":                               ":1:8: title: the value is not a text",
		"title: 7\n":                                 ":1:8: title: the value is not a text",
		"title:\n":                                   ": title: the value is not a text",
		"network: x\n":                               ":1:10: network: the value is not a list",
		"network:\n- x\n- {y: z}\n":                  ":3:",
		"network: [bad]\n":                           ":1:10: network: bad is bad",
		"model: bad\n":                               ":1:8: model: bad is bad",
		"title: x\nruntime: bad\n":                   ":2:10: runtime: bad is bad",
		"default_trust_level: root\n":                `:1:22: default_trust_level: "root" is not a trust level`,
		"trust_level: root\n":                        `:1:14: trust_level: "root" is not a trust level`,
		"dir: /elsewhere\n":                          `:1:6: dir: the directory of the workspace cannot be changed to "/elsewhere"`,
		"title: &a x\n":                              ": title: the value is not a text",
		"<<: {title: x}\n":                           ":1:1: ",
		"- title\n":                                  ":1:",
		"title: x\n---\ntitle: y\n":                  "more than one YAML document",
		"title: \xff\n":                              "not UTF-8",
		"limits: 4\n":                                ":1:9: limits: the value is not a map",
		"title: x\nlimits:\n  ram: 1GiB\n":           ":3:3: limits.ram: the key is not known",
		"limits: {cpus: 1, memory: much}\n":          `:1:27: limits.memory: the limit memory of a workspace cannot be "much"`,
		"limits:\n  memory: 8TiB\n":                  `:2:11: limits.memory: the limit memory of the workspace, "8TiB", is above that of this server, 4GiB`,
		"limits:\n  cpus: {a: 1}\n":                  ": limits.cpus: the value is neither a number",
		"permissions: [Read]\n":                      ":1:14: permissions: the value is not a map",
		"permissions:\n  grant: [Read]\n":            ":2:3: permissions.grant: the key is not known",
		"permissions:\n  deny: Read\n":               ":2:9: permissions.deny: the value is not a list",
		"permissions:\n  deny:\n  - Read\n  - bad\n": ": permissions.deny: bad is bad",
		"permissions:\n  deny: [{a: b}]\n":           ":2:10: permissions.deny: the list has an entry that is not a text",
		"title: " + strings.Repeat("x", 501) + "\n":  ":1:8: title: ",
		strings.Repeat("#\n", 40_000):                "longer than 65536 bytes",
	} {
		n++
		id := fmt.Sprintf("site-%d", n)
		before := h.create(t, id, holdfast.WorkspaceSettings{Title: text("mine"), DefaultTrust: text("untrusted")})
		h.put(t, h.config(id), config)
		w := h.get(t, holdfast.Slug(id))
		if !strings.Contains(w.ConfigError, h.config(id)) || !strings.Contains(w.ConfigError, want) {
			t.Errorf("%.40q: error %q, want %q", config, w.ConfigError, want)
		}
		for range 3 {
			h.later(time.Hour)
			w = h.get(t, holdfast.Slug(id))
		}
		if said := strings.Count(h.log.String(), "was not imported or written\" workspace="+id+" "); said != 1 {
			t.Errorf("%.40q: the log has it %d times: %s", config, said, &h.log)
		}
		if w.ConfigError = ""; !reflect.DeepEqual(w, before) {
			t.Errorf("%.40q: changed to %+v", config, w)
		}
		if got := h.read(t, h.config(id)); got != config {
			t.Errorf("%.40q: the file was changed to %q", config, got)
		}
		h.put(t, h.config(id), "title: right\n")
		if w := h.get(t, holdfast.Slug(id)); w.Title != "right" || w.ConfigError != "" {
			t.Errorf("%.40q: after the file is right: %+v", config, w)
		}
	}
	h.create(t, "site", holdfast.WorkspaceSettings{})
	if err := os.Remove(h.config("site")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", h.config("site")); err != nil {
		t.Fatal(err)
	}
	h.later(time.Hour)
	if w := h.get(t, "site"); !strings.Contains(w.ConfigError, "symlink") {
		t.Errorf("a symlink: %q", w.ConfigError)
	}
}

// TestConfigOfAnOwnDirectory: the directory that the server makes for a workspace in a directory of the user's own has
// only config.yaml, which shows the directory.
func TestConfigOfAnOwnDirectory(t *testing.T) {
	h := open(t)
	dir := h.dir(t, "own")
	w, err := h.For(t.Context(), "", dir, "")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(filepath.Dir(h.config("own")))
	if err != nil || len(list) != 1 {
		t.Errorf("the directory has %v, %v", list, err)
	}
	if got := h.read(t, h.config("own")); !strings.HasSuffix(got, "\ndir: "+dir+"\n") {
		t.Errorf("config.yaml %q", got)
	}
	h.edit(t, "own", "dir: ", "title: mine\ndir: ")
	if got, err := h.For(t.Context(), "", dir, ""); err != nil || got.ID != w.ID || got.Title != "mine" || got.Dir != dir {
		t.Errorf("after a change: %+v, %v", got, err)
	}
	h.put(t, h.config("own"), "dir: "+h.data+"\n")
	if got := h.get(t, "own"); got.Dir != dir || got.Title != "mine" || !strings.Contains(got.ConfigError, "cannot be changed") {
		t.Errorf("after a change of the directory: %+v", got)
	}
}

// TestConfigConflicts: if file and database changed since the last export, the database wins, the file is
// kept, and the
// workspace says so. A change of the file that an update finds is not in conflict with it: both are kept.
//
// WS-R14.
func TestConfigConflicts(t *testing.T) {
	h := open(t)
	h.create(t, "site", holdfast.WorkspaceSettings{Title: text("one")})
	h.edit(t, "site", "title: one", "title: two")
	update := func(s holdfast.WorkspaceSettings) holdfast.Workspace {
		t.Helper()
		w, err := h.Update(t.Context(), "site", holdfast.UpdateWorkspace{WorkspaceSettings: s})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := update(holdfast.WorkspaceSettings{Model: text("m")}); w.Title != "two" || w.Model != "m" || w.Revision != 3 || w.ConfigError != "" {
		t.Errorf("an update after a change of the file: %+v", w)
	}
	h.edit(t, "site", "title: two", "title: three")
	_, err := h.Update(t.Context(), "site", holdfast.UpdateWorkspace{Revision: 3, WorkspaceSettings: holdfast.WorkspaceSettings{Title: text("x")}})
	isKind(t, err, holdfast.KindConflict, "4")

	rejected := h.config("site") + ".rejected"
	for name, c := range map[string]struct {
		spoil  func(old string)
		broken bool
	}{
		"an editor had the file open": {spoil: func(old string) {
			update(holdfast.WorkspaceSettings{Model: text("o")})
			h.put(t, h.config("site"), old)
		}},
		"the file was wrong": {spoil: func(old string) {
			h.put(t, h.config("site"), old)
			update(holdfast.WorkspaceSettings{Model: text("o")})
		}, broken: true},
		"the server was away": {spoil: func(old string) {
			r, err := h.store.Workspaces.Workspace(t.Context(), "site")
			if err != nil {
				t.Fatal(err)
			}
			r.Model = "o"
			if _, err := h.store.Workspaces.ChangeWorkspace(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			h.put(t, h.config("site"), old)
			h.restart(t)
		}},
	} {
		old := h.read(t, h.config("site")) + "runtime: other\n"
		if c.broken {
			old += "colour: red\n"
		}
		c.spoil(old)
		w := h.get(t, "site")
		if w.Model != "o" || w.Runtime != "" || !strings.Contains(w.ConfigError, rejected) {
			t.Errorf("%s: %+v", name, w)
		}
		if got := h.read(t, rejected); got != old {
			t.Errorf("%s: kept %q, want %q", name, got, old)
		}
		if got := h.read(t, h.config("site")); !strings.HasSuffix(got, "model: o\n") || !strings.Contains(got, fmt.Sprintf("revision %d,", w.Revision)) {
			t.Errorf("%s: the file is %q", name, got)
		}
		if err := os.Remove(rejected); err != nil {
			t.Fatal(err)
		}
		h.later(time.Hour)
		if w := update(holdfast.WorkspaceSettings{Model: text("m")}); w.ConfigError != "" {
			t.Errorf("%s: after the file was removed: %q", name, w.ConfigError)
		}
	}
	if n := len(regexp.MustCompile("the file was kept under another name").FindAllString(h.log.String(), -1)); n != 3 {
		t.Errorf("the log names %d rejected files", n)
	}
}

// TestUnwrittenConfig: a config.yaml that cannot be written holds up no change; it is written when that is possible.
func TestUnwrittenConfig(t *testing.T) {
	h := open(t)
	dir := h.dir(t, "own")
	w, err := h.Create(t.Context(), holdfast.CreateWorkspace{Dir: dir, WorkspaceSettings: holdfast.WorkspaceSettings{Title: text("one")}})
	if err != nil || w.ID != "one" {
		t.Fatal(w, err)
	}
	if err := os.RemoveAll(filepath.Dir(h.config("one"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(h.config("one")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err = h.Update(t.Context(), "one", holdfast.UpdateWorkspace{WorkspaceSettings: holdfast.WorkspaceSettings{Title: text("two")}})
	if err != nil || w.Title != "two" || !strings.Contains(w.ConfigError, "cannot be written") {
		t.Errorf("updated: %+v, %v", w, err)
	}
	if err := os.Remove(filepath.Dir(h.config("one"))); err != nil {
		t.Fatal(err)
	}
	h.later(time.Hour)
	if w := h.get(t, "one"); w.ConfigError != "" || w.Revision != 2 {
		t.Errorf("when it can be written: %+v", w)
	}
	if got := h.read(t, h.config("one")); !strings.Contains(got, "\ntitle: two\n") {
		t.Errorf("config.yaml %q", got)
	}
}

// TestWSR110_DeletionRemovesConfig: the deletion of a workspace takes its config.yaml away, before its row; a directory of
// the user's own stays. A symlink in the place of the directory is removed alone, one that is missing is not an error
// (WS-R110, WS-R111).
func TestWSR110_DeletionRemovesConfig(t *testing.T) {
	h := open(t)
	dir := h.dir(t, "own")
	kept := filepath.Join(dir, "kept")
	h.put(t, kept, "kept")
	if _, err := h.For(t.Context(), "", dir, ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"dir", "link", "missing"} {
		h.create(t, id, holdfast.WorkspaceSettings{})
	}
	outside := filepath.Join(h.own, "outside")
	if err := os.Rename(filepath.Dir(h.config("link")), outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Dir(h.config("link"))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(h.config("missing"))); err != nil {
		t.Fatal(err)
	}
	for id, files := range map[holdfast.Slug]string{"own": "kept", "dir": "trashed", "link": "trashed", "missing": "trashed"} {
		out, err := h.Delete(t.Context(), id, false, false)
		if err != nil || out.Files != files {
			t.Errorf("%s: %+v, %v", id, out, err)
		}
		if _, err := os.Lstat(filepath.Dir(h.config(string(id)))); !os.IsNotExist(err) {
			t.Errorf("%s: its directory is still there: %v", id, err)
		}
	}
	if got := h.read(t, kept); got != "kept" {
		t.Errorf("the user's own file: %q", got)
	}
	if got := h.read(t, filepath.Join(outside, "config.yaml")); got == "" {
		t.Error("what the symlink led to was removed")
	}
	if list, err := h.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("workspaces %v, %v", list, err)
	}
	h.restart(t)
	if _, err := os.Lstat(filepath.Dir(h.config("own"))); !os.IsNotExist(err) {
		t.Errorf("a start made the directory again: %v", err)
	}
}

// FuzzConfig: any text is imported or refused, never with a panic; and what is exported reads as what it was.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{"title: x\n", "network: [a, b]\n", "title: \"\\u0007\"", "title: |\n  a\n  b\n", "{title: x}", "title: - x", "? title\n: x", "true: x\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w := holdfast.Workspace{
			ID: "site", Title: s, Model: s, Network: []string{s}, Revision: 3,
			Limits: map[string]string{"cpus": s + "1"}, Permissions: map[string][]string{"deny": {s}},
		}
		if journal.CheckText("title", s) == nil && len(s) <= 500 {
			if got, err := workspaces.RoundTrip(w); err != nil || !reflect.DeepEqual(got, w) {
				t.Errorf("%q reads as %+v, %v", s, got, err)
			}
		}
		_, _ = workspaces.Parse([]byte(s))
	})
}

// log collects what the server logs.
type logged struct{ bytes.Buffer }

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
