package runtimetest_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
)

// TestCasesSayWhatTheyAre: each case has a name and a promise of its own, and one that
// is for one place says why it is not for the other.
func TestCasesSayWhatTheyAre(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range runtimetest.Cases() {
		if c.Name == "" || seen[c.Name] || c.Says == "" || seen[c.Says] || strings.ContainsAny(c.Name+c.Says+c.Why, "|\n") {
			t.Errorf("case %+v", c)
		}
		seen[c.Name], seen[c.Says] = true, true
		if (c.Where == runtimetest.Anywhere) != (c.Why == "") {
			t.Errorf("%s is %s because of %q", c.Name, c.Where, c.Why)
		}
	}
}
