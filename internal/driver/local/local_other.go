//go:build !linux

package local

import (
	"context"
	"net"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver refuses every start here: boxes of this driver are made of Linux namespaces.
type Driver struct{}

var _ sandbox.Driver = (*Driver)(nil)

// New checks the configuration as on Linux. The driver that it returns refuses every start.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Driver{}, nil
}

func refuse() error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "this system has no Linux namespaces").
		WithHint("run the server on Linux and point HOLDFAST_URL at it, or use trusted sessions with --driver host")
}

// Close does nothing.
func (d *Driver) Close() error { return nil }

// Name implements sandbox.Driver.
func (d *Driver) Name() string { return "local" }

// Probe implements sandbox.Driver.
func (d *Driver) Probe(context.Context) sandbox.Probe {
	return sandbox.Probe{Driver: "local", Isolates: true, Reason: refuse().Error(), Hint: holdfast.HintOf(refuse())}
}

// Ensure implements sandbox.Driver. It always fails with unavailable.
func (d *Driver) Ensure(_ context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := checkSpec(spec, false); err != nil {
		return sandbox.Info{}, err
	}
	return sandbox.Info{}, refuse()
}

// Connect implements sandbox.Driver. It always fails, because no box runs.
func (d *Driver) Connect(_ context.Context, box holdfast.BoxID) (net.Conn, error) {
	return nil, holdfast.Errorf(holdfast.KindNotFound, op, "box %s is not running", holdfast.Quote(string(box)))
}

// Stop implements sandbox.Driver: there is nothing to stop.
func (d *Driver) Stop(context.Context, holdfast.BoxID) error { return nil }

// Remove implements sandbox.Driver: there is nothing to remove.
func (d *Driver) Remove(context.Context, holdfast.BoxID) error { return nil }

// List implements sandbox.Driver. It always returns an empty list.
func (d *Driver) List(context.Context) ([]sandbox.Info, error) { return nil, nil }
