package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// rss is what of this process is in memory, in MB.
func rss() (float64, error) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, err := strconv.Atoi(string(bytes.Fields(data)[1]))
	return float64(pages*os.Getpagesize()) / 1e6, err
}

// childRSS prints the memory of this process with an open store at rest, and
// after 10,000 sessions were created, used and paused, then listed.
func childRSS(ctx context.Context, s *opened) {
	rest, err := rss()
	if err != nil {
		childFails(err)
	}
	const n = 10_000
	for i := range n {
		c := creation(testID(i))
		if _, err := s.Commit(ctx, c); err != nil {
			childFails(err)
		}
		e := appending(testID(i), payload, 4)
		e.Status = []holdfast.Status{holdfast.StatusPaused}
		if _, err := s.Commit(ctx, e); err != nil {
			childFails(err)
		}
	}
	seen := 0
	for q := (journal.Query{Limit: 500}); ; {
		p, err := s.Rows(ctx, q)
		if err != nil {
			childFails(err)
		}
		seen += len(p.Rows)
		if q.Cursor = p.Next; p.Next == "" {
			break
		}
	}
	full, err := rss()
	if err != nil {
		childFails(err)
	}
	fmt.Printf("%d %.1f %.1f\n", seen, rest, full)
	os.Exit(0)
}

// TestMemory holds the store's share of the gates "server RSS at rest ≤ 50 MB"
// and "with 10,000 paused sessions ≤ 80 MB".
func TestMemory(t *testing.T) {
	testkit.Long(t)
	p := startChild(t, "rss", filepath.Join(t.TempDir(), "holdfast.db"))
	var seen int
	var rest, full float64
	if _, err := fmt.Sscan(p.line()+" "+p.line(), &seen, &rest, &full); err != nil || seen != 10_000 {
		t.Fatalf("%d sessions, %v %s", seen, err, &p.err)
	}
	t.Logf("at rest %.1f MB, with 10,000 paused sessions %.1f MB", rest, full)
	if rest > 40 || full > 60 {
		t.Errorf("at rest %.1f MB, with 10,000 paused sessions %.1f MB", rest, full)
	}
}
