package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestHZ17_SpaceComesBack bounds the database instead of the disk, so that it runs
// for every user.
func TestHZ17_SpaceComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path, Warn: func(error) {}, probe: 5 * time.Millisecond})
	if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
		t.Fatal(err)
	}
	limit := func(pages string) {
		t.Helper()
		s.gate.Lock()
		defer s.gate.Unlock()
		if _, err := s.conn.ExecContext(t.Context(), `PRAGMA max_page_count = `+pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // as many as there are
	var err error
	last := int64(1)
	for err == nil {
		if _, err = s.Commit(t.Context(), appending(testID(1), []byte(`"`+strings.Repeat("x", 9000)+`"`), 1)); err == nil {
			last++
		}
	}
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "full") || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
	limit("1000000")
	testkit.Eventually(t, "writes come back", func() bool { return s.Healthy() == nil })
	done, err := s.Commit(t.Context(), appending(testID(1), []byte(`"y"`), 1))
	if err != nil || done.Row.LastSeq != last+1 {
		t.Fatalf("#%d after #%d, %v", done.Row.LastSeq, last, err)
	}
}
