package rooted

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// TestReadFileStaysInside (HZ-6): what an agent puts in the place of a file is
// neither followed nor waited for.
//
// WS-R116, WS-R117, WS-N9.
func TestReadFileStaysInside(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "workspace")
	must(t, os.MkdirAll(filepath.Join(dir, "d/e"), 0o755))
	must(t, os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "d/f"), []byte("hello"), 0o600))
	must(t, os.Symlink("../secret", filepath.Join(dir, "link")))
	must(t, os.Symlink("d", filepath.Join(dir, "behind")))
	must(t, os.Symlink(base, filepath.Join(dir, "out")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	data, st, err := Tree(dir).ReadFile(t.Context(), "d/f", 5)
	if err != nil || string(data) != "hello" {
		t.Fatalf("%q %v", data, err)
	}
	if again, err := Tree(dir).Stat(t.Context(), "d/f"); err != nil || again != st {
		t.Errorf("stamps %v and %v of one file (%v)", st, again, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "d/new"), []byte("world"), 0o600))
	must(t, os.Rename(filepath.Join(dir, "d/new"), filepath.Join(dir, "d/f")))
	if again, err := Tree(dir).Stat(t.Context(), "d/f"); err != nil || again == st {
		t.Errorf("another file has the stamp of the first (%v)", err)
	}
	for _, c := range []struct {
		name string
		most int64
		kind holdfast.Kind
		part string
	}{
		{"none", 9, holdfast.KindNotFound, ""},
		{"d/f/below", 9, holdfast.KindNotFound, ""},
		{"d/f", 4, holdfast.KindTooLarge, "longer than 4 bytes"},
		{"d/e", 9, holdfast.KindConflict, "a directory"},
		{"link", 9, holdfast.KindConflict, "a symlink"},
		{"behind/f", 9, holdfast.KindConflict, "a symlink"},
		{"out/secret", 9, holdfast.KindConflict, "a symlink"},
		{"fifo", 9, holdfast.KindConflict, "not a regular file"},
		{"../secret", 9, holdfast.KindInvalid, "clean"},
		{"/etc/passwd", 9, holdfast.KindInvalid, "clean"},
		{".", 9, holdfast.KindInvalid, "clean"},
	} {
		_, _, err := Tree(dir).ReadFile(t.Context(), c.name, c.most)
		wantKind(t, err, c.kind, c.part)
	}
	_, err = Tree(filepath.Join(base, "nowhere")).Stat(t.Context(), "f")
	wantKind(t, err, holdfast.KindNotFound, "")
}
