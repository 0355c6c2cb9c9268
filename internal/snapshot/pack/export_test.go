package pack

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
)

// SolidBlobs is the most blobs in a shared block, for tests.
const SolidBlobs = solidBlobs

// Path returns the path of a pack.
func (s *Store) Path(id PackID) string { return s.path(id) }

// Stored is a record that was read from a pack.
type Stored struct {
	Pack PackID
	Data []byte
}

// Records yields the records of all packs, ordered by the packs' ids. For a pack that cannot be read
// it yields an error that names the pack, with Stored.Pack set, and continues.
func (s *Store) Records(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		files, err := s.List()
		if err != nil {
			yield(Stored{}, err)
			return
		}
		for _, f := range files {
			if err := ctx.Err(); err != nil {
				yield(Stored{}, err)
				return
			}
			_, records, err := s.load(f.ID)
			if err != nil && !yield(Stored{Pack: f.ID}, err) {
				return
			}
			for _, r := range records {
				if !yield(Stored{Pack: f.ID, Data: r}, nil) {
					return
				}
			}
		}
	}
}

// Unread returns the errors of the known packs that could not be read, or nil. Put writes the blobs
// of these packs again.
func (w *Writer) Unread() error { return w.known.failures() }

// failures returns the errors of the packs that could not be read.
func (f *finder) failures() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []error
	for _, n := range slices.Sorted(maps.Keys(f.unread)) {
		all = append(all, f.unread[n])
	}
	return errors.Join(all...)
}
