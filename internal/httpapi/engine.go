package httpapi

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Sessions is what changes sessions, as the engine implements it. Errors are
// *holdfast.Error; unknown ids are not_found.
type Sessions interface {
	// Create makes a session; key is the Idempotency-Key or empty. Replayed: an
	// earlier request with the key had made it.
	Create(ctx context.Context, req holdfast.CreateSession, key string) (s holdfast.Session, replayed bool, err error)
	Update(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error)
	Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error)
	// Interrupt ends the running turn; conflict when none runs.
	Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	Pause(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error)
	Resume(ctx context.Context, id holdfast.SessionID, req holdfast.ResumeSession) (holdfast.Resumed, error)
	End(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error)
	Delete(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error
	// Explain says how a tool call would be decided; it asks nobody.
	Explain(ctx context.Context, id holdfast.SessionID, req holdfast.ExplainPolicy) (holdfast.PolicyExplanation, error)
}

// Views shows sessions, their turns and their logs.
type Views interface {
	Session(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error)
	List(ctx context.Context, f holdfast.SessionFilter) (holdfast.SessionPage, error)
	// AgentStates are the session's references to agents that keep a conversation of
	// their own, by generation, without what belongs to the runtime alone.
	AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error)
	Turn(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error)
	// Turns lists turns by number, those after a number first.
	Turns(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Turn, error)
	// Usage is what the session used up, and its budgets.
	Usage(ctx context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error)
	Events(ctx context.Context, id holdfast.SessionID, f holdfast.EventFilter) ([]holdfast.Event, error)
	Follow(ctx context.Context, id holdfast.SessionID, after int64) (*journal.Reader, error)
	// Search finds what was said in sessions, and their titles.
	Search(ctx context.Context, req holdfast.SearchRequest) (holdfast.SearchPage, error)
}

// Boxes is work in a session's box, which is started if needed, and the managed
// boxes themselves.
type Boxes interface {
	// Exec runs a command. Output goes to the writers, which may be called from
	// two goroutines; nil ones are collected into the result.
	Exec(ctx context.Context, id holdfast.SessionID, req holdfast.ExecRequest, stdout, stderr io.Writer) (holdfast.ExecResult, error)
	// Terminal runs a command or a login shell on a terminal until it exits or ctx ends.
	Terminal(ctx context.Context, id holdfast.SessionID, req holdfast.TerminalRequest, in io.Reader, out io.Writer, resize <-chan holdfast.TermSize) (holdfast.ExecResult, error)
	ListFiles(ctx context.Context, id holdfast.SessionID, path string) (holdfast.FileList, error)
	ReadFile(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) error
	WriteFile(ctx context.Context, id holdfast.SessionID, path string, data []byte, mode uint32) (holdfast.FileInfo, error)
	RemoveFile(ctx context.Context, id holdfast.SessionID, path string, recursive bool) error
	Trees
}

// Containers are the boxes of the server, whosever they are. Stopping answers what was stopped,
// pruning what was removed, or would be: never a running or idle box of a live session.
type Containers interface {
	Containers(ctx context.Context) ([]holdfast.Container, error)
	StopContainers(ctx context.Context, req holdfast.StopContainers) ([]holdfast.Container, error)
	PruneContainers(ctx context.Context, req holdfast.PruneContainers) (holdfast.PrunedContainers, error)
}

// Trees copies files and directories of sessions, whole.
type Trees interface {
	// PackTree copies a file, or a directory with all that is in it, as a tar archive.
	PackTree(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) (holdfast.Copied, error)
	// UnpackTree puts a tar archive into the files, whole or not at all.
	UnpackTree(ctx context.Context, id holdfast.SessionID, to holdfast.CopyTo, r io.Reader) (holdfast.Copied, error)
	// Import gives a session that waits for them its first files.
	Import(ctx context.Context, id holdfast.SessionID, r io.Reader) (holdfast.Imported, error)
	// Diff writes what changed since the import; notes are what could not be compared.
	Diff(ctx context.Context, id holdfast.SessionID, format holdfast.DiffFormat, w io.Writer) (notes string, err error)
}

// Keys is the registry of API keys.
type Keys interface {
	// Create makes a key; the second value is its secret.
	Create(ctx context.Context, req holdfast.CreateKey) (holdfast.Key, string, error)
	List(ctx context.Context) ([]holdfast.Key, error)
	// Revoke ends a key; after it returned Check refuses it and Revoked says so.
	Revoke(ctx context.Context, id holdfast.KeyID) (holdfast.Key, error)
	Revoked(id holdfast.KeyID) bool
	// Check finds the key of a secret; unauthenticated for one that opens nothing.
	// It takes the same time for every secret.
	Check(ctx context.Context, secret string) (holdfast.Key, error)
}

// Secrets is the credential store. It tells no value.
type Secrets interface {
	// Set makes a secret or replaces its value.
	Set(ctx context.Context, name holdfast.SecretName, value []byte) (holdfast.Secret, error)
	List(ctx context.Context) ([]holdfast.Secret, error)
	Remove(ctx context.Context, name holdfast.SecretName) error
	// Rotate wraps every secret anew under a new root key.
	Rotate(ctx context.Context) ([]holdfast.Secret, error)
}

// Credentials are who may come in, and what the server itself comes in with elsewhere.
type Credentials struct {
	Keys    Keys
	Secrets Secrets
}

// Audit is the hash-chained record of decisions.
type Audit interface {
	// Head is the newest place in it, signed.
	Head(ctx context.Context) (holdfast.AuditHead, error)
	// Export checks that the records after a number can be exported; the function
	// writes them as lines.
	Export(ctx context.Context, after int64) (func(ctx context.Context, w io.Writer) error, error)
}

// Agents is the registry of deployed agents.
type Agents interface {
	// Deploy stores a tar of an agent's folder as its next version.
	Deploy(ctx context.Context, name holdfast.AgentName, tar io.Reader) (holdfast.Deployed, error)
	// Update sets what wins over the settings of the agent's versions.
	Update(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error)
	Get(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	List(ctx context.Context) ([]holdfast.Agent, error)
	Versions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error)
	Delete(ctx context.Context, name holdfast.AgentName) error
}
