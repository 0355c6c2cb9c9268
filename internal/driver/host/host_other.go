//go:build !linux

package host

import (
	"runtime"

	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver refuses everything that needs a box, because boxd runs only on Linux.
type Driver struct{ boxproc.None }

var _ sandbox.Driver = (*Driver)(nil)

// New only checks the configuration.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Driver{boxproc.None{Probed: sandbox.Probe{
		Driver: "host", Reason: "the host driver needs Linux; this system is " + runtime.GOOS,
		Hint: "run the server on Linux, or in a Linux virtual machine",
	}}}, nil
}
