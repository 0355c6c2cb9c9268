package sandbox

import (
	"context"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Layer restricts which paths of its box a process may touch; see wire.Layer.
type Layer = wire.Layer

type layersKey struct{}

// Layered returns a context in which every Exec of any box restricts its process with layers,
// in addition to the restrictions of the box. The code that runs a tool sets it, so that a
// tool cannot omit it. layers is called before each Exec. If it fails, Exec starts nothing
// and returns its error, unless the call was started before.
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
