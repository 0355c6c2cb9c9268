// Package recall remembers small trees between snapshots. With a memory, a short look at a tree shows that nothing
// changed, and no scan is needed.
package recall

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
)

// Memory holds a memo of each tree of a scope. At the last look the files were those of the scope's newest checkpoint.
// The trees of a scope without a Memory are scanned.
type Memory struct {
	// Newest points to the scope's newest checkpoint at the last look. Whatever replaces the files, or stores a newer
	// checkpoint, also changes the server's pointer to the newest checkpoint, and a Memory whose pointer differs from it
	// is not used. Without that, a memo with the same root could be from before the files were replaced.
	Newest *journal.Checkpoint
	// Trees has nil in the place of a home directory that does not exist.
	Trees [2]*statcache.Memo
}

func (m *Memory) size() (n int) {
	if m == nil {
		return 0
	}
	for _, t := range m.Trees {
		if t != nil {
			n += t.Size()
		}
	}
	return n
}

// Look returns the memory for the next look, if a scan of the trees in these directories would find no change; else
// nil. Processes may write to the trees meanwhile. m may be nil: then Look returns nil.
func (m *Memory) Look(dirs [2]string, now time.Time) *Memory {
	if m == nil {
		return nil
	}
	next := &Memory{Newest: m.Newest}
	for i, dir := range dirs {
		if m.Trees[i] == nil {
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		} else if next.Trees[i] = m.Trees[i].Look(dir, now); next.Trees[i] == nil {
			return nil
		}
	}
	return next
}

// mostMemory is how many bytes the memories of all scopes need at most. The memory of two small trees needs about 1
// KiB, and never more than 16 KiB.
const mostMemory = 2 << 20

// Memories holds the memories of scopes. The zero value is ready. Safe for concurrent use.
type Memories[Scope comparable] struct {
	mu   sync.Mutex
	of   map[Scope]*Memory
	size int
}

// Put stores the memory of a scope; nil removes it. If all memories together need more than mostMemory bytes, Put
// removes some of other scopes.
func (all *Memories[Scope]) Put(sc Scope, m *Memory) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.set(sc, m)
	for other := range all.of {
		if all.size <= mostMemory {
			break
		}
		if other != sc {
			all.set(other, nil)
		}
	}
}

// set does what Put does, without the limit mostMemory. The caller holds mu.
func (all *Memories[Scope]) set(sc Scope, m *Memory) {
	all.size += m.size() - all.of[sc].size()
	if m == nil {
		delete(all.of, sc)
		return
	}
	if all.of == nil {
		all.of = map[Scope]*Memory{}
	}
	all.of[sc] = m
}

// Same reports whether a scan of the first tree of a scope, in the directory dir, would find no change since the
// checkpoint newest. Without a memory of that checkpoint it returns false. It does not remove the memory.
func (all *Memories[Scope]) Same(sc Scope, newest *journal.Checkpoint, dir string, now time.Time) bool {
	all.mu.Lock()
	m := all.of[sc]
	all.mu.Unlock()
	return m != nil && m.Newest == newest && m.Trees[0] != nil && m.Trees[0].Look(dir, now) != nil
}

// Take removes and returns the memory of a scope; nil if it has none.
func (all *Memories[Scope]) Take(sc Scope) *Memory {
	all.mu.Lock()
	defer all.mu.Unlock()
	m := all.of[sc]
	all.set(sc, nil)
	return m
}
