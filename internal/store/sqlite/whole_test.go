package sqlite

import (
	"sync"
	"testing"
)

// TestReadersSeeWholeTransactions: once a reader has seen an event, the head of the log is not
// before it.
func TestReadersSeeWholeTransactions(t *testing.T) {
	s := openNew(t, Config{})
	id := testID(1)
	commit(t, s, creation(id))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			last := int64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				evs, err := s.Sessions.Events(t.Context(), id, last, 100)
				if err != nil {
					t.Error(err)
					return
				}
				if len(evs) == 0 {
					continue
				}
				last = evs[len(evs)-1].Seq
				if head, err := s.Sessions.Head(t.Context(), id); err != nil || head < last {
					t.Errorf("event %d was read, and the head is %d, %v", last, head, err)
					return
				}
			}
		})
	}
	for range 1000 {
		commit(t, s, appending(id, []byte(`{}`), 1))
	}
	close(done)
	wg.Wait()
}
