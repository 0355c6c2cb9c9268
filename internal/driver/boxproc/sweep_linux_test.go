package boxproc_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// TestSweepOfARunningServerLeavesYoungFiles: they may be of a box that is being
// started, whose record comes last.
func TestSweepOfARunningServerLeavesYoungFiles(t *testing.T) {
	d := open(t)
	for name, old := range map[string]bool{"old.tmp": true, "young.tmp": false, "ffff.sock": true, "eeee.log": false} {
		path := filepath.Join(d.Path(), name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if at := time.Now().Add(-2 * boxproc.StrayAge); old {
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{"ffff.sock", "old.tmp"}
	for _, look := range []func(time.Duration) ([]string, error){d.Strays, d.Sweep} {
		if got, err := look(boxproc.StrayAge); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v", got, err)
		}
	}
	if got, err := d.Strays(0); err != nil || len(got) != 2 {
		t.Errorf("left %v, %v", got, err)
	}
}
