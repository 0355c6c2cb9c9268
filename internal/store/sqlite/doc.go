// Package sqlite keeps sessions, their logs, turns and agents in one SQLite
// file. It implements what the journal and the engine declare they need.
//
// Only app may import it (and storetest's callers). It owns the data directory's
// lock, the schema and every SQL statement.
//
// Invariants (I-1, I-2, I-3, I-6, I-20, I-21): one goroutine writes, through one connection, several changes in
// one transaction (group commit); a change is answered after the transaction is
// on disk; a change that is refused has written nothing. All settings of a
// connection are in its DSN. The file has one server: the directory's flock
// keeps others out, and each transaction compares the epoch row that a server
// raises when it opens the file, so one that lost its lock writes nothing.
//
// The newest sequence number of a session is not stored: it is the largest key
// of its events. The writer remembers it for sessions it wrote lately. A crash
// cannot make the two differ (memory is gone); a foreign writer cannot either:
// one that raised the epoch fences us, and any other commit moves SQLite's
// data_version, at which the writer forgets all it remembers. Should even that
// fail, the duplicate key refuses the insert.
package sqlite
