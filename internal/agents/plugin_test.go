package agents

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func entriesOf(files map[string]string) (out []entry) {
	for name, body := range files {
		out = append(out, entry{name: name, body: body})
	}
	return out
}

// TestPluginDirectory: what a version brings for the CLI lies in a directory that every user
// of the machine could read and whose content is checked before it is shown.
func TestPluginDirectory(t *testing.T) {
	dir, store := t.TempDir(), newStore()
	cfg := Config{Dir: dir, Store: store}
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	deploy := func(name holdfast.AgentName, files map[string]string) holdfast.Deployed {
		t.Helper()
		d, err := r.Deploy(t.Context(), name, bytes.NewReader(makeTar(t, entriesOf(files)...)))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	none := deploy("none", map[string]string{"CLAUDE.md": "x", ".claude/agents/a.md": "---\nname: a\ndescription: d\n---\nP"})
	if got, err := r.Plugin(t.Context(), none.Agent.VersionID); got != "" || err != nil {
		t.Errorf("sub-agents alone: %q, %v", got, err)
	}
	d := deploy("some", map[string]string{
		"CLAUDE.md": "x", ".claude/skills/a/SKILL.md": "---\nhooks: {}\n---\nBody", ".claude/skills/a/sub/ref.md": "see", ".claude/hooks/hooks.json": "{}",
	})
	if len(d.Notices) != 1 || !strings.Contains(d.Notices[0], "hooks: not passed on") {
		t.Errorf("notices %q", d.Notices)
	}
	at, err := r.Plugin(t.Context(), d.Agent.VersionID)
	if err != nil {
		t.Fatal(err)
	}
	look := func() string {
		var out []string
		err := filepath.WalkDir(at, func(p string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			rel, _ := filepath.Rel(at, p)
			out = append(out, info.Mode().Perm().String()+" "+rel)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(out, "\n")
	}
	want := strings.Join([]string{
		"-rwxr-xr-x .", "-rwxr-xr-x .claude-plugin", "-r--r--r-- .claude-plugin/plugin.json", "-rwxr-xr-x skills", "-rwxr-xr-x skills/a",
		"-r--r--r-- skills/a/SKILL.md", "-rwxr-xr-x skills/a/sub", "-r--r--r-- skills/a/sub/ref.md",
	}, "\n")
	if got := look(); got != want {
		t.Errorf("the directory holds\n%s", got)
	}
	again := func() (string, error) {
		next, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return next.Plugin(t.Context(), d.Agent.VersionID)
	}
	if got, err := again(); got != at || err != nil {
		t.Errorf("the next server has %q, %v", got, err)
	}
	pluginDamage(t, at, again)
}

// pluginDamage changes a plugin directory in every way: each keeps it from being shown.
func pluginDamage(t *testing.T, at string, again func() (string, error)) {
	t.Helper()
	for what, damage := range map[string]func() error{
		"a file more":     func() error { return os.WriteFile(filepath.Join(at, "skills/a/x"), nil, 0o644) },
		"another content": func() error { return os.WriteFile(filepath.Join(at, "skills/a/sub/ref.md"), []byte("other"), 0o644) },
		"a file less":     func() error { return os.Remove(filepath.Join(at, "skills/a/SKILL.md")) },
		"a link": func() error {
			return os.Symlink("/etc/passwd", filepath.Join(at, "skills/a/link"))
		},
	} {
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		if _, err := again(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(at, "skills/a/sub/ref.md"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := again(); !holdfast.IsKind(err, holdfast.KindInternal) || !strings.Contains(holdfast.HintOf(err), filepath.Base(at)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
