package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := openAt(t, Config{Path: filepath.Join(dir, "holdfast.db")})
	if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{
		"": 0o700 | os.ModeDir, "holdfast.db": 0o600, "holdfast.db-wal": 0o600, "holdfast.db-shm": 0o600, "lock": 0o600,
	} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != want {
			t.Errorf("%q has mode %v, want %v", name, fi.Mode(), want)
		}
	}
}

// TestCloseLetsGoOfEverything: no descriptor stays, and the log is folded in.
func TestCloseLetsGoOfEverything(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, Config{Path: filepath.Join(dir, "holdfast.db")})
	if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Row(t.Context(), testID(1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "holdfast.db-wal")); err == nil {
		t.Error("the log is still there")
	}
	_, err := s.Commit(t.Context(), creation(testID(2)))
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("commit after close: %v", err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("NOT RUN: no /proc")
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) {
			t.Errorf("%s is still open", to)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage", "holdfast.db")
	file := filepath.Join(dir, "file")
	for path, content := range map[string]string{garbage: strings.Repeat("no database ", 1000), file: "x"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	isDir := filepath.Join(dir, "dir", "holdfast.db")
	if err := os.MkdirAll(isDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{garbage, filepath.Join(file, "holdfast.db"), isDir} {
		s, err := open(t.Context(), Config{Path: path})
		if s != nil || !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), dir) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := open(t.Context(), Config{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("no path: %v", err)
	}
	// A refused opening leaves the lock free.
	openAt(t, Config{Path: filepath.Join(filepath.Dir(garbage), "other.db")})
}

func TestOpenRefusesANewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := plain(t, path)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, 1)`); err != nil {
		t.Fatal(err)
	}
	db.Close()
	_, err := open(t.Context(), Config{Path: path})
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "999") || !strings.Contains(holdfast.HintOf(err), "newer") {
		t.Fatal(err)
	}
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"with space", "per%20cent", "question?mark", "hash#tag", "ümlaut", "amp&=;'\""} {
		path := filepath.Join(t.TempDir(), name, "holdfast.db")
		s := openAt(t, Config{Path: path})
		if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestTablesAreStrict(t *testing.T) {
	s := openAt(t, Config{Path: filepath.Join(t.TempDir(), "holdfast.db")})
	rows, err := s.all.db.Reads().QueryContext(t.Context(), `SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var name string
		var strict bool
		if err := rows.Scan(&name, &strict); err != nil {
			t.Fatal(err)
		}
		if n++; !strict {
			t.Errorf("table %s is not STRICT", name)
		}
	}
	if n < 8 {
		t.Errorf("%d tables", n)
	}
}
