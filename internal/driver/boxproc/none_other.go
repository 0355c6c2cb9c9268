//go:build !linux

package boxproc

import (
	"context"
	"net"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// None is a driver for a system without boxes: it refuses every start. A driver embeds it.
type None struct {
	// Probed is the result of Probe. Every start is refused with its reason and its hint.
	Probed sandbox.Probe
}

// Close does nothing.
func (None) Close() error { return nil }

// Name implements sandbox.Driver.
func (n None) Name() string { return n.Probed.Driver }

// Probe implements sandbox.Driver.
func (n None) Probe(context.Context) sandbox.Probe { return n.Probed }

// Ensure always fails with unavailable.
func (n None) Ensure(context.Context, sandbox.Spec) (sandbox.Info, error) {
	return sandbox.Info{}, holdfast.Errorf(holdfast.KindUnavailable, "driver."+n.Name(), "%s", n.Probed.Reason).WithHint("%s", n.Probed.Hint)
}

// Connect always fails, because no box runs.
func (n None) Connect(_ context.Context, box holdfast.BoxID) (net.Conn, error) {
	return nil, holdfast.Errorf(holdfast.KindNotFound, "driver."+n.Name(), "box %s is not running", holdfast.Quote(string(box)))
}

// Stop does nothing, because no box runs.
func (None) Stop(context.Context, holdfast.BoxID) error { return nil }

// Remove does nothing, because no box exists.
func (None) Remove(context.Context, holdfast.BoxID) error { return nil }

// List returns no boxes.
func (None) List(context.Context) ([]sandbox.Info, error) { return nil, nil }
