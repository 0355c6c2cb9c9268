// Package pending keeps the facts of a turn that its next changes have to carry: runs of hooks,
// and changes of permissions that came with a decision. They are in force at once and durable with
// the change that carries them.
//
// The engine owns a Facts for each turn; hooked and permit add to it. Invariant: a fact is
// written with one change, whole, or stays here.
package pending

import (
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/internal/journal"
)

// Fact is something that has happened and is not in the log yet.
type Fact struct {
	// With reports whether a change with these events carries the fact; nil: every change does.
	With func(events []journal.Draft) bool
	// Before are events of the fact that stand before those of the change.
	Before []journal.Draft
	// After adds the rest of the fact to the change; nil adds nothing.
	After func(c *journal.Change)
	// Recorded is called when the fact is durable; nil is not called. It must not use the Facts.
	Recorded func()
}

// Facts are the facts of one turn, in the order in which they were added. Safe for concurrent use.
// The zero value is ready.
type Facts struct {
	mu   sync.Mutex
	open []*Fact
}

// Add adds a fact.
func (f *Facts) Add(fact *Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, fact)
}

// Drop takes facts back that no change has carried yet.
func (f *Facts) Drop(facts ...*Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = slices.DeleteFunc(f.open, func(o *Fact) bool { return slices.Contains(facts, o) })
}

// Waiting reports whether a fact waits that every change carries.
func (f *Facts) Waiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.open, func(o *Fact) bool { return o.With == nil })
}

// Carry adds to a change the facts that go with it. It returns how many events now stand before
// those that the change had. The caller commits the change and then calls done with the error of
// the commit: after an error the facts wait for the next change.
func (f *Facts) Carry(c *journal.Change) (before int, done func(error)) {
	f.mu.Lock()
	var carried []*Fact
	if len(f.open) > 0 {
		// A hook's run is no event that a fact goes with, so the order of facts does not matter.
		events := c.Events
		f.open = slices.DeleteFunc(f.open, func(o *Fact) bool {
			if o.With != nil && !o.With(events) {
				return false
			}
			carried = append(carried, o)
			return true
		})
	}
	f.mu.Unlock()
	if carried == nil {
		return 0, func(error) {}
	}
	var first []journal.Draft
	for _, o := range carried {
		first = append(first, o.Before...)
	}
	c.Events = append(first, c.Events...)
	for _, o := range carried {
		if o.After != nil {
			o.After(c)
		}
	}
	return len(first), func(err error) {
		if err != nil {
			f.mu.Lock()
			f.open = append(carried, f.open...)
			f.mu.Unlock()
			return
		}
		for _, o := range carried {
			if o.Recorded != nil {
				o.Recorded()
			}
		}
	}
}
