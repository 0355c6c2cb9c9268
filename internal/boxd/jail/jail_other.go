//go:build !linux

package jail

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Enter refuses: a jail is made of Linux namespaces.
func Enter(*wire.Config) (forker boxd.Forker, inForce, missing []string, err error) {
	return nil, nil, nil, holdfast.Errorf(holdfast.KindUnavailable, "jail", "this system has no Linux namespaces").
		WithHint("use --driver docker, or --driver host for trusted sessions")
}

// Ready does nothing: no driver waits for it.
func Ready(*wire.Config, []string, []string, error) {}
