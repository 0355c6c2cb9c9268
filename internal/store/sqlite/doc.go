// Package sqlite keeps sessions, their logs and everything else that a server has to remember
// in one SQLite file. It is a store for each kind of data: Sessions with Approvals, Audit and
// Outbox, which one commit writes together, Facts, the stores of admin and the index of
// search. All are opened together and write through the one writer of package db.
//
// Only app may import it (and storetest's callers).
//
// Invariants (I-1, I-2, I-3): the state of a session, the events that record its change, their
// audit records and their deliveries are one transaction. The writer remembers what it wrote
// lately; its memory follows the transaction: it is dropped when the transaction is undone, and
// readers see it only after the commit.
//
// The newest sequence number of a session is not stored: it is the largest key
// of its events. The writer remembers it for sessions it wrote lately. A crash
// cannot make the two differ (memory is gone); a foreign writer cannot either:
// one that raised the epoch fences us, and after any other commit the writer forgets
// all it remembers. Should even that fail, the duplicate key refuses the insert.
package sqlite
