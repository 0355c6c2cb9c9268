package db

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestCopyIsOneMoment: a copy that is made while others write has all texts up to some number, and none after it.
func TestCopyIsOneMoment(t *testing.T) {
	n := openNotes(t, Config{})
	ctx, stop := context.WithCancel(t.Context())
	started := make(chan struct{})
	var writes sync.WaitGroup
	writes.Go(func() {
		for i := 1; ctx.Err() == nil; i++ {
			if err := n.write(t.Context(), i, "text", true); err != nil {
				t.Error(err)
			}
			if i == 10 {
				close(started)
			}
		}
	})
	<-started
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := n.Copy(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	stop()
	writes.Wait()
	db, err := Look(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var count, last int
	var whole string
	if err := db.QueryRowContext(t.Context(), `SELECT count(*), max(CAST(name AS INTEGER)) FROM facts`).Scan(&count, &last); err != nil || count != last || last < 10 {
		t.Errorf("%d texts up to %d, %v", count, last, err)
	}
	if err := db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&whole); err != nil || whole != "ok" {
		t.Errorf("%q, %v", whole, err)
	}
	if err := n.Copy(t.Context(), path); !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
		t.Errorf("a copy over a file: %v", err)
	}
}
