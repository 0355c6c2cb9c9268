package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManPages: every command has a page that roff programs read without a
// warning.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if code, out, errs := runCLI(t, nil, "", "man", dir); code != 0 || !strings.Contains(out, "pages to ") {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	request := regexp.MustCompile(`^\.(TH|SH|PP|TP|B|BR|EX|EE)\b`)
	var pages []string
	for _, node := range commands(model(t)) {
		name := filepath.Join(dir, manName(node)+".1")
		pages = append(pages, name)
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(page)) {
			if strings.HasPrefix(l, "'") || strings.HasPrefix(l, ".") && !request.MatchString(l) {
				t.Errorf("%s: %q is a request", name, l)
			}
		}
		for _, f := range node.Flags {
			if !f.Hidden && !bytes.Contains(page, []byte(roff("--"+f.Name))) {
				t.Errorf("%s: no --%s", name, f.Name)
			}
		}
		if bytes.Count(page, []byte(".EX\n")) != bytes.Count(page, []byte(".EE\n")) || !bytes.Contains(page, []byte(".SH \"EXIT STATUS\"")) {
			t.Errorf("%s:\n%s", name, page)
		}
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		if out, err := exec.Command(groff, append([]string{"-ww", "-z", "-man", "-Tutf8"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
	}
	if code, out, _ := runCLI(t, nil, "", "man"); code != 0 || !strings.HasPrefix(out, ".TH HOLDFAST 1 ") || !strings.Contains(out, `holdfast\-session (1)`) ||
		!strings.Contains(out, "the server of the current context") || !strings.Contains(out, "$XDG_DATA_HOME/holdfast, else ~/.holdfast") {
		t.Errorf("%d %q", code, out)
	}
	if got := roff(".x\n'y\n\\a-b…"); got != "\\&.x\n\\&'y\n\\ea\\-b\\[u2026]" {
		t.Errorf("%q", got)
	}
}
