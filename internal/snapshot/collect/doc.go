// Package collect keeps the snapshot store small and whole: it drops checkpoints by rules, removes the
// packs that no checkpoint needs, merges small packs, purges, and verifies.
//
// internal/app makes the one Collector of a server. The package imports pack and tree, with which it reads the store, and the
// journal's types for checkpoints and packs; the database is an interface.
//
// A run reads the facts, makes a plan from them with pure functions, and executes the plan. A plan may be out of date
// when it is executed, because turns go on: the database then refuses what has become wrong, and the next run plans
// again.
//
// Invariants (I-44). Every pack that a stored checkpoint needs is on disk, whatever ends the process at
// whatever moment: a pack is durable before the database knows it, and a pack is removed from the
// database before its file is removed. If the process ends in between, files are left that the
// database does not know, and the next Start removes them. In the other order, a checkpoint that was
// committed meanwhile could lose its pack. A checkpoint's list of packs changes in one transaction, from
// one complete list to another.
//
// A pack has no use once no checkpoint lists it. Collect marks it with the time, and a later Collect
// drops it, if it has been marked for the time Config.Grace. This time is for readers and writers that use older lists of
// packs. A commit that lists a marked pack clears the mark. A commit that lists a dropped pack
// is refused with conflict, and a reader of one gets not_found: both read the list again and repeat
// their work once. Purge does not wait for Config.Grace, so after a purge this can happen at once.
package collect
