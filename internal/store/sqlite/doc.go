// Package sqlite stores sessions, their logs and everything else that a server has to remember
// in one SQLite file. It has a store for each kind of data: Sessions, Approvals, Audit and Outbox,
// which one commit writes together with that of package checkpoints; Facts; those of package admin;
// and the index of package search. All are opened together and write through the one writer of
// package db.
//
// Only app, bench and tests may import it.
//
// Invariants (I-1, I-2, I-3): the state of a session, the events that record its change, their
// audit records and their deliveries are one transaction. The writer caches rows that it wrote
// recently. The cache follows the transaction: a rollback drops the changed rows, and readers get
// them only after the commit.
//
// The newest sequence number of a session is not stored: it is the largest key
// of its events. The writer caches it with the rows. A crash cannot make the two differ, because it
// ends the cache; another writer cannot either: if it raised the epoch this server stops writing,
// and after any other foreign commit the writer empties the cache. Should even that fail, the
// duplicate key refuses the insert.
package sqlite
