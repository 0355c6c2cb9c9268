package db

import "testing"

// TestLogIsFilledUnderTheLock: zeros are appended to the log only while no other connection
// can append a frame.
func TestLogIsFilledUnderTheLock(t *testing.T) {
	s := openNotes(t, Config{})
	size := func() int64 {
		t.Helper()
		info, err := s.room.wal.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	full := size()
	if full != s.room.logBytes {
		t.Fatalf("the log has %d bytes after the start, want %d", full, s.room.logBytes)
	}
	if err := s.room.wal.Truncate(full / 2); err != nil { // zeros all of it
		t.Fatal(err)
	}
	other, err := plain(t, s.cfg.Path).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.room.fillLog(t.Context()); err != nil || size() != full/2 {
		t.Fatalf("while another program may append: %d bytes, %v", size(), err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.room.fillLog(t.Context()); err != nil || size() != full {
		t.Fatalf("afterwards: %d bytes, %v", size(), err)
	}
	if err := s.write(t.Context(), 1, "x", false); err != nil {
		t.Fatal(err)
	}
}
