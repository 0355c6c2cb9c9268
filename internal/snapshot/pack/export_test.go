package pack

// SolidBlobs is the most blobs in a shared block, for tests.
const SolidBlobs = solidBlobs

// Path returns the path of a pack.
func (s *Store) Path(id PackID) string { return s.path(id) }
