// Package search is the full-text index of a database: it finds messages, tool uses and
// titles by their words.
//
// It owns the tables search and search_seen, and a goroutine, the follower, that reads the
// logs behind the commits and indexes them (ADR 0013). Only internal/store/sqlite may import
// it.
//
// Invariant: a commit does not wait for the index, and each text in the index is also in a log.
// A text that the index misses is read from the log at the next start.
package search
