package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

// TestWSR20_TrustOfTheOldSchema: sessions of a database from before workspaces keep their trust, and have none (WS-R20).
func TestWSR20_TrustOfTheOldSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	trusts := []holdfast.Trust{holdfast.Trusted, holdfast.Untrusted}
	for i, trust := range trusts {
		c := creation(testID(i + 1))
		c.Create.Trust = trust
		if _, err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := plain(t, path)
	p, err := schema.Of(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), 25); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_master WHERE name = 'workspaces'`).Scan(&n); err != nil || n != 0 {
		t.Fatalf("the old schema has %d tables of workspaces, %v", n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, Config{Path: path})
	for i, trust := range trusts {
		row, err := s.Row(t.Context(), testID(i+1))
		if err != nil || row.Trust != trust || row.Workspace != "" {
			t.Errorf("%+v, %v; want trust %s", row.Session, err, trust)
		}
	}
}
