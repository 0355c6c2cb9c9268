// Package statcache keeps what a scan of a tree saw of each entry, so that the next scan reads only what changed.
//
// internal/snapshot/tree imports it. It owns the file of the cache and the order of its records; the bodies of
// records are the caller's. Invariant: a cache is used only if all of it is what was written, and if it belongs to
// the root that the caller names. Whoever cannot vouch for that, as after a power cut, names no root.
package statcache
