package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
)

// memory holds memos of the trees of a scope whose files were those of its newest checkpoint when they were last looked
// at. A scope without one is scanned.
type memory struct {
	// newest is scope.newest of that moment. Whatever replaces the files, or makes another checkpoint the newest, reads
	// the scope's newest checkpoint again, and so makes the memory useless: a memo of the same root could be from before
	// the files were replaced, and a stat cache would not be used then either.
	newest *journal.Checkpoint
	// trees has nil for a home that does not exist.
	trees [2]*statcache.Memo
}

func (m *memory) size() (n int) {
	if m == nil {
		return 0
	}
	for _, t := range m.trees {
		if t != nil {
			n += t.Size()
		}
	}
	return n
}

// memory returns what the next look may use if the files were those of the newest checkpoint; nil if a scan has to decide.
func (x *scanned) memory(newest *journal.Checkpoint) *memory {
	m := &memory{newest: newest}
	for i, scan := range x.scans {
		if scan != nil {
			m.trees[i] = scan.Memo()
		}
		if m.trees[i] == nil && (scan != nil || i == 0) {
			return nil
		}
	}
	return m
}

// look returns the memory for the next look if a scan would find that no file has changed; else nil. The caller holds the
// scope. No process of the box is alive.
func (m *memory) look(f Files, now time.Time) *memory {
	if m == nil {
		return nil
	}
	next := &memory{newest: m.newest}
	for i := range names {
		dir := f.path(i)
		if m.trees[i] == nil {
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		} else if next.trees[i] = m.trees[i].Look(dir, now); next.trees[i] == nil {
			return nil
		}
	}
	return next
}

// mostMemory is how many bytes the memories of all scopes have at most. A scope with two small trees needs about one
// KiB, and 16 KiB at most.
const mostMemory = 2 << 20

// memories holds the memories of scopes. Safe for concurrent use.
type memories struct {
	mu   sync.Mutex
	of   map[*scope]*memory
	size int
}

// put replaces the memory of a scope; nil removes it. Memories of other scopes go if there is no room.
func (all *memories) put(sc *scope, m *memory) {
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

// set is put without a bound. The caller holds mu.
func (all *memories) set(sc *scope, m *memory) {
	all.size += m.size() - all.of[sc].size()
	if m == nil {
		delete(all.of, sc)
		return
	}
	all.of[sc] = m
}

// take removes and returns the memory of a scope; nil if it has none, or none that is of its present files. relisted is
// Store.Relisted as it is now. The caller holds the scope.
func (all *memories) take(sc *scope, relisted int64) *memory {
	all.mu.Lock()
	defer all.mu.Unlock()
	m := all.of[sc]
	all.set(sc, nil)
	if m == nil || sc.base != nil || m.newest != sc.newest || relisted != sc.relisted {
		return nil
	}
	return m
}
