package pack

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
)

// finder finds blobs in a set of packs by the indexes of the packs. If the indexes do not fit into the store's cache,
// it makes a directory of the set: a sorted list that says for each blob which pack may have it. It does not try again
// to read a pack that it could not read. Safe for concurrent use.
type finder struct {
	store *Store
	set   Set

	mu sync.Mutex
	// unread are the errors of packs that could not be read, by their place in the set.
	unread map[int]error
	// missed is the number of bytes of indexes that were not in the cache.
	missed int
	// directory has an element for each blob of the set, in ascending order: the first 48 bits of
	// the id and 16 bits for the pack's place in the set. It is nil until it is needed.
	directory []uint64
}

func (s *Store) finder(set Set) *finder { return &finder{store: s, set: slices.Clone(set)} }

// directoryPacks is the maximum number of packs in a set with a directory.
const directoryPacks = 1 << 16

var errAbsent = errors.New("no pack has the blob")

// find calls try for each pack that has a blob, until a call succeeds. Otherwise it returns the first error; if it
// could read all packs and none has the blob, errAbsent.
func (f *finder) find(id ID, try func(*index, entry) error) error {
	err := errAbsent
	for n := range f.candidates(id) {
		x, failure := f.index(n)
		if failure == nil {
			e, ok := x.find(id)
			if !ok {
				continue
			}
			if failure = try(x, e); failure == nil {
				return nil
			}
		}
		if errors.Is(err, errAbsent) {
			err = failure
		}
	}
	return err
}

// candidates yields the places in the set of all packs that may have a blob.
func (f *finder) candidates(id ID) iter.Seq[int] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.directory == nil && f.missed > f.store.indexes.most && len(f.set) <= directoryPacks {
		f.list()
	}
	directory := f.directory
	if directory == nil {
		return func(yield func(int) bool) {
			for n := range f.set {
				if !yield(n) {
					return
				}
			}
		}
	}
	unread := slices.Sorted(maps.Keys(f.unread))
	return func(yield func(int) bool) {
		at, _ := slices.BinarySearch(directory, prefix(id))
		for ; at < len(directory) && directory[at]&^0xffff == prefix(id); at++ {
			if !yield(int(directory[at] & 0xffff)) {
				return
			}
		}
		for _, n := range unread {
			if !yield(n) {
				return
			}
		}
	}
}

// prefix returns the element of finder.directory for a blob, with 0 as the place of its pack.
func prefix(id ID) uint64 {
	var p uint64
	for _, b := range id[:6] {
		p = p<<8 | uint64(b)
	}
	return p << 16
}

// list fills directory from the indexes of all packs of the set that can be read. The caller holds f.mu.
func (f *finder) list() {
	f.directory = []uint64{}
	for n := range f.set {
		x, err := f.load(n)
		if err != nil {
			continue // load has recorded the error in unread
		}
		for b := range x.blobCount() {
			f.directory = append(f.directory, prefix(x.entry(b).id)|uint64(n))
		}
	}
	slices.Sort(f.directory)
}

// index returns the index of the pack at place n of the set.
func (f *finder) index(n int) (*index, error) {
	if x, ok := f.store.indexes.get(f.set[n]); ok {
		return x, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.load(n)
}

// load returns the index of the pack at place n of the set. If the pack could not be read before, load returns the same
// error again. The caller holds f.mu.
func (f *finder) load(n int) (*index, error) {
	if err := f.unread[n]; err != nil {
		return nil, err
	}
	x, err := f.store.index(f.set[n])
	if err != nil {
		if f.unread == nil {
			f.unread = map[int]error{}
		}
		f.unread[n] = err
		return nil, err
	}
	f.missed += x.memory()
	return x, nil
}
