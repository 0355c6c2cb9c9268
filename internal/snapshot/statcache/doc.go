// Package statcache keeps what a scan of a tree saw of each entry, so that the next scan reads only what changed.
//
// It has two forms: the Cache on disk, which a scan reads and writes, and the Memo of a small tree in memory, with which a
// look finds that nothing changed and no scan is needed. Both agree on which files are read although nothing says that
// they changed (Rehash).
//
// internal/snapshot/tree imports it, and internal/snapshot/recall, which keeps memos. It owns the file of the cache and
// the order of its records; the bodies of records are the caller's. Invariant: a cache is used only if its file is
// complete and undamaged, and if it was written for the root tree whose id the caller passes. After a power cut the caller
// cannot rely on a cache or a memo: it passes no id, so that the cache is empty, and it drops its memo.
package statcache
