// Package tree turns a directory tree into blobs and back: it encodes trees, scans one at the cost of
// its changes, restores one, changes one in place, and compares two.
//
// internal/snapshot imports it. It imports pack for the names of blobs, rooted for every access to
// files, gitpatch for the form in which it returns differences, and the vocabulary. It knows neither sessions nor
// the database nor how blobs are stored.
//
// Invariants: equal trees have equal roots on every machine, because nodes hold no inode, no ctime and no host id, and
// because a list is split by its content alone. A scan never takes a file for unchanged that may have changed since it
// was read. A decoder accepts only bytes that the encoder writes, and needs bounded memory for any input. What an agent
// puts into a tree leads no read or write out of it (I-24).
//
// docs/format/snapshot.md describes the nodes byte by byte.
package tree
