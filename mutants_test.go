package holdfast_test

import (
	"fmt"
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
		before, after, changed := 0, 0, false
		head, oldLines, newLines := "", 0, 0
		holds := func() {
			if old == "" {
				return
			}
			hunks++
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains("\n"+string(text), "\n"+old) {
				t.Errorf("%s does not apply to %s: the code moved, the patch has to follow (mutants/README.md)", name, file)
			}
			// patch looks for a hunk with fewer lines after its change than before it at the end of the file only.
			if before > after && !strings.HasSuffix(string(text), old) {
				t.Errorf("%s has %d lines before a change and only %d after it", name, before, after)
			}
			if want := fmt.Sprintf(",%d +", oldLines); !strings.Contains(head, want) || !strings.Contains(head, fmt.Sprintf(",%d @@", newLines)) {
				t.Errorf("%s: a hunk of %d lines before and %d after has the header %q", name, oldLines, newLines, head)
			}
			old, before, after, changed = "", 0, 0, false
		}
		for l := range strings.Lines(string(raw)) {
			switch {
			case strings.HasPrefix(l, "--- a/"):
				holds()
				file = strings.TrimSpace(l[len("--- a/"):])
			case strings.HasPrefix(l, "+++ b/"):
			case strings.HasPrefix(l, "@@"):
				holds()
				head, oldLines, newLines = l, 0, 0
			case strings.HasPrefix(l, "-"):
				old += l[1:]
				oldLines++
				after, changed = 0, true
			case strings.HasPrefix(l, "+"):
				newLines++
				after, changed = 0, true
			case strings.HasPrefix(l, " "), l == "\n": // an editor may have taken the blank of an empty line
				old += strings.TrimPrefix(l, " ")
				oldLines, newLines = oldLines+1, newLines+1
				if after++; !changed {
					before, after = before+1, 0
				}
			}
		}
		if holds(); hunks == 0 {
			t.Errorf("%s changes nothing", name)
		}
	}
}
