// Package wal has SQLite write each transaction to its write-ahead log with one call. SQLite itself
// makes two calls for each page, which took most of the processor time of a commit (ADR 0086).
//
// It registers a file system of SQLite (a VFS) that is the standard one, except for write-ahead logs:
// what is written to a log is gathered in memory, and goes to the file before anything else is done with
// the file, above all before it is synced.
//
// Only internal/store/sqlite/db imports it, for the connection that writes. Invariants: a sync succeeds
// only if all that was gathered is in the file; the file's bytes are those that SQLite alone would have
// written; a read, size, truncation or close through the same connection finds them. Other connections
// read only what SQLite's index of the log lists, and with synchronous=FULL SQLite lists a transaction
// after it has synced the log. So the file system must not be used with another setting.
package wal
