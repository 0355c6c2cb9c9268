// Package checkpoints is the part of a database that the snapshot store needs: the checkpoints of
// sessions, the packs that hold their files, and the marks of scopes whose files are being replaced.
//
// It owns the tables packs, checkpoints, dropped_checkpoints and restores. Only internal/store/sqlite may import it; a
// commit of a session writes the tables in its own transaction.
//
// Invariants: a checkpoint lists only packs that are stored, and a mark names only a checkpoint that
// is stored. A change that would break one of them is refused.
package checkpoints
