package sqlite

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// TestJournalOverTheStore has writers and readers of several sessions meet on
// the real store: every reader sees every event once and in order, whether it
// joined before, between or after.
func TestJournalOverTheStore(t *testing.T) {
	s := openNew(t, Config{})
	j := journal.New(journal.Config{Store: s, Leases: s, Tail: 16})
	const sessions, writers, each = 4, 3, 40
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	follow := func(id holdfast.SessionID, from int64) {
		r, err := j.Follow(ctx, id, from)
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		for seen := from; seen < 1+writers*each*2; {
			evs, err := r.Next(ctx)
			if err != nil {
				t.Errorf("after #%d: %v", seen, err)
				return
			}
			for _, e := range evs {
				if seen++; e.Seq != seen || e.Session != id {
					t.Errorf("#%d of %s where #%d of %s was expected", e.Seq, e.Session, seen, id)
					return
				}
			}
		}
	}
	for i := range sessions {
		id := testID(i)
		if _, err := j.Commit(ctx, creation(id).Change); err != nil {
			t.Fatal(err)
		}
		for w := range writers {
			wg.Go(func() {
				for n := range each {
					c := journal.NewChange(id)
					for k := range 2 {
						c.Events = append(c.Events, journal.Draft{Type: "x", Data: fmt.Sprint(w, n, k)})
					}
					if _, err := j.Commit(ctx, c); err != nil {
						t.Error(err)
						return
					}
					if n%10 == w {
						wg.Go(func() { follow(id, int64(n)) })
					}
				}
			})
		}
		wg.Go(func() { follow(id, 0) })
	}
	wg.Wait()
	for i := range sessions {
		follow(testID(i), 0)
	}
	if _, err := j.Follow(ctx, testID(99), 0); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Error(err)
	}
}
