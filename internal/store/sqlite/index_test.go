package sqlite

import (
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestDeletedWordsLeaveTheIndex: what was deleted cannot be read off the index,
// also when the follower had it in its hands.
func TestDeletedWordsLeaveTheIndex(t *testing.T) {
	s := openNew(t, Config{})
	c := creation(testID(1))
	c.Create.Status = holdfast.StatusEnded
	commit(t, s, c)
	commit(t, s, appending(testID(1), []byte(`{"content":"purgeable words"}`), 200))
	late, _, err := s.newDocs(t.Context(), testID(1), 10, 1000)
	if err != nil || len(late.docs) != 10 {
		t.Fatal(late, err)
	}
	eventually(t, "all is indexed", func() bool {
		s.index.settled(t.Context(), 10*time.Second)
		return s.count(t, "search") == 200
	})
	if err := s.DeleteSession(t.Context(), testID(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.addDocs(t.Context(), []docs{late}, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the words are gone", func() bool { return s.count(t, "purge") == 0 })
	if n, m := s.count(t, "search"), s.count(t, "search_seen"); n != 0 || m != 0 {
		t.Errorf("%d texts and %d positions are left", n, m)
	}
}
