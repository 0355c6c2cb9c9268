package httpapi

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Sessions creates, changes and ends sessions, and accepts messages for them. Errors are
// *holdfast.Error; for an unknown id the kind is not_found.
type Sessions interface {
	// Create makes a session. key is the request's Idempotency-Key or empty. replayed is true if
	// an earlier request with the same key made the session.
	Create(ctx context.Context, req holdfast.CreateSession, key string) (s holdfast.Session, replayed bool, err error)
	Update(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error)
	Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error)
	// Interrupt ends the running turn; it is a conflict if no turn runs.
	Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	Pause(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error)
	Resume(ctx context.Context, id holdfast.SessionID, req holdfast.ResumeSession) (holdfast.Resumed, error)
	End(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error)
	// Explain returns how a tool call would be decided, without asking a person.
	Explain(ctx context.Context, id holdfast.SessionID, req holdfast.ExplainPolicy) (holdfast.PolicyExplanation, error)
}

// Trash deletes sessions.
type Trash interface {
	// Delete ends a session and moves it to the trash; with Purge it removes it for good.
	Delete(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error
	// Restore takes a session out of the trash; conflict for one that is not in it.
	Restore(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
}

// Workspaces manages the workspaces that sessions share. Errors are *holdfast.Error: not_found for an unknown
// one. Safe for concurrent use.
type Workspaces interface {
	Create(ctx context.Context, req holdfast.CreateWorkspace) (holdfast.Workspace, error)
	// List returns all workspaces, by slug.
	List(ctx context.Context) ([]holdfast.Workspace, error)
	Get(ctx context.Context, id holdfast.Slug) (holdfast.Workspace, error)
	Update(ctx context.Context, id holdfast.Slug, req holdfast.UpdateWorkspace) (holdfast.Workspace, error)
	// Delete deletes a workspace. It fails with conflict if a turn of one of the workspace's sessions runs, unless
	// force is true. With dryRun it changes nothing.
	Delete(ctx context.Context, id holdfast.Slug, force, dryRun bool) (holdfast.DeletedWorkspace, error)
	// Trashed lists the deleted workspaces whose files are still there. Empty removes the files of those that were deleted
	// longer ago than keep.
	Trashed(ctx context.Context) ([]holdfast.DeletedWorkspace, error)
	Empty(ctx context.Context, keep time.Duration) error
}

// Views reads sessions, their turns and their logs.
type Views interface {
	Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	List(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error)
	// AgentStates lists, by generation, the agents of the session that store the conversation
	// themselves. Fields that only the runtime reads are left out.
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error)
	// Turns lists the turns whose number is above after, in the order of their numbers.
	Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Turn, error)
	// Usage returns the tokens, time and calls that the session used, and its budgets.
	Usage(ctx context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error)
	Events(ctx context.Context, id holdfast.SessionID, f holdfast.EventFilter) ([]holdfast.Event, error)
	Follow(ctx context.Context, id holdfast.SessionID, after int64) (*journal.Reader, error)
	// Search finds words in the conversations and titles of sessions.
	Search(ctx context.Context, req holdfast.SearchRequest) (holdfast.SearchPage, error)
}

// Checkpoints lists the points that a session can return to, and goes back to them. Errors are
// *holdfast.Error: not_found for an unknown session or checkpoint, gone for an ended session,
// conflict if a turn runs or if another session changed the files since the checkpoint. Safe for
// concurrent use.
type Checkpoints interface {
	// List returns checkpoints of a session, newest first. limit defaults to 50, at most 1000; cursor
	// is from the page before; invalid for another cursor.
	List(ctx context.Context, id holdfast.SessionID, cursor string, limit int) (holdfast.CheckpointPage, error)
	// Rewind moves the session back to a checkpoint.
	Rewind(ctx context.Context, id holdfast.SessionID, req holdfast.RewindSession) (holdfast.RewoundSession, error)
	// Hold holds a checkpoint, so that the rules of retention never remove it, or releases it; conflict for
	// one without files. It may be repeated. The session may have ended.
	Hold(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, held bool) (holdfast.Checkpoint, error)
	// Fork makes a new session that continues from a checkpoint of this one. key is the request's
	// Idempotency-Key or empty. A repeated request with the same key returns the session that the
	// first one made, with replayed true.
	Fork(ctx context.Context, id holdfast.SessionID, req holdfast.ForkSession, key string) (s holdfast.Session, replayed bool, err error)
	// Diff writes the difference between the files of two checkpoints. notes says in lines which were compared
	// and what is left out.
	Diff(ctx context.Context, id holdfast.SessionID, c holdfast.CompareCheckpoints, w io.Writer) (notes string, err error)
	// ReadFile and ListFiles read the files of a checkpoint: not_found for an unknown path, denied for one that
	// the path rules of the session's box hide, and ReadFile invalid for a directory. The session may have ended.
	ReadFile(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, path string, w io.Writer) error
	ListFiles(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, path string) (holdfast.FileList, error)
	// RestoreFiles writes a file of a checkpoint, or those of a directory, into the session's files, whole or not at all.
	// kept is a checkpoint with the files as they were before; empty if the workspace is the session's alone.
	RestoreFiles(ctx context.Context, id holdfast.SessionID, req holdfast.RestoreFiles) (sum holdfast.Copied, kept holdfast.CheckpointID, err error)
}

