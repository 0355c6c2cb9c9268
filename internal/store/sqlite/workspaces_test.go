package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
	"github.com/holdfast-run/holdfast/internal/workspaces"
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

// TestRulesOfTheOldSchema: rules of a database from before their trust was stored count as added by an untrusted
// session (I-48). The rules of workspaces that do not exist any more are removed.
func TestRulesOfTheOldSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	if _, err := s.AddWorkspace(t.Context(), workspaces.Record{Workspace: holdfast.Workspace{ID: "site"}}); err != nil {
		t.Fatal(err)
	}
	c := creation(testID(1))
	c.Create.Trust = holdfast.Trusted
	for _, key := range []string{"w-site", "w-gone", string(testID(1))} {
		c.Rules = append(c.Rules, journal.RuleChange{Key: key, RuleChange: holdfast.RuleChange{Scope: holdfast.ScopeWorkspace, Behavior: "grant", Rule: "Bash"}})
	}
	if _, err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []holdfast.Trust{holdfast.Trusted, holdfast.Untrusted} {
		list, err := s.all.Approvals.Rules(t.Context(), "w-site")
		if err != nil || len(list) != 1 || list[0].Trust != want {
			t.Errorf("%+v, %v; want one rule with the trust %s", list, err, want)
		}
		own, err := s.all.Approvals.Rules(t.Context(), string(testID(1)))
		gone, gerr := s.all.Approvals.Rules(t.Context(), "w-gone")
		if err != nil || gerr != nil || len(own) != 1 || len(gone) != 0 && want == holdfast.Untrusted {
			t.Errorf("%d rules of the session, %d of a deleted workspace, %v, %v", len(own), len(gone), err, gerr)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db := plain(t, path)
		p, err := schema.Of(db)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.DownTo(t.Context(), 29); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s = openAt(t, Config{Path: path})
	}
}
