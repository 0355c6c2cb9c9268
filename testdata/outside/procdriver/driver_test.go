package procdriver_test

import (
	"os"
	"path/filepath"
	"testing"

	"example.com/outside/procdriver"
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest"
)

// TestConformance: a driver from outside keeps the contract of drivers.
func TestConformance(t *testing.T) {
	homes := map[sandbox.Driver]string{}
	open := func(t *testing.T, home string) sandbox.Driver {
		d, err := procdriver.New(filepath.Join(home, "run"))
		if err != nil {
			t.Fatal(err)
		}
		homes[d] = home
		return d
	}
	sandboxtest.Run(t, sandboxtest.Config{
		New: func(t *testing.T) sandbox.Driver {
			home, err := os.MkdirTemp("", "p") // short: a socket's path is at most 107 bytes
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(home) })
			return open(t, home)
		},
		Again: func(t *testing.T, d sandbox.Driver) sandbox.Driver { return open(t, homes[d]) },
		Spec: func(_ *testing.T, d sandbox.Driver, name string) sandbox.Spec {
			return sandbox.Spec{Box: holdfast.BoxID("w-" + name), Dir: filepath.Join(homes[d], "sessions", name)}
		},
		RealPrograms: true, Terminals: true,
	})
}
