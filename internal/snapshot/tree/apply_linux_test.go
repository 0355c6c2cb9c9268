package tree

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// killed is a source that ends its caller at a read, as a kill does: nothing is cleaned up.
type killed struct {
	Source
	reads int
}

func (k *killed) Get(ctx context.Context, id pack.ID) ([]byte, error) {
	if k.reads--; k.reads < 0 {
		panic(k)
	}
	return k.Source.Get(ctx, id)
}

// TestApplyAfterAKill: an Apply that is repeated after a kill leaves nothing of the first.
func TestApplyAfterAKill(t *testing.T) {
	p := quickPlace(t)
	for _, name := range []string{"a/f", "g", "z"} {
		p.write(name, strings.Repeat(name, 100_000))
	}
	a := p.scan().Root
	for _, name := range []string{"a/f", "g", "z"} {
		p.write(name, "2")
	}
	b, left := p.scan().Root, 0
	for n := range 100 {
		to := elsewhere(t)
		must(t, Restore(t.Context(), p.store, b, to, me()))
		if func() (done bool) {
			defer func() { done = recover() == nil }()
			return Apply(t.Context(), &killed{p.store, n}, b, a, to, me()) == nil
		}() {
			break
		}
		temps, err := filepath.Glob(to + "/.holdfast-*")
		must(t, err)
		left += len(temps)
		must(t, Apply(t.Context(), p.store, b, a, to, me()))
		want := elsewhere(t)
		must(t, Restore(t.Context(), p.store, a, want, me()))
		sameTree(t, describe(t, to), describe(t, want))
	}
	if left == 0 {
		t.Error("no kill left a file")
	}
}
