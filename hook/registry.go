package hook

import (
	"context"
	"slices"
	"sync"
)

// Registry holds hooks in the order of their registration. The zero value is
// ready, a nil one empty. Safe for concurrent use: who runs hooks sees those that
// were registered when it began.
type Registry struct {
	mu    sync.RWMutex
	hooks []*Hook
	next  int64
}

// Handle takes a hook out of its registry again. The zero value is none.
type Handle struct{ order int64 }

// Register adds a hook after the others; what makes no sense is invalid and names
// the field.
func (r *Registry) Register(d Definition) (Handle, error) {
	h, err := newHook(d)
	if err != nil {
		return Handle{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(h), nil
}

// add appends; r.mu is held. Slices that were given away are never written to.
func (r *Registry) add(h *Hook) Handle {
	r.next++
	h.order = r.next
	r.hooks = append(slices.Clip(r.hooks), h)
	return Handle{h.order}
}

// Unregister takes a hook out and says whether it was there.
func (r *Registry) Unregister(h Handle) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := make([]*Hook, 0, len(r.hooks))
	for _, have := range r.hooks {
		if have.order != h.order {
			kept = append(kept, have)
		}
	}
	found := len(kept) < len(r.hooks)
	r.hooks = kept
	return found
}

// Clear takes all hooks out.
func (r *Registry) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks = nil
}

// HasHooks reports whether any hook waits for an event, whatever its matcher.
func (r *Registry) HasHooks(e Event) bool {
	return slices.ContainsFunc(r.all(), func(h *Hook) bool { return h.def.Event == e })
}

// Empty reports that there is no hook at all.
func (r *Registry) Empty() bool { return len(r.all()) == 0 }

// Hooks are those for an event, in order.
func (r *Registry) Hooks(in Input) []*Hook {
	var out []*Hook
	for _, h := range r.all() {
		if h.wants(in) {
			out = append(out, h)
		}
	}
	return out
}

// Run runs the hooks for an event, one after the other, and merges what they said.
func (r *Registry) Run(ctx context.Context, in Input, at Places) Result {
	return Run(ctx, r.Hooks(in), in, at)
}

func (r *Registry) all() []*Hook {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.hooks
}
