// Package pending holds facts of a turn until one of its next changes records them: hook runs, and
// permission updates that came with a decision. They are effective at once, and durable with the
// change that records them.
//
// The engine owns a Facts for each turn, to which it and package hooked add facts; package permit makes
// those of permission updates. Invariant: a fact is recorded completely, with one change, or stays in the
// Facts until the turn drops it.
package pending

import (
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/internal/journal"
)

// Fact is something that has happened but is not in the log yet.
type Fact struct {
	// With reports whether a change with these events may record the fact; if With is nil, every
	// change may.
	With func(events []journal.Draft) bool
	// Before are the fact's events, which are inserted before those of the change.
	Before []journal.Draft
	// After adds the rest of the fact to the change; nil adds nothing.
	After func(c *journal.Change)
	// Recorded is called, unless nil, when the fact is durable. It must not use the Facts.
	Recorded func()
}

// Facts holds the pending facts of one turn, in the order in which they were added. Safe for
// concurrent use. The zero value is ready.
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

// Drop removes facts that no change has recorded yet.
func (f *Facts) Drop(facts ...*Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = slices.DeleteFunc(f.open, func(o *Fact) bool { return slices.Contains(facts, o) })
}

// Waiting reports whether a fact is pending that any change may record.
func (f *Facts) Waiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.open, func(o *Fact) bool { return o.With == nil })
}

// Carry adds the facts that a change may record to the change. before is the number of events
// inserted before the change's own. The caller commits the change and then calls done with the
// commit's error: after an error the facts stay pending.
func (f *Facts) Carry(c *journal.Change) (before int, done func(error)) {
	f.mu.Lock()
	var carried []*Fact
	if len(f.open) > 0 {
		// With is asked only about the change's own events: facts never depend on events of other
		// facts, so their order does not matter.
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
