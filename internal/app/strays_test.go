package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/app"
)

// TestStraysNamesAPackOfNoCheckpoint: a pack that the database does not know is named.
func TestStraysNamesAPackOfNoCheckpoint(t *testing.T) {
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "snapshots.key"), []byte(strings.Repeat("0b", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := app.Strays(t.Context(), data); err != nil || len(got) != 0 {
		t.Fatalf("an empty store has %q, %v", got, err)
	}
	name := strings.Repeat("ab", 32)
	if err := os.WriteFile(filepath.Join(data, "snapshots", name+".v1.pack"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := app.Strays(t.Context(), data)
	if err != nil || len(got) != 1 || !strings.Contains(got[0], name) {
		t.Errorf("found %q, %v", got, err)
	}
}
