//go:build !linux

package local

import (
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver refuses every start here: boxes of this driver are made of Linux namespaces.
type Driver struct{ boxproc.None }

var _ sandbox.Driver = (*Driver)(nil)

// New checks the configuration as on Linux. The driver that it returns refuses every start.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Driver{boxproc.None{Probed: sandbox.Probe{
		Driver: "local", Isolates: true, Reason: "this system has no Linux namespaces",
		Hint: "run the server on Linux and point HOLDFAST_URL at it, or use trusted sessions with --driver host",
	}}}, nil
}
