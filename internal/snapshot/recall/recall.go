// Package recall remembers small trees between snapshots, so that a look at them replaces a scan if nothing changed.
//
// Package snapshot uses it. Invariant: the memories of all scopes need at most mostMemory bytes.
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
// If a scope has no Memory, its trees are scanned.
type Memory struct {
	// Newest is the scope's newest checkpoint of that moment. Whatever replaces the files, or makes another checkpoint the
	// newest, reads the newest checkpoint again, and so makes the memory useless: a memo of the same root could be from
	// before the files were replaced, and a stat cache would not be used then either.
	Newest *journal.Checkpoint
	// Trees has nil for a home that does not exist.
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

// Look returns the memory for the next look if a scan of the trees, in these directories, would find that no file has
// changed; else nil. Processes may write to them meanwhile. m may be nil.
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

// mostMemory is how many bytes the memories of all scopes have at most. A scope with two small trees needs about one
// KiB, and 16 KiB at most.
const mostMemory = 2 << 20

// Memories holds the memories of scopes. The zero value is ready. Safe for concurrent use.
type Memories[Scope comparable] struct {
	mu   sync.Mutex
	of   map[Scope]*Memory
	size int
}

// Put stores the memory of a scope, or removes it if m is nil. If all memories need more than mostMemory bytes, Put removes
// those of other scopes.
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

// set is Put, and does not look at mostMemory. The caller holds mu.
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

// Same reports whether a scan of the first tree of a scope, in the directory dir, would find that no file has changed
// since the checkpoint newest. It returns false if there is no memory that tells. It does not remove the memory.
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
