package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
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

// grow appends until the store refuses, and returns the last acknowledged number.
func grow(t *testing.T, s *Store, id holdfast.SessionID, last int64) int64 {
	t.Helper()
	for range 20_000 {
		data := fmt.Appendf(nil, `{"seq":%d,"pad":%q}`, last+1, strings.Repeat("y", 20_000))
		done, err := s.Commit(t.Context(), appending(id, data, 1))
		if err != nil {
			if !holdfast.IsKind(err, holdfast.KindUnavailable) {
				t.Fatalf("commit: %v", err)
			}
			return last
		}
		last = done.Row.LastSeq
	}
	t.Fatal("the disk does not get full")
	return 0
}

// growToTheEnd appends until the store refuses for good, and returns the last acknowledged number.
// After the first refusal the janitor may find room in the log or in the reserve once more.
func growToTheEnd(t *testing.T, s *Store, id holdfast.SessionID, last int64) int64 {
	t.Helper()
	for range 1000 {
		last = grow(t, s, id, last)
		end := s.janitor.rounds.Load() + 3
		testkit.Eventually(t, "the janitor looks for room", func() bool {
			return s.room.full.Load() == nil || s.janitor.rounds.Load() >= end
		})
		if s.room.full.Load() != nil {
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
			s := openAt(t, Config{Path: path, Warn: func(error) {}, Space: heard.hear, probe: 20 * time.Millisecond})
			if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
				t.Fatal(err)
			}
			if c.held {
				rows, err := plain(t, path).QueryContext(t.Context(), `SELECT id FROM events UNION ALL SELECT id FROM events`)
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				rows.Next()
			}
			fill := fillDisk(t, dir)
			last := grow(t, s, testID(1), 1)
			if min := s.cfg.CheckpointBytes / 20_000 / 2; last < min {
				t.Errorf("only %d events fit into the reserve, %d expected", last, min)
			}
			last = growToTheEnd(t, s, testID(1), last)
			refusesWrites(t, s, testID(1))
			_, err := s.Commit(t.Context(), creation(testID(2)))
			if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(holdfast.HintOf(err), "by themselves") {
				t.Errorf("a new session: %v, hint %q", err, holdfast.HintOf(err))
			}
			if err := os.Remove(fill); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "writes come back", func() bool { return s.Healthy() == nil })
			if _, err := s.Commit(t.Context(), creation(testID(2))); err != nil {
				t.Errorf("a new session with space: %v", err)
			}
			last = grow2(t, s, testID(1), last)
			checkLogs(t, s, map[int]int64{1: last, 2: 1})
			said := heard.all()
			if len(said) < 2 || said[0].Err == nil || said[0].Path != path || said[0].Free > leastSpace || said[len(said)-1].Err != nil {
				t.Errorf("said %+v", said)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openAt(t, Config{Path: path})
			checkLogs(t, s, map[int]int64{1: last, 2: 1})
			if head, err := s.Head(t.Context(), testID(1)); err != nil || head != last {
				t.Errorf("the log ends at #%d, #%d was acknowledged last, %v", head, last, err)
			}
		})
	}
}

// grow2 appends three events.
func grow2(t *testing.T, s *Store, id holdfast.SessionID, last int64) int64 {
	t.Helper()
	for range 3 {
		done, err := s.Commit(t.Context(), appending(id, fmt.Appendf(nil, `{"seq":%d,"pad":""}`, last+1), 1))
		if err != nil {
			t.Fatal(err)
		}
		if last++; done.Row.LastSeq != last {
			t.Fatalf("#%d where #%d was expected", done.Row.LastSeq, last)
		}
	}
	return last
}
