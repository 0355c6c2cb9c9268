package rooted

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// Links are read as written, and lead nowhere out of the tree.
func TestLinksOfATree(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o644))
	must(t, os.Symlink("../..", filepath.Join(dir, "d/up")))
	must(t, os.Symlink("/etc", filepath.Join(dir, "etc")))
	if to, err := Tree(dir).Readlink(t.Context(), "d/up"); err != nil || to != "../.." {
		t.Errorf("%q, %v", to, err)
	}
	for name, kind := range map[string]holdfast.Kind{"d/f": holdfast.KindConflict, "d": holdfast.KindConflict, "gone": holdfast.KindNotFound} {
		if _, err := Tree(dir).Readlink(t.Context(), name); !holdfast.IsKind(err, kind) {
			t.Errorf("%s: %v, want %s", name, err, kind)
		}
	}
	for _, out := range []string{"etc/passwd", "d/up/x", "../x", "/etc/passwd"} {
		if to, err := Tree(dir).Readlink(t.Context(), out); err == nil {
			t.Errorf("%s led out of the tree, to %q", out, to)
		}
	}
	list, err := Tree(dir).ReadDir(t.Context(), "d", 2)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := Tree(dir).ReadDir(t.Context(), "d", 1); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("two entries where one is allowed: %v", err)
	}
	if list, err := Tree(dir).ReadDir(t.Context(), "etc", 100); err == nil {
		t.Errorf("a link out of the tree was listed: %v", list)
	}
}
