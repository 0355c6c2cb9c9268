package hook

import (
	"context"
	"slices"
	"sync"
)

// Registry holds hooks in the order of their registration. The zero value is ready to use; a nil
// Registry is empty. Safe for concurrent use: a run executes the hooks that were registered when
// it began.
type Registry struct {
	mu    sync.RWMutex
	hooks []*Hook
	next  int64
}

// Handle identifies a registered hook, for Unregister. The zero value identifies none.
type Handle struct{ order int64 }

// Register adds a hook after the others. The error of an invalid Definition names the field.
func (r *Registry) Register(d Definition) (Handle, error) {
	h, err := newHook(d)
	if err != nil {
		return Handle{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(h), nil
}

// add appends a hook; r.mu is held. It never writes to a slice that a reader may have.
func (r *Registry) add(h *Hook) Handle {
	r.next++
	h.order = r.next
	r.hooks = append(slices.Clip(r.hooks), h)
	return Handle{h.order}
}

// Unregister removes a hook and reports whether it was registered.
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

// Clear removes all hooks.
func (r *Registry) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks = nil
}

// HasHooks reports whether any hook is registered for an event, whatever its matcher.
func (r *Registry) HasHooks(e Event) bool {
	return slices.ContainsFunc(r.all(), func(h *Hook) bool { return h.def.Event == e })
}

// Empty reports whether no hook is registered.
func (r *Registry) Empty() bool { return len(r.all()) == 0 }

// Hooks returns the hooks whose event and matcher fit the input, in the order of registration.
func (r *Registry) Hooks(in Input) []*Hook {
	var out []*Hook
	for _, h := range r.all() {
		if h.wants(in) {
			out = append(out, h)
		}
	}
	return out
}

// Run runs the hooks for an event, one after the other, and merges their results.
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
