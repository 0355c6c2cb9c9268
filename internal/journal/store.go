// Package journal is the log of sessions: it appends events in the transaction
// of the state change they record, fans them out to live readers, and replays
// from any sequence number.
//
// The engine is its only writer; httpapi reads through the engine. It imports
// the vocabulary; the store adapters implement its Store. Invariant (I-1, I-2, I-5): nobody sees
// an event before it is durable, sequence numbers of a session are dense from 1,
// and a reader that stalls costs the writer neither time nor memory.
package journal

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Draft is an event before it has a number. Data is marshalled to JSON by the
// journal; it must be the payload type of Type.
type Draft struct {
	Type holdfast.EventType
	Turn holdfast.TurnID
	// Agent is the child agent that the event belongs to; empty for the session's own agent.
	Agent holdfast.ChildID
	Data  any
}

// Change is one transaction on one session: the state and the events that
// record it, or nothing.
type Change struct {
	Session holdfast.SessionID
	// Create inserts the session row; its Status and times are taken as given.
	// A session of that id that exists already is conflict.
	Create *Row
	// Revision, when not 0, must equal the row's revision, and LastSeq, when not
	// -1, the row's newest sequence number; otherwise the change fails with
	// conflict and nothing is written. Use NewChange to get LastSeq -1.
	Revision int64
	LastSeq  int64
	// Status is the walk of states to make, each step checked against the state
	// machine; empty leaves it.
	Status []holdfast.Status
	// Set changes fields of the row; nil leaves it.
	Set *RowPatch
	// Spent is added to what the session's ended turns used up.
	Spent holdfast.Spent
	// Turns are turn rows to insert (From empty) or move.
	Turns []TurnChange
	// Approvals are questions to ask or to end, Rules changes of the permission
	// rules; neither raises the revision.
	Approvals []ApprovalChange
	Rules     []RuleChange
	// States are agent states as they stand with this change: each replaces the one
	// of its generation, which must be there or follow the newest (conflict
	// otherwise). An Upto beyond the log stands for its end with this change. They do
	// not raise the revision.
	States []holdfast.AgentState
	Events []Draft
	// Undelivered are rows of the outbox that are given up with this change. Its
	// events go to no webhook.
	Undelivered []int64
	// Key makes the change happen at most once.
	Key *Key
}

// NewChange is a change of a session with no expectation on its log.
func NewChange(id holdfast.SessionID) Change { return Change{Session: id, LastSeq: -1} }

// Patch returns the change's update of the row, made if there is none yet.
func (c *Change) Patch() *RowPatch {
	if c.Set == nil {
		c.Set = &RowPatch{}
	}
	return c.Set
}

// Empty reports whether there is nothing to write.
func (c *Change) Empty() bool {
	return c.Create == nil && len(c.Status)+len(c.Turns)+len(c.Approvals)+len(c.Rules)+len(c.States)+len(c.Events)+len(c.Undelivered) == 0 &&
		c.Set == nil && c.Spent == (holdfast.Spent{}) && c.Key == nil
}

// Row is a session as it is stored: the wire type and what stays inside.
type Row struct {
	holdfast.Session
	// Number is the store's own small number of the session, from 1, never
	// reused: uids of the box are derived from it. Assigned at insert.
	Number int64
	// LastTurn is the number of the session's newest turn; 0 is none.
	LastTurn int64
	// SealedEnv is the session's environment, encrypted; nil when there is none.
	SealedEnv []byte
	// FilesSeeded: the private workspace received its copy of the agent's files.
	FilesSeeded bool
	// HadFiles: a box ran once, so there may be files to lose.
	HadFiles bool
	// BoxUID is the first of the two host ids that the session's files belong to
	// where its first box stood ready; 0: they derive from Number.
	BoxUID uint32
}

