package pool

import (
	"context"

	"github.com/holdfast-run/holdfast/sandbox"
)

// prewarmed keeps boots of boxd ready before it is known for which boxes they will be. It does
// nothing if the driver cannot do that or want is 0. Safe for concurrent use.
type prewarmed struct {
	core *core
	// driver is nil if no boots are kept ready.
	driver sandbox.Prewarmer
	want   int
}

func newPrewarmed(s *core, driver sandbox.Driver, want int) prewarmed {
	p := prewarmed{core: s, want: want}
	if want > 0 {
		p.driver, _ = driver.(sandbox.Prewarmer)
	}
	return p
}

// refill starts boots until want are ready, in a goroutine of its own. If that fails, the next
// start of a box is slower and reports the cause.
func (p prewarmed) refill() {
	if p.driver == nil {
		return
	}
	p.core.mu.Lock()
	defer p.core.mu.Unlock()
	p.core.spawn(func() { _ = p.driver.Prewarm(p.core.ctx, p.want) })
}

// end stops all ready boots. It is called after the pool has closed.
func (p prewarmed) end(ctx context.Context) error {
	if p.driver == nil {
		return nil
	}
	return p.driver.Prewarm(ctx, 0)
}

// reserve assigns a ready boot, if there is one, to a box that has never run: see sandbox.Prewarmer.
func (p prewarmed) reserve(spec sandbox.Spec) (reserved sandbox.Spec, ok bool) {
	if p.driver == nil {
		return spec, false
	}
	return p.driver.Reserve(spec)
}
