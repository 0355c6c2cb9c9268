package sandbox

import (
	"context"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Layer restricts which paths of its box a process may touch; see wire.Layer.
type Layer = wire.Layer

type layersKey struct{}

// Layered returns a context under which every Exec of any box starts its process inside
// of layers, which allow it less than the box does. The caller that runs a tool sets
// it, so that no tool can leave it out. layers is called before each Exec. When it
// fails, nothing is started and Exec returns its error, unless the call has been
// started before.
func Layered(ctx context.Context, layers func() ([]Layer, error)) context.Context {
	return context.WithValue(ctx, layersKey{}, layers)
}

func layersOf(ctx context.Context) ([]Layer, error) {
	layers, ok := ctx.Value(layersKey{}).(func() ([]Layer, error))
	if !ok {
		return nil, nil
	}
	return layers()
}
