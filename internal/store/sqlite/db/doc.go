// Package db owns the database file of a server: the lock of its directory, its
// connections, its schema version and every transaction that writes to it. The only table that
// it uses itself is server; all others belong to the stores, which declare their statements
// in a Setup and pass their changes to DB.Do.
//
// Only internal/store/sqlite and its packages may import it.
//
// Invariants (I-1, I-6, I-20, I-21): one goroutine writes, through one connection, several
// changes in one transaction (group commit); a change is answered after its transaction is
// on disk; a change that is refused has written nothing. All settings of a connection are
// in its DSN. One server at a time uses the file: the lock of the directory keeps others out.
// Each server raises the epoch when it opens the file. A transaction that finds that another
// connection has written compares the epoch and writes nothing if another server raised it.
package db
