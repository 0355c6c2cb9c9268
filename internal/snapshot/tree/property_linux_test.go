package tree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestRandomTrees: a random tree is the same after a scan and a restore, a second scan after random changes
// gives the root of a scan without a cache, and Apply leads from each of both trees to the other.
//
// ASH-21.
func TestRandomTrees(t *testing.T) { wantRandomTrees(t, 50) }

// TestRandomTreesLong does the same with more trees.
func TestRandomTreesLong(t *testing.T) {
	testkit.Long(t)
	wantRandomTrees(t, testkit.Rounds(2000))
}

func wantRandomTrees(t *testing.T, n int) {
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomTree(t, uint64(seed)) })
		if t.Failed() {
			return
		}
	}
}

func randomTree(t *testing.T, seed uint64) {
	p := newPlace(t)
	if seed%2 == 1 {
		p = quickPlace(t)
	}
	g := &grower{t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: p.dir}
	g.grow(40)
	a := p.scan()
	first := describe(t, p.dir)
	other := elsewhere(t)
	must(t, Restore(t.Context(), p.store, a.Root, other, me()))
	sameTree(t, describe(t, other), first)

	rounds := 1
	if seed%8 == 0 {
		rounds = 3
	}
	for range rounds {
		before := p.last
		g.grow(1 + g.r.IntN(15))
		b := p.scan()
		if fresh := p.fresh(); fresh.Root != b.Root {
			t.Errorf("seed %d: a scan with a cache gives another root", seed)
		}
		want := describe(t, p.dir)
		must(t, Apply(t.Context(), p.store, before, b.Root, other, me()))
		sameTree(t, describe(t, other), want)
	}
	must(t, Apply(t.Context(), p.store, p.last, a.Root, other, me()))
	sameTree(t, describe(t, other), first)
}
