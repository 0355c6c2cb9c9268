package pack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// small commits a small blob, and returns its pack.
func small(t *testing.T, s *Store, text string) Info {
	t.Helper()
	w := s.Writer(nil)
	if _, err := w.Put(Data, []byte(text)); err != nil {
		t.Fatal(err)
	}
	infos, err := w.Commit(t.Context(), Record{})
	if err != nil || len(infos) != 1 {
		t.Fatalf("%d packs, %v", len(infos), err)
	}
	return infos[0]
}

// marks counts the files with a mark.
func marks(t *testing.T, dir string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"+tempSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestSparesAreMadeAfterACommit: some time after the first small commit spare files are there, and after every other
// commit new ones. Nobody sees them, and Close removes them.
func TestSparesAreMadeAfterACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := Open(dir, crashKeys, Config{Spares: 2})
		if err != nil {
			t.Fatal(err)
		}
		reader, err := Open(dir, crashKeys, Config{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		wait := func() {
			<-time.After(2 * spareDelay)
			synctest.Wait()
		}
		for n, want := range []bool{false, false, true, true, true} {
			if got := small(t, s, strings.Repeat("x", n+1)).Bytes == int64(spareSizes[0]); got != want {
				t.Errorf("commit %d used a spare file: %v; want %v", n, got, want)
			}
			for _, store := range []*Store{s, reader} {
				if files, err := store.List(); err != nil || len(files) != n+1 {
					t.Errorf("after commit %d: %d packs, %v", n, len(files), err)
				}
			}
			if n > 0 {
				wait()
				if got := marks(t, dir); got != 4 && n != 2 {
					t.Errorf("after commit %d: %d spare files", n, got)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 5 {
			t.Errorf("after Close: %d files, %v; want 5", len(names), err)
		}
		small(t, s, "after Close")
		if err := s.Prepare(); err != nil {
			t.Fatal(err)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 6 {
			t.Errorf("after a commit that followed Close: %d files, %v; want 6", len(names), err)
		}
	})
}

// TestCloseBeforeSparesAreMade: Close does not wait until the spare files are due.
func TestCloseBeforeSparesAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.TempDir(), crashKeys, Config{Spares: 2})
		if err != nil {
			t.Fatal(err)
		}
		small(t, s, "x")
		began := time.Now()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > 0 {
			t.Error("Close waited")
		}
		if err := s.Close(); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// TestOpenWithAnotherKeyKeepsPacks: after a power cut a complete pack may have its mark. A store with another key
// cannot tell whether it is complete, and removes nothing.
func TestOpenWithAnotherKeyKeepsPacks(t *testing.T) {
	dir := t.TempDir()
	s := commitKind{spares: 1}.open(t, dir, OSDisk{})
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	in := small(t, s, "x")
	if err := os.Link(s.path(in.ID), s.mark(in.ID)); err != nil {
		t.Fatal(err)
	}
	for _, keys := range []Keys{{ID: [32]byte{9}}, {ID: crashKeys.ID}, crashKeys} {
		s, err := Open(dir, keys, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if files, err := s.List(); err != nil || len(files) != 1 {
			t.Errorf("%d packs, %v", len(files), err)
		}
	}
	if got := marks(t, dir); got != 0 {
		t.Errorf("%d marks are left", got)
	}
	if err := s.Verify(t.Context(), in.ID); err != nil {
		t.Error(err)
	}
}
