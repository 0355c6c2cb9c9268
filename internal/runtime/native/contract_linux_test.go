package native_test

import (
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// TestRuntimeInLocalBoxes is the contract with real processes in real sandboxes.
func TestRuntimeInLocalBoxes(t *testing.T) {
	testkit.Long(t)
	runtimetest.Run(t, runtimetest.Config{
		New: newRuntime, UID: 1_878_800_000, Points: 6,
		Boxes: func(t *testing.T) (sandbox.Driver, string) {
			home, program := testkit.BaseDir(t), testkit.Boxd(t)
			d, err := local.New(local.Config{
				Home: home, Boxd: boxd.File(program), LimitsMode: sandbox.LimitsBestEffort,
				Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(home),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			return d, filepath.Join(home, "s")
		},
	})
}
