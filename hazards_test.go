package holdfast_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestHazardsAreDefined: each number of a hazard that a test or a comment names has a row in
// docs/hazards.md.
func TestHazardsAreDefined(t *testing.T) {
	text, err := os.ReadFile("docs/hazards.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| HZ-(\d+) \|`).FindAllStringSubmatch(string(text), -1) {
		if defined[m[1]] {
			t.Errorf("HZ-%s has two rows", m[1])
		}
		defined[m[1]] = true
	}
	if len(defined) < 25 {
		t.Fatalf("%d rows", len(defined))
	}
	cited := regexp.MustCompile(`HZ-?(\d+)`)
	for _, s := range sources(t) {
		for i, l := range s.text {
			for _, m := range cited.FindAllStringSubmatch(l, -1) {
				if !defined[strings.TrimLeft(m[1], "0")] {
					t.Errorf("%s:%d: HZ-%s is not in docs/hazards.md", s.name, i+1, m[1])
				}
			}
		}
	}
}
