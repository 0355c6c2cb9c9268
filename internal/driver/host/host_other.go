//go:build !linux

package host

import (
	"context"
	"net"
	"runtime"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver refuses everything that needs a box: boxd runs on Linux.
type Driver struct{}

var _ sandbox.Driver = (*Driver)(nil)

// New checks the configuration.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Driver{}, nil
}

// Close does nothing.
func (d *Driver) Close() error { return nil }

// Name is "host".
func (d *Driver) Name() string { return "host" }

func refusal() *holdfast.Error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the host driver needs Linux, this is %s", runtime.GOOS).
		WithHint("run the server on Linux, or in a Linux virtual machine")
}

// Probe says why it is not usable.
func (d *Driver) Probe(context.Context) sandbox.Probe {
	r := refusal()
	return sandbox.Probe{Driver: d.Name(), Reason: r.Msg, Hint: r.Hint}
}

// Ensure refuses.
func (d *Driver) Ensure(_ context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := checkSpec(spec); err != nil {
		return sandbox.Info{}, err
	}
	return sandbox.Info{}, refusal()
}

// Connect knows no box.
func (d *Driver) Connect(_ context.Context, box holdfast.BoxID) (net.Conn, error) {
	return nil, holdfast.Errorf(holdfast.KindNotFound, op, "box %s does not run", holdfast.Quote(string(box)))
}

// Stop has nothing to stop.
func (d *Driver) Stop(context.Context, holdfast.BoxID) error { return nil }

// Remove has nothing to remove.
func (d *Driver) Remove(context.Context, holdfast.BoxID) error { return nil }

// List is empty.
func (d *Driver) List(context.Context) ([]sandbox.Info, error) { return nil, nil }
