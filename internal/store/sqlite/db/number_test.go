package db

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestCommitNumbersNeverComeBack takes more numbers than a block has, also in a transaction that is
// rolled back, and opens the database again: after each start they are above all before it.
func TestCommitNumbersNeverComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	last := int64(0)
	for range 3 {
		n := openNotes(t, Config{Path: path})
		for _, failure := range []error{nil, errors.New("failed"), nil, nil} {
			err := n.Do(t.Context(), "test", &Op{Apply: func(tx *Tx) error {
				for range numberBlock - 7 {
					now := tx.NextNumber()
					if now <= last {
						t.Errorf("number %d after %d", now, last)
					}
					last = now
				}
				return failure
			}})
			if (err == nil) != (failure == nil) {
				t.Fatal(err)
			}
			var bound int64
			row := n.Reads().QueryRowContext(t.Context(), `SELECT commits FROM server`)
			if err := row.Scan(&bound); err != nil || failure == nil && bound < last {
				t.Fatalf("the bound on disk is %d, the newest number %d, %v", bound, last, err)
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
