// Package tree turns a directory tree into blobs and back: it encodes a tree, scans a tree for what has changed, restores a
// tree, changes a tree in place, and compares two trees.
//
// internal/snapshot, its collect and internal/app import it. It imports pack for the names of blobs, statcache for what
// scans remember, rooted for every access to the files of a tree, gitpatch for the form of differences, and the
// vocabulary. It knows neither sessions nor the database nor how blobs are stored.
//
// Invariants: equal trees have equal roots on every machine, because nodes hold no inode, no ctime and no host id, and a list
// is split by its content alone. A scan never takes a file for unchanged that may have changed since it was read. A decoder
// accepts only bytes that the encoder writes, and needs bounded memory for any input. Nothing that an agent puts into a tree
// makes a read or write leave the tree (I-24).
//
// docs/format/snapshot.md describes the nodes byte by byte.
package tree
