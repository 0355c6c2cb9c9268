package mem_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	dirs := map[sandbox.Driver]string{}
	sandboxtest.Run(t, sandboxtest.Config{
		New: func(t *testing.T) sandbox.Driver {
			d := mem.New(mem.Config{})
			dirs[d] = t.TempDir()
			return d
		},
		Again: func(_ *testing.T, d sandbox.Driver) sandbox.Driver { return d.(*mem.Driver).Reopen() },
		Spec: func(_ *testing.T, d sandbox.Driver, name string) sandbox.Spec {
			return sandbox.Spec{Box: holdfast.BoxID("w-" + name), Dir: filepath.Join(dirs[d], name)}
		},
		Kill: func(t *testing.T, d sandbox.Driver, box holdfast.BoxID) {
			if !d.(*mem.Driver).KillBox(box) {
				t.Fatal("no box to kill")
			}
		},
		Isolates: true, FixedPaths: true,
	})
}
