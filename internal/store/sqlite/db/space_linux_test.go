package db

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// spaces collects a store's reports about its space.
type spaces struct {
	mu   sync.Mutex
	said []Space
}

func (s *spaces) hear(sp Space) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, sp)
}

func (s *spaces) all() []Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Space{}, s.said...)
}

// fillDisk writes a file until the disk has no byte left.
func fillDisk(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "fill")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			size /= 2
		}
	}
	return path
}

// grow writes until the store refuses, and returns the last acknowledged number.
func grow(t *testing.T, n *notes, last int) int {
	t.Helper()
	for range 20_000 {
		if err := n.write(t.Context(), last+1, strings.Repeat("y", 20_000), false); err != nil {
			if !holdfast.IsKind(err, holdfast.KindUnavailable) {
				t.Fatalf("write: %v", err)
			}
			return last
		}
		last++
	}
	t.Fatal("the disk does not get full")
	return 0
}

// growToTheEnd writes until the store refuses for good, and returns the last acknowledged number.
// After the first refusal the janitor may find room in the log or in the reserve once more.
func growToTheEnd(t *testing.T, n *notes, last int) int {
	t.Helper()
	for range 1000 {
		last = grow(t, n, last)
		end := n.janitor.rounds.Load() + 3
		testkit.Eventually(t, "the janitor looks for room", func() bool {
			return n.room.full.Load() == nil || n.janitor.rounds.Load() >= end
		})
		if n.room.full.Load() != nil {
			return last
		}
	}
	t.Fatal("the store finds room again and again")
	return 0
}

// TestHZ17_FullDisk fills a real file system behind the store's back. Running work is
// recorded in the reserve, new work is refused first, then all; with space, writes come
// back in the same store, with nothing lost and nothing twice.
func TestHZ17_FullDisk(t *testing.T) {
	for _, c := range []struct {
		name string
		// held keeps the log from starting over, so that the log and not the database fills
		// the disk.
		held bool
	}{{"database", false}, {"log", true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := tmpfs(t, "80m")
			path := filepath.Join(dir, "holdfast.db")
			var heard spaces
			n := openNotes(t, Config{Path: path, Warn: func(error) {}, Space: heard.hear, probe: 20 * time.Millisecond})
			if err := n.write(t.Context(), 1, "x", true); err != nil {
				t.Fatal(err)
			}
			if c.held {
				rows, err := plain(t, path).QueryContext(t.Context(), `SELECT name FROM facts UNION ALL SELECT name FROM facts`)
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				rows.Next()
			}
			fill := fillDisk(t, dir)
			last := grow(t, n, 1)
			// The log is full before the reserve of the database is; a note takes eight pages in it.
			if min := int(n.room.logBytes / (8 * PageSize) / 2); last < min {
				t.Errorf("only %d notes fit into the reserve, %d expected", last, min)
			}
			last = growToTheEnd(t, n, last)
			n.refuses(t, last)
			err := n.write(t.Context(), last+1, "x", true)
			if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(holdfast.HintOf(err), "by itself") {
				t.Errorf("new work: %v, hint %q", err, holdfast.HintOf(err))
			}
			if err := os.Remove(fill); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "writes come back", func() bool { return n.Healthy() == nil })
			for range 3 {
				last++
				if err := n.write(t.Context(), last, "x", true); err != nil {
					t.Fatalf("new work with space: %v", err)
				}
			}
			n.check(t, last)
			said := heard.all()
			if len(said) < 2 || said[0].Err == nil || said[0].Path != path || said[0].Free > leastSpace || said[len(said)-1].Err != nil {
				t.Errorf("said %+v", said)
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			openNotes(t, Config{Path: path}).check(t, last)
		})
	}
}

// TestNoRoomForACopyBeforeAMigration: without room for a copy the start is refused with the size that is needed, the database
// stays as it is, and nothing is left of the copy.
func TestNoRoomForACopyBeforeAMigration(t *testing.T) {
	dir := tmpfs(t, "80m")
	old, _ := anOld(t)
	db := plain(t, old)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO facts (name, value) VALUES ('2', hex(randomblob(25000000)))`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "holdfast.db")
	if b, err := os.ReadFile(old); err != nil || os.WriteFile(path, b, 0o600) != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: path, Schema: schema.Of}, func(*Setup) error { return nil })
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(holdfast.HintOf(err), "48 MiB") {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
	if left, _ := filepath.Glob(path + beforeMark + "*"); len(left) > 0 || schemaOf(t, path) != oldSchema {
		t.Errorf("left %v, schema %d", left, schemaOf(t, path))
	}
}

// TestNoRoomForACopy: a copy is refused with figures before it fills the disk.
func TestNoRoomForACopy(t *testing.T) {
	n := openNotes(t, Config{Path: filepath.Join(tmpfs(t, "80m"), "holdfast.db"), Warn: func(error) {}})
	fillDisk(t, filepath.Dir(n.cfg.Path))
	to := filepath.Join(filepath.Dir(n.cfg.Path), "copy.db")
	err := n.Copy(t.Context(), to)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "MiB free") || holdfast.HintOf(err) == "" || !missing(to) {
		t.Errorf("%v, hint %q", err, holdfast.HintOf(err))
	}
}
