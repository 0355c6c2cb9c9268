package holdfast_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadme: the first screen says what a newcomer looks for, what it links to is there,
// and nothing that a user reads tells of the plan by which this is built.
//
// FH-49, FH-51, FH-52.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	screen := strings.Join(strings.SplitN(string(text), "\n", 41)[:40], "\n")
	for _, want := range []string{
		"**For whom.**", "| Claude Code in a container |", "| A hosted sandbox |", "| A workflow engine |",
		"](docs/recording.svg)", "make build", "holdfast serve", "session create --from", "holdfast chat", "git -C ~/project apply",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("the first 40 lines of README.md have no %q", want)
		}
	}
	if !regexp.MustCompile(`(?s)kill.{0,400}scripts/|make (faults|check)`).Match(text) {
		t.Error("README.md names no command for the figures of its kills")
	}
	for _, page := range []string{"agents", "models", "repository", "troubleshooting", "tour", "claude"} {
		if _, err := os.Stat("docs/" + page + ".md"); err != nil {
			t.Error(err)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(m[1]); err != nil && !strings.HasPrefix(m[1], "http") {
			t.Errorf("README.md links to %s: %v", m[1], err)
		}
	}
	drawn, err := os.ReadFile("docs/recording.svg")
	if err != nil || !bytes.Contains(drawn, []byte("<svg")) {
		t.Errorf("docs/recording.svg is no picture: %v", err)
	}
	if _, err := exec.LookPath("./scripts/recording"); err != nil {
		t.Error(err)
	}

	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	helps, err := filepath.Glob("cmd/holdfast/testdata/help*")
	if err != nil {
		t.Fatal(err)
	}
	plan := regexp.MustCompile(`(?i)\bparts? [4-9](\.\d)?\b|\bpart 10\b`)
	for _, name := range append(append(pages, helps...), "README.md", "CONTRIBUTING.md") {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if m := plan.Find(page); m != nil {
			t.Errorf("%s tells of %q", name, m)
		}
	}
	// What the program itself says.
	for _, s := range sources(t) {
		if s.test || s.suite() {
			continue
		}
		for i, l := range s.text {
			if code, _, _ := strings.Cut(l, "//"); plan.MatchString(code) && strings.Contains(code, `"`) {
				t.Errorf("%s:%d tells of the plan: %s", s.name, i+1, strings.TrimSpace(l))
			}
		}
	}
}
