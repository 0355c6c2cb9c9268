package lifecycle

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestTheDataDirectoryIsPrivate: a directory that others may list is closed to them,
// and one of another user is not used.
func TestTheDataDirectoryIsPrivate(t *testing.T) {
	mode := func(path string) fs.FileMode {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	base := t.TempDir()
	fresh := filepath.Join(base, "a", "b")
	if was, err := PrivateDir(fresh); err != nil || was != 0 || mode(fresh) != 0o700 || mode(filepath.Dir(fresh)) != 0o700 {
		t.Errorf("%v %v, mode %v", was, err, mode(fresh))
	}
	for _, open := range []fs.FileMode{0o755, 0o711, 0o750, 0o777, 0o701} {
		dir := filepath.Join(base, open.String())
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, open); err != nil {
			t.Fatal(err)
		}
		if was, err := PrivateDir(dir); err != nil || was != open || mode(dir) != 0o700 {
			t.Errorf("%v: %v %v, mode %v", open, was, err, mode(dir))
		}
		if was, err := PrivateDir(dir); err != nil || was != 0 {
			t.Errorf("again: %v %v", was, err)
		}
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(fresh, link); err != nil {
		t.Fatal(err)
	}
	if _, err := PrivateDir(link); err != nil {
		t.Errorf("a link to it: %v", err)
	}
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PrivateDir(filepath.Join(base, "file")); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("a file: %v", err)
	}
	foreign := "/" // root's, for an ordinary user
	if os.Geteuid() == 0 {
		foreign = filepath.Join(base, "foreign")
		if err := os.Mkdir(foreign, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(foreign, 4711, 4711); err != nil {
			t.Fatal(err)
		}
	}
	before := mode(foreign)
	if _, err := PrivateDir(foreign); !holdfast.IsKind(err, holdfast.KindDenied) || !strings.Contains(holdfast.HintOf(err), "--data") || mode(foreign) != before {
		t.Errorf("another user's: %v, mode %v", err, mode(foreign))
	}
}
