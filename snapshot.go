package holdfast

import "time"

// CheckpointID names a checkpoint: a UUIDv7. The checkpoint at the end of a turn has the turn's id.
type CheckpointID string

func (CheckpointID) parse(s string) (string, error) { return parseUUID("checkpoint id", s) }

// CheckpointReason says why a snapshot of the files was taken.
type CheckpointReason string

// The reasons. CheckpointDirect: after commands, files or terminals of people outside a turn. CheckpointStop: the session was
// paused, or its box ended. CheckpointLate: the server ended before it took the snapshot, and took it when restarted.
// CheckpointKept: the files as they were before a rewind or a restore replaced them, or before a comparison after a power cut.
// CheckpointFound: somebody other than the session changed the files of a directory that is not the session's alone.
const (
	CheckpointTurn   CheckpointReason = "turn"
	CheckpointDirect CheckpointReason = "direct"
	CheckpointStop   CheckpointReason = "stop"
	CheckpointLate   CheckpointReason = "late"
	CheckpointKept   CheckpointReason = "kept"
	CheckpointFork   CheckpointReason = "fork"
	CheckpointFound  CheckpointReason = "found"
)

// Checkpoint is a point that a session can return to: a position in its log and the files of that time. Each end of a turn is
// a checkpoint. If the files did not change in the turn, its files are those of the checkpoint before.
type Checkpoint struct {
	ID      CheckpointID     `json:"id"`
	Session SessionID        `json:"session_id"`
	Reason  CheckpointReason `json:"reason"`
	// Seq is the number of the last event that belongs to the checkpoint, Turn the newest turn that
	// had ended, Number its number in the session.
	Seq       int64     `json:"seq"`
	Turn      TurnID    `json:"turn_id,omitempty"`
	Number    int64     `json:"turn_number,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// Workspace and Home are the ids of the two trees in the snapshot store, 64 hex digits; equal
	// trees have equal ids. They are empty if there were no files.
	Workspace string `json:"workspace,omitempty"`
	Home      string `json:"home,omitempty"`
	// Files is the number of files and directories in workspace and home together, Bytes the size of their content.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Fuzzy is true if processes changed some files while these were read, so that a file may have
	// content of two moments. The event snapshot.taken has their names.
	Fuzzy bool `json:"fuzzy,omitempty"`
	// Abandoned is true if a rewind went back to before this checkpoint.
	Abandoned bool `json:"abandoned,omitempty"`
	// Held is true if somebody holds the checkpoint: the rules of retention never remove it. The checkpoint of a
	// turn that changed no file has the files of the checkpoint before, and both are held together.
	Held bool `json:"held,omitempty"`
	// Failed is true if the snapshot at the end of a turn failed: no rewind to this checkpoint is possible. Lists
	// include it, without files.
	Failed bool `json:"failed,omitempty"`
}

// SnapshotTaken is the payload of snapshot.taken: the files are durable on this machine. Lists of
// paths hold at most 20 of them; the path of a file in the agent's home begins with ~/.
type SnapshotTaken struct {
	Checkpoint CheckpointID     `json:"checkpoint_id"`
	Reason     CheckpointReason `json:"reason"`
	// Seq is the last event that belongs to the checkpoint.
	Seq   int64 `json:"seq"`
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Changed is the number of files and directories that differ from the snapshot before, Written
	// the number of bytes that were stored for them.
	Changed int64 `json:"changed"`
	Written int64 `json:"written"`
	// Fuzzy are files that processes changed while they were read. Skipped are sockets, fifos, devices
	// and unreadable files, which no snapshot holds, each as "PATH: REASON". Mismatched are files whose
	// content differs from the snapshot before although their times and sizes do not. Each list has at most 20 paths;
	// FuzzyMore, SkippedMore and MismatchedMore count the paths that the lists leave out.
	Fuzzy          []string `json:"fuzzy,omitempty"`
	FuzzyMore      int      `json:"fuzzy_more,omitempty"`
	Skipped        []string `json:"skipped,omitempty"`
	SkippedMore    int      `json:"skipped_more,omitempty"`
	Mismatched     []string `json:"mismatched,omitempty"`
	MismatchedMore int      `json:"mismatched_more,omitempty"`
	DurationMS     float64  `json:"duration_ms"`
}

// Rewound is the payload of session.rewound: the conversation continues after event Seq, and the files
// are those of the checkpoint, unless Files is kept. The events after Seq up to this one stay in the log,
// but belong to no conversation.
type Rewound struct {
	Checkpoint CheckpointID `json:"checkpoint_id"`
	Seq        int64        `json:"seq"`
	// Kept is the checkpoint of the session as it was before; a rewind to it undoes this one.
	Kept CheckpointID `json:"kept_checkpoint_id,omitempty"`
	// Files says what happened to the files: restored, kept if they were not touched, or empty if the
	// checkpoint has none.
	Files FilesState `json:"files"`
}

// HeldCheckpoint is the payload of checkpoint.held and checkpoint.released: the stored checkpoint that
// somebody holds from now on, or holds no longer.
type HeldCheckpoint struct {
	Checkpoint CheckpointID `json:"checkpoint_id"`
}

// Forked is the payload of session.forked, the second event of a session that a fork made from the session From.
// The events after session.forked, up to the end of the last copied turn, are copies of From's conversation.
type Forked struct {
	From       SessionID    `json:"from_session_id"`
	Checkpoint CheckpointID `json:"checkpoint_id"`
	Seq        int64        `json:"from_seq"`
	Files      FilesState   `json:"files"`
}

// RewindSession is the body of POST /v1/sessions/{id}/rewind.
type RewindSession struct {
	To        CheckpointID `json:"to" doc:"The checkpoint, or the turn at whose end it is."`
	Interrupt bool         `json:"interrupt,omitempty" doc:"End a running turn first; false: a running turn is a conflict."`
	Files     string       `json:"files,omitempty" enum:"restore,keep" doc:"restore puts the files back, keep moves only the conversation; absent: restore, but keep for a session that works in a directory of the user's own."`
	DryRun    bool         `json:"dry_run,omitempty" doc:"Change nothing, and answer with the plan. The files as they are become a checkpoint, if they changed since the newest one."`
}

// RewindPlan lists what a rewind changes in the workspace of a session. The lists hold at most 10,000 paths together.
type RewindPlan struct {
	// Write are files and links that are written, Remove those that are removed.
	Write  []string `json:"write,omitempty"`
	Remove []string `json:"remove,omitempty"`
	// MakeDirs are directories that are made, RemoveDirs those that are removed; in a directory of the user's own only if
	// nothing is left in them.
	MakeDirs   []string `json:"make_dirs,omitempty"`
	RemoveDirs []string `json:"remove_dirs,omitempty"`
	// More is the number of paths that are not listed.
	More int `json:"more,omitempty"`
	// LeftOut is the number of paths that differ and stay, because one of the checkpoints leaves them out.
	LeftOut int `json:"left_out,omitempty"`
	// Conflicts are paths of the plan that others changed since the checkpoint, at most 20 of them; ConflictCount is the
	// number of all. If there is one, the rewind is refused.
	Conflicts     []string `json:"conflicts,omitempty"`
	ConflictCount int      `json:"conflict_count,omitempty"`
}

// ForkSession is the body of POST /v1/sessions/{id}/fork.
type ForkSession struct {
	At    CheckpointID `json:"at,omitempty" doc:"The checkpoint, or the turn at whose end it is; absent: the newest."`
	ID    SessionID    `json:"id,omitempty" doc:"The id of the new session; absent: the server makes one."`
	Title string       `json:"title,omitempty" doc:"The title of the new session; absent: that of this one."`
}

// CheckpointStart stands for the first checkpoint of a session in a CompareCheckpoints.
const CheckpointStart CheckpointID = "start"

// CompareCheckpoints says which checkpoints of a session are compared, and how the difference is shown.
type CompareCheckpoints struct {
	// From is the older side: a checkpoint, a turn, CheckpointStart, or empty for the checkpoint before To.
	// To is the newer side: a checkpoint, a turn, or empty for the newest checkpoint.
	From, To CheckpointID
	// Format is patch if it is empty.
	Format DiffFormat
	// Home adds the files of the agent's home directory, under names that begin with ~/.
	Home bool
}

// RestoreFiles is the body of POST /v1/sessions/{id}/restore.
type RestoreFiles struct {
	Path string       `json:"path" doc:"A file, link or directory, relative to the workspace; ~/ begins a path in the home directory."`
	At   CheckpointID `json:"at" doc:"The checkpoint, or the turn at whose end it is."`
}

// RewoundSession is the answer to a rewind: the session, and the payload of its event session.rewound. With DryRun
// Plan lists what would change in the workspace, and nothing changed; it is nil if the files stay or there are none.
type RewoundSession struct {
	Session Session     `json:"session"`
	Rewound Rewound     `json:"rewound"`
	Plan    *RewindPlan `json:"plan,omitempty"`
}

// CheckpointPage is one page of checkpoints, newest first. Next is the cursor of the following page,
// empty on the last page.
type CheckpointPage struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
	Next        string       `json:"next,omitempty"`
}

// SnapshotStore is the answer to GET /v1/snapshots: the snapshot store of the server. It keeps the content
// of files in packs, which are files of up to 16 MiB; checkpoints share packs.
type SnapshotStore struct {
	// Checkpoints does not count turns that changed no file: they use the checkpoint before.
	Checkpoints int `json:"checkpoints"`
	// Packs and Bytes count all packs, UnusedPacks and UnusedBytes those that no checkpoint has needed since
	// the last collection. They are removed by a collection an hour later.
	Packs       int   `json:"packs"`
	Bytes       int64 `json:"bytes"`
	UnusedPacks int   `json:"unused_packs"`
	UnusedBytes int64 `json:"unused_bytes"`
	// Sessions are the sessions with checkpoints, by the age of their newest checkpoint, newest first.
	Sessions []SessionSnapshots `json:"sessions"`
}

// SessionSnapshots is what a session has in the snapshot store. Packs that sessions share, such as those of
// a fork, count for each of them.
type SessionSnapshots struct {
	Session     SessionID `json:"session_id"`
	Checkpoints int       `json:"checkpoints"`
	Packs       int       `json:"packs"`
	Bytes       int64     `json:"bytes"`
	// Newest is the time of the newest checkpoint.
	Newest time.Time `json:"newest_at"`
}

// CollectedSnapshots is the answer to POST /v1/snapshots/collect: what a collection did, or with DryRun
// would do. Removed packs are gone from the disk. Marked packs are needed no longer; a collection an hour
// later removes them.
type CollectedSnapshots struct {
	DryRun      bool                 `json:"dry_run"`
	Checkpoints []ReportedCheckpoint `json:"checkpoints"`
	// Merged counts the packs that were replaced because they are small or mostly unneeded; they are also in
	// Marked. MergedBytes is their size.
	Merged       int            `json:"merged"`
	MergedBytes  int64          `json:"merged_bytes"`
	Marked       []ReportedPack `json:"marked"`
	MarkedBytes  int64          `json:"marked_bytes"`
	Removed      []ReportedPack `json:"removed"`
	RemovedBytes int64          `json:"removed_bytes"`
	// Faults are packs that are missing or damaged, as far as a collection reads them.
	Faults []ReportedPack `json:"faults"`
}

// VerifiedSnapshots is the answer to POST /v1/snapshots/verify: what was read, and what is damaged.
type VerifiedSnapshots struct {
	Checkpoints int   `json:"checkpoints"`
	Packs       int   `json:"packs"`
	Blobs       int   `json:"blobs"`
	Bytes       int64 `json:"bytes"`
	// Damaged are the checkpoints that cannot be restored completely, Faults the packs that are missing
	// or damaged. A pack with a fault may hold nothing that a checkpoint needs.
	Damaged []ReportedCheckpoint `json:"damaged"`
	Faults  []ReportedPack       `json:"faults"`
}

// ReportedCheckpoint is a checkpoint in a report on the snapshot store.
type ReportedCheckpoint struct {
	ID      CheckpointID `json:"checkpoint_id"`
	Session SessionID    `json:"session_id"`
	// Reason is the rule that a removed checkpoint exceeds: count, age or size.
	Reason string `json:"reason,omitempty"`
	// Paths are the files and directories of a damaged checkpoint that cannot be read, at most 20. The path
	// of a file in the agent's home begins with ~/.
	Paths []string `json:"paths,omitempty"`
}

// ReportedPack is a pack in a report on the snapshot store.
type ReportedPack struct {
	// ID is the name of the pack's file, 64 hex digits. Bytes is its size, 0 if it is not known.
	ID    string `json:"id"`
	Bytes int64  `json:"bytes,omitempty"`
	// Reason says why the pack is in the report: unused if no checkpoint needs it, merged if others
	// replace it, orphan if its checkpoint was never stored, or what is wrong with it.
	Reason string `json:"reason"`
	// Checkpoints are the checkpoints that list this pack, if it has a fault; they may not need it.
	Checkpoints []CheckpointID `json:"checkpoint_ids,omitempty"`
}
