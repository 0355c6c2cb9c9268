package told_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/snapshot/told"
)

// TestTextsAreBounded: a text names 20 paths, quoted, and counts the others.
func TestTextsAreBounded(t *testing.T) {
	var paths []string
	for i := range 25 {
		paths = append(paths, fmt.Sprintf("p_q\n%d", i))
	}
	for what, text := range map[string]string{
		"cut": told.Cut("c", nil, paths), "losses": told.Losses("/d", "c", paths, nil, nil, nil), "left": told.Left("/d", "a", "b", paths),
		"conflicting": told.Conflicting("s", "/d", paths).Error(),
	} {
		if strings.Count(text, "p_q") != 20 || !strings.Contains(text, " and 5 more") || strings.Contains(text, "\n") {
			t.Errorf("%s: %q", what, text)
		}
	}
}
