//go:build !linux

package host

import (
	"context"
	"net"
	"runtime"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Driver refuses everything that needs a box, because boxd runs only on Linux.
type Driver struct{}

var _ sandbox.Driver = (*Driver)(nil)

// New only checks the configuration.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Driver{}, nil
}

// Close does nothing.
func (d *Driver) Close() error { return nil }

// Name returns "host".
func (d *Driver) Name() string { return "host" }

func refusal() *holdfast.Error {
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the host driver needs Linux; this system is %s", runtime.GOOS).
		WithHint("run the server on Linux, or in a Linux virtual machine")
}

// Probe reports why the driver is not usable.
func (d *Driver) Probe(context.Context) sandbox.Probe {
	r := refusal()
	return sandbox.Probe{Driver: d.Name(), Reason: r.Msg, Hint: r.Hint}
}

// Ensure always fails, because boxd needs Linux.
func (d *Driver) Ensure(_ context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := checkSpec(spec); err != nil {
		return sandbox.Info{}, err
	}
	return sandbox.Info{}, refusal()
}

// Connect always fails, because no box runs.
func (d *Driver) Connect(_ context.Context, box holdfast.BoxID) (net.Conn, error) {
	return nil, holdfast.Errorf(holdfast.KindNotFound, op, "box %s is not running", holdfast.Quote(string(box)))
}

// Stop does nothing, because no box runs.
func (d *Driver) Stop(context.Context, holdfast.BoxID) error { return nil }

// Remove does nothing, because no box exists.
func (d *Driver) Remove(context.Context, holdfast.BoxID) error { return nil }

// List returns no boxes.
func (d *Driver) List(context.Context) ([]sandbox.Info, error) { return nil, nil }
