package holdfast_test

import (
	"os/exec"
	"testing"
)

// TestTourHasTheCommandsOfTheReadme: what the README lets a newcomer type is what
// docs/tour.md was seen to print.
//
// FH-50.
func TestTourHasTheCommandsOfTheReadme(t *testing.T) {
	if out, err := exec.Command("scripts/tour", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