// RowPatch is a partial update of a Row; nil fields stay.
type RowPatch struct {
	Title       *string
	Tags        *[]string
	Mode        *holdfast.Mode
	Model       *string
	Trust       *holdfast.Trust
	Runtime     *string
	Error       *string
	FilesSeeded *bool
	HadFiles    *bool
	BoxUID      *uint32
	// Budget and TurnBudget replace the bounds; one without any is none.
	Budget     *holdfast.Budget
	TurnBudget *holdfast.Budget
	Network    *[]string
	Source     *holdfast.Source
}

// TurnChange inserts a turn or moves it along its state machine.
type TurnChange struct {
	ID holdfast.TurnID
	// From is the expected status; empty inserts. A mismatch is conflict.
	From, To holdfast.TurnStatus
	// Number is for inserts: it must be one more than the session's last turn.
	Number int64
	// MessageSeq and EndSeq, when not 0, are stored.
	MessageSeq, EndSeq int64
}

// Key is an idempotency key, unique within its scope.
type Key struct {
	// Scope is "session.create" or "turn:<session id>".
	Scope, Value string
	// Hash is of the request; the same key with another hash is conflict.
	Hash string
	// Ref is what the key stands for: a session or turn id.
	Ref string
}

// Committed is a change as it was written.
type Committed struct {
	Row    Row
	Events []holdfast.Event
	// Duplicate is the Ref of the Key's first use; when it is set nothing was written.
	Duplicate string
}

// TurnRow is a turn as it is stored; its texts are in the log.
type TurnRow struct {
	ID                 holdfast.TurnID
	Session            holdfast.SessionID
	Number             int64
	Status             holdfast.TurnStatus
	MessageSeq, EndSeq int64
	CreatedAt          time.Time
	StartedAt, EndedAt *time.Time
}

// Query selects sessions, newest first. Zero fields do not filter.
type Query struct {
	Status holdfast.Status
	Agent  holdfast.AgentName
	Tag    string
	// Text is matched within the title, without regard to case.
	Text string
	// Words must all occur in the title or the conversation, as in Search.
	Words string
	// IDPart is the beginning or the ending of the id, in any case.
	IDPart string
	// Title is the whole title, TitlePrefix its beginning, without regard to case.
	Title, TitlePrefix string
	// Cursor is the Next of the page before; invalid when it is not one.
	Cursor string
	// Limit is the page size, 1-500; 0 is 50.
	Limit int
}

// Search selects what was said in sessions.
type Search struct {
	// Text is what a person typed: words, "phrases", begin*. Whatever it holds is
	// a search for it or invalid.
	Text string
	// Session, when not empty, is the only one searched.
	Session holdfast.SessionID
	// Cursor is the Next of the page before; invalid when it is not one.
	Cursor string
	// Limit is the page size, 1-200; 0 is 20.
	Limit int
}

// Page is one page of sessions. Next is empty on the last one.
type Page struct {
	Rows []Row
	Next string
}

// Counts are how many of something a store holds.
type Counts struct {
	// Sessions are by status, those of none left out; Turns queued or running.
	Sessions map[holdfast.Status]int64
	Turns    map[holdfast.TurnStatus]int64
	// Approvals are the pending ones.
	Approvals int64
	// Unindexed are the sessions with entries that Search does not find yet.
	Unindexed int
}

// Encoded is a change whose drafts are marshalled, as the store gets it.
type Encoded struct {
	Change
	// Data are the payloads of Change.Events, in order.
	Data [][]byte
}

// Store is what the journal needs of a database. Safe for concurrent use.
type Store interface {
	// Commit writes one change in one transaction, in order of arrival per
	// session, durable on return; the server's epoch is checked in the same
	// transaction (conflict with the hint to look for the other server when it
	// moved). On a full disk, until there is space, and after a failed write every
	// Commit is unavailable with the reason (HZ-17).
	Commit(ctx context.Context, c Encoded) (Committed, error)
	// Row is the session's row as the newest commit left it; not_found for an unknown one.
	Row(ctx context.Context, id holdfast.SessionID) (Row, error)
	// Events returns up to limit events after a sequence number, in order.
	Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error)
	// Head is the session's newest sequence number; not_found for an unknown one.
	Head(ctx context.Context, id holdfast.SessionID) (int64, error)
}
