// Package statcache keeps what a scan of a tree saw of each entry, so that the next scan reads only what changed.
//
// It has two forms: the Cache on disk, which a scan reads and writes, and the Memo of a small tree in memory, with which a
// look finds that nothing changed and no scan is needed. Both agree on which files are read although nothing says that
// they changed (Rehash).
//
// internal/snapshot/tree imports it, and internal/snapshot, which keeps memos. It owns the file of the cache and the
// order of its records; the bodies of records are the caller's. Invariant: a cache is used only if all of it is what was
// written, and if it belongs to the root that the caller names. Whoever cannot vouch for that, as after a power cut, names
// no root and keeps no memo.
package statcache
