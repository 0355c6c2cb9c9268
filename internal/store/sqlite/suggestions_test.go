package sqlite

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

// TestQuestionsOfTheOldSchemaKeepTheirSuggestion: before schema 16 a question had one
// suggestion or none. Both outlive the migration, and the way back.
func TestQuestionsOfTheOldSchemaKeepTheirSuggestion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	session := testID(1)
	if _, err := s.Commit(t.Context(), creation(session)); err != nil {
		t.Fatal(err)
	}
	// An apostrophe, a quote and a backslash have to be encoded.
	odd := `Bash(echo it's "\ü")`
	want := map[holdfast.ApprovalID][]string{
		"01890a5d-0000-7000-8000-000000000001": nil,
		"01890a5d-0000-7000-8000-000000000002": {odd},
		"01890a5d-0000-7000-8000-000000000003": {"Bash(a)"},
	}
	check := func(s *opened) {
		t.Helper()
		page, err := s.Approvals(t.Context(), journal.ApprovalQuery{State: holdfast.ApprovalPending})
		if err != nil || len(page.Approvals) != len(want) {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, a := range page.Approvals {
			if !slices.Equal(a.Suggestions, want[a.ID]) {
				t.Errorf("%s: %q, want %q", a.ID, a.Suggestions, want[a.ID])
			}
		}
	}
	for id, suggestions := range want {
		c := journal.NewChange(session)
		c.Approvals = []journal.ApprovalChange{{Ask: &holdfast.Approval{
			ID: id, Session: session, Turn: "turn", ToolUseID: "use", Tool: "Bash", Input: []byte(`{}`), Suggestions: suggestions,
		}}}
		c.Events = []journal.Draft{{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: "x"}}}
		if _, err := s.Commit(t.Context(), journal.Encoded{Change: c, Data: [][]byte{[]byte(`{"code":"x"}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	db := plain(t, path)
	p, err := schema.Of(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), 15); err != nil {
		t.Fatal(err)
	}
	for id, suggestions := range want {
		var was string
		if err := db.QueryRowContext(t.Context(), `SELECT suggestion FROM approvals WHERE id = ?`, id).Scan(&was); err != nil {
			t.Fatal(err)
		}
		if one := append(suggestions, "")[0]; was != one {
			t.Errorf("%s: %q before the migration, want %q", id, was, one)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	check(openAt(t, Config{Path: path}))
}
