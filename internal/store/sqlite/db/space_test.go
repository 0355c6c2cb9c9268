package db

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
	n := openNotes(t, Config{Path: path, Warn: func(error) {}, probe: 5 * time.Millisecond})
	limit := func(pages string) {
		t.Helper()
		n.writer.gate.Lock()
		defer n.writer.gate.Unlock()
		if _, err := n.writer.conn.ExecContext(t.Context(), `PRAGMA max_page_count = `+pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // as many as there are
	var err error
	last := 0
	for err == nil {
		if err = n.write(t.Context(), last+1, strings.Repeat("x", 9000), false); err == nil {
			last++
		}
	}
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "full") || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
	limit("1000000")
	testkit.Eventually(t, "writes come back", func() bool { return n.Healthy() == nil })
	if err := n.write(t.Context(), last+1, "y", false); err != nil {
		t.Fatal(err)
	}
	n.check(t, last+1)
}
