package sqlite

import (
	"path/filepath"
	"testing"
)

// TestEventsKeepTheNumberOfTheirCommit reads the numbers from the rows of two sessions, in the order
// in which a feed over all sessions would: by commit, then by the place in the log.
func TestEventsKeepTheNumberOfTheirCommit(t *testing.T) {
	s := openAt(t, Config{Path: filepath.Join(t.TempDir(), "holdfast.db")})
	want := map[int64]int64{} // the number of the commit, by the event's key
	for i := range 9 {
		id := testID(i % 2)
		c := appending(id, payload, 3)
		if i < 2 {
			c = creation(id)
		}
		done, err := s.Commit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range done.Events {
			want[done.Row.Number<<32|e.Seq] = done.Number
		}
	}
	rows, err := s.all.db.Reads().QueryContext(t.Context(), `SELECT id, commit_number FROM events ORDER BY commit_number, id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n, last := 0, int64(0)
	for rows.Next() {
		var id, number int64
		if err := rows.Scan(&id, &number); err != nil {
			t.Fatal(err)
		}
		if number != want[id] || number < last || number < 1 {
			t.Errorf("event %d has the number %d after %d, want %d", id, number, last, want[id])
		}
		last = number
		n++
	}
	if err := rows.Err(); err != nil || n != len(want) || n != 2+7*3 {
		t.Fatalf("%d events, want %d, %v", n, len(want), err)
	}
}
