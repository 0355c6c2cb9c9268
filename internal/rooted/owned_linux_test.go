package rooted_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

// TestRootReadsWhatTheOwnerMay: in a tree of somebody else, a server of root reads what the owner of the tree may read. What
// root or other users keep from the owner is denied.
func TestRootReadsWhatTheOwnerMay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can give files away")
	}
	top := filepath.Join(t.TempDir(), "tree")
	entry := func(name string, mode os.FileMode, uid, gid int) {
		t.Helper()
		path := filepath.Join(top, name)
		err := os.MkdirAll(path, 0o755)
		if !strings.HasSuffix(name, "/") {
			err = os.Remove(path)
			if err == nil {
				err = os.WriteFile(path, []byte("text"), 0o600)
			}
		}
		if err == nil {
			err = os.Chown(path, uid, gid)
		}
		if err == nil {
			err = os.Chmod(path, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const owner, group, other = 1000, 1001, 1002
	entry("roots/in", 0o644, 0, 0)
	entry("roots/", 0o700, 0, 0)
	entry("listed/in", 0o644, 0, 0)
	entry("listed/", 0o744, 0, 0)
	entry("open/in", 0o644, 0, 0)
	entry("open/", 0o755, 0, 0)
	entry("own", 0o600, owner, group)
	entry("own-write-only", 0o266, owner, group)
	entry("secret", 0o600, 0, 0)
	entry("of-other", 0o640, other, other)
	entry("of-other-open", 0o644, other, other)
	entry("of-group", 0o640, other, group)
	entry("not-for-group", 0o604, other, group)
	if err := os.Chown(top, owner, group); err != nil {
		t.Fatal(err)
	}
	want := []string{"listed", "not-for-group", "of-other", "own-write-only", "roots", "secret"}
	var denied []string
	for e, err := range rooted.Walk(t.Context(), top, rooted.Bounds{Entries: 100, Depth: 10, Untouched: true}) {
		if err == nil && e.Mode.IsRegular() {
			var h rooted.Handle
			if h, _, err = e.Open(); err == nil {
				h.Close()
			}
		}
		if holdfast.IsKind(err, holdfast.KindDenied) || os.IsPermission(err) {
			denied = append(denied, e.Path())
		} else if err != nil {
			t.Errorf("%s: %v", e.Path(), err)
		}
	}
	if slices.Sort(denied); !slices.Equal(denied, want) {
		t.Errorf("the walk was denied %q, want %q", denied, want)
	}
	for name, ok := range map[string]bool{
		"own": true, "of-other-open": true, "of-group": true, "open/in": true,
		"own-write-only": false, "secret": false, "of-other": false, "not-for-group": false, "roots/in": false, "listed/in": false,
	} {
		data, _, err := rooted.Owned{Tree: rooted.Tree(top)}.ReadFile(t.Context(), name, 100)
		if ok && (err != nil || string(data) != "text") || !ok && (!holdfast.IsKind(err, holdfast.KindDenied) || len(data) > 0) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, _, err := (rooted.Owned{Tree: rooted.Tree(top)}).ReadFile(t.Context(), "none", 100); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("none: %v", err)
	}
}
