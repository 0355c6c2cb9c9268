package db

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

const oldSchema = 20

// anOld makes a database of an older release, with a text, and returns its path and that of its copy.
func anOld(t *testing.T) (path, before string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "holdfast.db")
	db := plain(t, path)
	p, err := schema.Of(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), oldSchema); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO facts (name, value) VALUES ('1', 'text')`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path, fmt.Sprintf("%s.schema-%d", path, oldSchema)
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

// schemaOf returns the schema of a database that nobody uses.
func schemaOf(t *testing.T, path string) (version int) {
	t.Helper()
	db, err := Look(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), `SELECT max(version_id) FROM goose_db_version`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

// TestACopyBeforeAMigration: a database of an older release is copied before it is changed, once. The copy goes with the first
// deletion, or after a week. A new database has none.
func TestACopyBeforeAMigration(t *testing.T) {
	path, before := anOld(t)
	if err := os.WriteFile(before+".tmp", []byte("of a start that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := openNotes(t, Config{Path: path})
	n.check(t, 1)
	info, err := os.Lstat(before)
	if err != nil || info.Mode() != 0o600 || !missing(before+".tmp") {
		t.Fatalf("%v, %v", info, err)
	}
	if got := schemaOf(t, before); got != oldSchema {
		t.Errorf("the copy has schema %d", got)
	}
	if err := n.DropCopies(); err != nil || !missing(before) {
		t.Errorf("after a deletion: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if again := openNotes(t, Config{Path: path}); !missing(before) {
		t.Errorf("an up-to-date database was copied: %v", again.Close())
	}
	fresh := openNotes(t, Config{})
	if list, err := filepath.Glob(fresh.cfg.Path + beforeMark + "*"); err != nil || len(list) > 0 {
		t.Errorf("a new database has copies: %v, %v", list, err)
	}
}

// TestCopiesAreKeptAWeek uses the clock of the database, and the times of the files.
func TestCopiesAreKeptAWeek(t *testing.T) {
	path, before := anOld(t)
	now := time.Now()
	n := openNotes(t, Config{Path: path, Clock: func() time.Time { return now }})
	tidy := func() {
		t.Helper()
		rounds := n.janitor.rounds.Load()
		n.Tidy()
		testkit.Eventually(t, "the janitor has run", func() bool { return n.janitor.rounds.Load() > rounds })
	}
	tidy()
	if missing(before) {
		t.Error("a new copy is gone")
	}
	if err := os.Chtimes(before, now, now.Add(-beforeFor-time.Minute)); err != nil {
		t.Fatal(err)
	}
	tidy()
	if !missing(before) {
		t.Error("a copy is there after a week")
	}
}

// TestASecondMigrationOfOneSchema: each migration has a copy of the database that it began with. A copy from an earlier
// migration of the same schema, after which somebody put an older database in place, does not count.
func TestASecondMigrationOfOneSchema(t *testing.T) {
	path, before := anOld(t)
	if err := os.WriteFile(before, []byte("the copy of an earlier migration"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := openNotes(t, Config{Path: path})
	if got := schemaOf(t, before); got != oldSchema {
		t.Errorf("the copy has schema %d", got)
	}
	n.check(t, 1)
}

// TestNoMigrationWithoutACopy: if the copy cannot be made, the database is not changed.
func TestNoMigrationWithoutACopy(t *testing.T) {
	path, before := anOld(t)
	if err := os.Mkdir(before+".tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(before+".tmp", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: path, Schema: schema.Of}, func(*Setup) error { return nil })
	if !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("%v", err)
	}
	if got := schemaOf(t, path); got != oldSchema {
		t.Errorf("the schema is %d", got)
	}
}
