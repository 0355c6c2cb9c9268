package sqlite

import (
	"path/filepath"
	"testing"
)

// TestLogIsFilledUnderTheLock: zeros are appended to the log only while no other connection
// can append a frame.
func TestLogIsFilledUnderTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	size := func() int64 {
		t.Helper()
		info, err := s.room.wal.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	full := size()
	if full != s.cfg.CheckpointBytes {
		t.Fatalf("the log has %d bytes after the start, want %d", full, s.cfg.CheckpointBytes)
	}
	if err := s.room.wal.Truncate(full / 2); err != nil { // zeros all of it
		t.Fatal(err)
	}
	other, err := plain(t, path).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.fillLog(t.Context()); err != nil || size() != full/2 {
		t.Fatalf("while another program may append: %d bytes, %v", size(), err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.fillLog(t.Context()); err != nil || size() != full {
		t.Fatalf("afterwards: %d bytes, %v", size(), err)
	}
	if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
		t.Fatal(err)
	}
}
