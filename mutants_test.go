package holdfast_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutantsApply: what each patch of mutants/ takes away is there, line for line,
// and its head names a test. That the test turns red is what scripts/mutants sees to.
func TestMutantsApply(t *testing.T) {
	patches, err := filepath.Glob("mutants/*.patch")
	if err != nil || len(patches) < 20 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	for _, name := range patches {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), "\n# test: ./") {
			t.Errorf("%s names no test", name)
		}
		file, old, hunks := "", "", 0
		holds := func() {
			if old == "" {
				return
			}
			hunks++
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains("\n"+string(text), "\n"+old) {
				t.Errorf("%s does not apply to %s: the code moved, the patch has to follow (mutants/README.md)", name, file)
			}
			old = ""
		}
		for l := range strings.Lines(string(raw)) {
			switch {
			case strings.HasPrefix(l, "--- a/"):
				holds()
				file = strings.TrimSpace(l[len("--- a/"):])
			case strings.HasPrefix(l, "@@"):
				holds()
			case strings.HasPrefix(l, " "), strings.HasPrefix(l, "-"):
				old += l[1:]
			case l == "\n":
				old += l // a context line whose blank an editor took
			}
		}
		if holds(); hunks == 0 {
			t.Errorf("%s changes nothing", name)
		}
	}
}
