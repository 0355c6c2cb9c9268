package holdfast_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWSR21_DocsOfTrust: the documentation says that the trust of a workspace is a default, and no boundary.
func TestWSR21_DocsOfTrust(t *testing.T) {
	text, err := os.ReadFile("docs/workspaces.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{"The level of a workspace is a convenience", "no boundary against the owner of the machine"} {
		if !strings.Contains(plain, want) {
			t.Errorf("docs/workspaces.md does not say %q", want)
		}
	}
}

// TestWSR120_RenameIsInTheChangelog: the new name of a workspace's trust is told as a breaking change.
func TestWSR120_RenameIsInTheChangelog(t *testing.T) {
	entries, err := filepath.Glob("changelog/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if released, err := filepath.Glob("CHANGELOG.md"); err == nil {
		entries = append(entries, released...)
	}
	for _, name := range entries {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(text); strings.Contains(s, "Breaking") && strings.Contains(s, "`default_trust_level`") && strings.Contains(s, "`trust_level`") {
			return
		}
	}
	t.Error("no entry says that trust_level is now default_trust_level")
}
