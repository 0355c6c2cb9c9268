package powercut

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCutKeepsWhatWasSynced: after a cut a synced file is whole, and a file of which
// only the name was synced is empty.
func TestCutKeepsWhatWasSynced(t *testing.T) {
	d := New(t, MinSize)
	write := func(name string, sync bool) {
		t.Helper()
		f, err := os.Create(filepath.Join(d.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(name)
		if sync {
			err = errors.Join(err, f.Sync())
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write("lost", false)
	write("kept", true)
	dir, err := os.Open(d.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	after := d.Cut(t)
	for name, want := range map[string]string{"kept": "kept", "lost": ""} {
		if b, err := os.ReadFile(filepath.Join(after.Dir(), name)); err != nil || string(b) != want {
			t.Errorf("%s holds %q, %v; want %q", name, b, err, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(d.Dir(), "lost")); err != nil || string(b) != "lost" {
		t.Errorf("the disk itself has %q, %v", b, err)
	}
}