// Snapshots looks after the snapshot store of the server. Safe for concurrent use.
type Snapshots interface {
	// Store returns which sessions and packs the snapshot store has, and their sizes.
	Store(ctx context.Context) (holdfast.SnapshotStore, error)
	// Collect removes the checkpoints and packs that no rule of retention keeps; with dry it changes nothing
	// and returns what it would remove. If it fails, a part may be removed already; it may be called again.
	Collect(ctx context.Context, dry bool) (holdfast.CollectedSnapshots, error)
	// Verify reads the whole snapshot store. Damage is in the answer; an error means that the check was not completed.
	Verify(ctx context.Context) (holdfast.VerifiedSnapshots, error)
}

// Backups writes backups of the server.
type Backups interface {
	// Write writes an archive of everything that the server has stored. If it returns an error,
	// what it wrote is not a valid backup.
	Write(ctx context.Context, out io.Writer) error
}

// Boxes runs commands and changes files in a session's box, which it starts if needed.
type Boxes interface {
	// Exec runs a command and writes its output to stdout and stderr, possibly to both at the same
	// time. Output for a writer that is nil is returned in the result.
	Exec(ctx context.Context, id holdfast.SessionID, req holdfast.ExecRequest, stdout, stderr io.Writer) (holdfast.ExecResult, error)
	// Terminal runs a command or a login shell on a terminal until it exits or ctx ends.
	Terminal(ctx context.Context, id holdfast.SessionID, req holdfast.TerminalRequest, in io.Reader, out io.Writer, resize <-chan holdfast.TermSize) (holdfast.ExecResult, error)
	ListFiles(ctx context.Context, id holdfast.SessionID, path string) (holdfast.FileList, error)
	ReadFile(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) error
	WriteFile(ctx context.Context, id holdfast.SessionID, path string, data []byte, mode uint32) (holdfast.FileInfo, error)
	RemoveFile(ctx context.Context, id holdfast.SessionID, path string, recursive bool) error
	Trees
}

// Containers lists, stops and removes the boxes of all sessions of the server. StopContainers
// returns the boxes that it stopped, PruneContainers those that it removed or, with dryRun,
// would remove: never a running or idle box of a live session.
type Containers interface {
	Containers(ctx context.Context) ([]holdfast.Container, error)
	StopContainers(ctx context.Context, req holdfast.StopContainers) ([]holdfast.Container, error)
	PruneContainers(ctx context.Context, dryRun bool) (holdfast.PrunedContainers, error)
}

// Trees copies whole files and directories into sessions and out of them.
type Trees interface {
	// PackTree writes a file, or a directory with everything in it, as a tar archive.
	PackTree(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) (holdfast.Copied, error)
	// UnpackTree unpacks a tar archive into the session's files, whole or not at all.
	UnpackTree(ctx context.Context, id holdfast.SessionID, to holdfast.CopyTo, r io.Reader) (holdfast.Copied, error)
	// Import unpacks the first files of a session that was created to wait for an import.
	Import(ctx context.Context, id holdfast.SessionID, r io.Reader) (holdfast.Imported, error)
	// Diff writes the changes to the files since the import. notes names the files that it could not compare.
	Diff(ctx context.Context, id holdfast.SessionID, format holdfast.DiffFormat, w io.Writer) (notes string, err error)
}

// Keys is the registry of API keys.
type Keys interface {
	// Create makes an API key and returns it with its secret.
	Create(ctx context.Context, req holdfast.CreateKey) (holdfast.Key, string, error)
	List(ctx context.Context) ([]holdfast.Key, error)
	// Revoke ends a key. Once it has returned, Check refuses the key and Revoked reports true.
	Revoke(ctx context.Context, id holdfast.KeyID) (holdfast.Key, error)
	Revoked(id holdfast.KeyID) bool
	// Check returns the key that belongs to a secret. It fails as unauthenticated if no valid key
	// has this secret. Its comparison takes the same time for every secret, valid or not.
	Check(ctx context.Context, secret string) (holdfast.Key, error)
}

// Secrets is the store of the server's credentials. It never returns the value of one.
type Secrets interface {
	// Set makes a secret or replaces its value.
	Set(ctx context.Context, name holdfast.SecretName, value []byte) (holdfast.Secret, error)
	List(ctx context.Context) ([]holdfast.Secret, error)
	Remove(ctx context.Context, name holdfast.SecretName) error
	// Rotate makes a new root key and encrypts the keys of all secrets and environments with it.
	Rotate(ctx context.Context) ([]holdfast.Secret, error)
}

// Audit is the audit log: the hash-chained record of decisions.
type Audit interface {
	// Head returns the place and hash of the newest record, with the server's signature.
	Head(ctx context.Context) (holdfast.AuditHead, error)
	// Export checks that the records after a place (CHAIN:N; empty for all) can be exported, and
	// returns a function that writes them as lines.
	Export(ctx context.Context, after string) (func(ctx context.Context, w io.Writer) error, error)
}

// Agents is the registry of deployed agents.
type Agents interface {
	// Deploy stores the tar of a folder as the next version of the agent.
	Deploy(ctx context.Context, name holdfast.AgentName, tar io.Reader) (holdfast.Deployed, error)
	// Update changes settings of the agent that override those of its versions.
	Update(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error)
	Get(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	List(ctx context.Context) ([]holdfast.Agent, error)
	Versions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error)
	Delete(ctx context.Context, name holdfast.AgentName) error
}
