// Package journal is the log of sessions: it appends events in the transaction of the state change
// that they record, delivers them to live readers, and replays them from any sequence number.
//
// The engine and the packages that it connects write through it; package views reads it for the API.
// It imports the vocabulary; the store adapters implement its Store. Invariant (I-1, I-2, I-5): an
// event is visible only once it is durable, a session's sequence numbers run from 1 without gaps,
// and a stalled reader costs the writer neither time nor memory.
package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Draft is an event that is not numbered yet. The journal encodes Data as JSON; it must be the
// payload type of Type.
type Draft struct {
	Type holdfast.EventType
	Turn holdfast.TurnID
	// Agent is the child agent that the event belongs to; empty for the session's own agent.
	Agent holdfast.ChildID
	Data  any
	// Copied is the time of the event of another session that this is a copy of; zero for a new event. A
	// copy keeps that time, and neither webhooks nor the audit log get it.
	Copied time.Time
}

// Change is one transaction on one session: its changes of state and the events that record them
// are written together or not at all.
type Change struct {
	Session holdfast.SessionID
	// Token is the token of the server's lease on the session's scope; another token than the scope's
	// newest is a conflict. The journal sets it.
	Token Token
	// Create inserts the session row, with the given Status and times. An id that already exists is a
	// conflict.
	Create *Row
	// Revision, when not 0, must equal the row's revision, and LastSeq, when not -1, the row's newest
	// sequence number; otherwise the change fails with conflict and nothing is written. NewChange
	// sets LastSeq to -1.
	Revision int64
	LastSeq  int64
	// Status lists the states that the session moves through, each step checked against the state machine; an
	// empty list does not change the state.
	Status []holdfast.Status
	// Set changes fields of the row; nil changes none.
	Set *RowPatch
	// Spent is added to the session's total usage.
	Spent holdfast.Spent
	// Turns inserts turn rows (From empty) or changes their status.
	Turns []TurnChange
	// Approvals creates or ends approval questions, Rules changes permission rules; neither raises
	// the revision.
	Approvals []ApprovalChange
	Rules     []RuleChange
	// States are agent states to store. Each replaces the stored one of its generation, or is the
	// next generation; any other number is a conflict. An Upto beyond the log's end is stored as the
	// log's end after this change. States do not raise the revision.
	States []holdfast.AgentState
	Events []Draft
	// Files is what changes in the snapshot store and in the session's checkpoints; nil changes nothing. Only
	// a Rewind raises the revision.
	Files *FilesChange
	// Undelivered are ids of webhook deliveries that this change deletes because they failed for good. If
	// there are any, the events of the change are delivered to no webhook.
	Undelivered []int64
	// Key is an idempotency key: a change with a key that was used before is not written again.
	Key *Key
}

// NewChange returns an empty change of a session that expects no particular revision or log
// position.
func NewChange(id holdfast.SessionID) Change { return Change{Session: id, LastSeq: -1} }

// Patch returns the change's Set, which it creates if it is nil.
func (c *Change) Patch() *RowPatch {
	if c.Set == nil {
		c.Set = &RowPatch{}
	}
	return c.Set
}

// Empty reports whether the change writes nothing.
func (c *Change) Empty() bool {
	return c.Create == nil && len(c.Status)+len(c.Turns)+len(c.Approvals)+len(c.Rules)+len(c.States)+len(c.Events)+len(c.Undelivered) == 0 &&
		c.Set == nil && c.Files == nil && c.Spent == (holdfast.Spent{}) && c.Key == nil
}

// Row is a session as it is stored: the API's Session and the fields that only the server uses.
type Row struct {
	holdfast.Session
	// Number is the session's number in this store, from 1, never reused; the uids in its box derive
	// from it. The store assigns it on insert.
	Number int64
	// LastTurn is the number of the session's newest turn; 0 means none.
	LastTurn int64
	// Given is what the session got when it was created or left its workspace.
	Given Given
	// FilesSeeded is true once the private workspace has received its copy of the agent's files.
	FilesSeeded bool
	// HadFiles is true once a box has run, so that there may be files to lose.
	HadFiles bool
	// BoxUID is the first of the two host uids that own the session's files, if its first box was started in
	// advance. If it is 0, the uids derive from Number.
	BoxUID uint32
}

// Given is what a session got for good, when it was created or when it left its workspace.
type Given struct {
	// SealedEnv is the session's environment, encrypted; nil if it has none.
	SealedEnv []byte
	// Bounds restrict a session that was forked from one in a workspace, or that left its workspace; nil for
	// other sessions.
	Bounds *Bounds
}

// Bounds are the restrictions of a workspace (network, limits and rules) as they were when a session took
// files out of it: by a fork, or because the workspace was deleted (I-50). They apply to that session for
// good, whatever becomes of the workspace.
type Bounds struct {
	// Network lists the only destinations that can still be added to the session's network list; nil means all
	// that the server grants.
	Network []string `json:"network"`
	// Limits are the limits of the session's box, by their keys.
	Limits map[string]string `json:"limits,omitempty"`
	// Rules are lists of permission rules, by their behavior, such as allow or deny.
	Rules map[string][]string `json:"rules,omitempty"`
}

// Clone returns a deep copy of b.
func (b *Bounds) Clone() *Bounds {
	if b == nil {
		return nil
	}
	c := Bounds{Network: slices.Clone(b.Network), Limits: maps.Clone(b.Limits), Rules: maps.Clone(b.Rules)}
	for behavior, list := range c.Rules {
		c.Rules[behavior] = slices.Clone(list)
	}
	return &c
}

// RowPatch changes fields of a Row. A nil field changes nothing.
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
	// Budget and TurnBudget replace the budgets of the session and of each turn; one without any limit removes it.
	Budget     *holdfast.Budget
	TurnBudget *holdfast.Budget
	Network    *[]string
	Source     *holdfast.Source
	// PurgeAt moves an ended session to the trash and sets when it is purged; the zero time takes it out of the trash.
	PurgeAt *time.Time
	// Workspace, if not nil, is an empty name: the session leaves its workspace and no longer has the
	// workspace's directory (Mount). Bounds, if not nil, restrict the session from then on.
	Workspace *holdfast.Slug
	Bounds    *Bounds
}

// TurnChange inserts a turn, or changes the status of a turn as the state machine allows.
type TurnChange struct {
	ID holdfast.TurnID
	// From is the status that the turn must have, otherwise the change is a conflict. An empty From inserts
	// the turn. To is the new status.
	From, To holdfast.TurnStatus
	// Number is set for inserts only, where it must be one more than the session's last turn.
	Number int64
	// MessageSeq and EndSeq, when not 0, are the event numbers of the turn's message and of its end, to be stored.
	MessageSeq, EndSeq int64
}

// Key is an idempotency key, unique within its scope.
type Key struct {
	// Scope is "session.create" or "turn:<session id>".
	Scope, Value string
	// Hash is the hash of the request; a key that was stored with another hash is a conflict.
	Hash string
	// Ref is the session or turn id that the keyed request created.
	Ref string
}

// HashOf returns a hash of a request, for Key.Hash: requests with equal JSON have equal hashes.
func HashOf(request any) string {
	b, err := json.Marshal(request)
	if err != nil {
		return ""
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Committed is the result of a change: the session's new row and the events with their numbers.
type Committed struct {
	Row    Row
	Events []holdfast.Event
	// Number is the number of the commit, by which events of all sessions are ordered. It rises with
	// each commit of the store that adds events, and is never used again (I-40); 0 without
	// events.
	Number int64
	// Packs are the numbers of all packs that the change's checkpoint needs, new ones included, ascending;
	// nil without a checkpoint.
	Packs []int64
	// Duplicate is set if the change's Key was used before: it is the Ref of that first use, and nothing was
	// written now.
	Duplicate string
}

// TurnRow is the stored row of a turn; the turn's messages are in the log.
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
	// Workspace selects the sessions of this workspace.
	Workspace holdfast.Slug
	// Text must occur in the session's title; upper and lower case are equal.
	Text string
	// Words must all occur in the session's title or conversation, as in Search.Text.
	Words string
	// IDPart is the beginning or the end of the session's id; upper and lower case are equal.
	IDPart string
	// Title is the whole title, TitlePrefix the beginning of the title; for both, upper and lower case are equal.
	Title, TitlePrefix string
	// Trash selects only the sessions in the trash; without it, only the sessions that are not in the trash.
	Trash bool
	// Cursor is the Next of the previous page; empty selects the first page, and any other text is invalid.
	Cursor string
	// Limit is the page size, 1-500; 0 means 50.
	Limit int
}

// Each returns all sessions that a query selects. list returns one page of them, like the method Rows of a
// store. After an error the sequence ends.
func Each(ctx context.Context, list func(context.Context, Query) (Page, error), q Query) iter.Seq2[Row, error] {
	q.Limit = 500
	return pages(q.Cursor, func(cursor string) ([]Row, string, error) {
		q.Cursor = cursor
		page, err := list(ctx, q)
		return page.Rows, page.Next, err
	})
}

// pages returns the entries of all pages of a list, from the page that begins at a cursor. list returns the entries of one
// page and the cursor of the next page, which is empty with the last page. After an error the sequence ends.
func pages[T any](cursor string, list func(cursor string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for at := cursor; ; {
			page, next, err := list(at)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			if at = next; at == "" {
				return
			}
		}
	}
}

// Search selects messages of sessions by their text.
type Search struct {
	// Text is the search text as a person typed it: words, "phrases", begin*. A text that cannot be
	// searched for is invalid.
	Text string
	// Session limits the search to one session; if it is empty, all sessions that are not in the trash are searched.
	Session holdfast.SessionID
	// Cursor is the Next of the previous page; empty selects the first page, and any other text is invalid.
	Cursor string
	// Limit is the page size, 1-200; 0 means 20.
	Limit int
}

// Page is one page of sessions. Next is empty on the last page.
type Page struct {
	Rows []Row
	Next string
}

// Counts are totals over a store.
type Counts struct {
	// Sessions and Turns are counted by status: statuses without a session are left out, and only
	// queued and running turns are counted.
	Sessions map[holdfast.Status]int64
	Turns    map[holdfast.TurnStatus]int64
	// Approvals is the number of pending approvals.
	Approvals int64
	// Unindexed is the number of sessions with entries that are not in the search index yet.
	Unindexed int
}

// Encoded is a change with its event payloads encoded, as the store receives it.
type Encoded struct {
	Change
	// Data are the payloads of Change.Events, in order.
	Data [][]byte

	// json is true if the journal itself encoded Data, which is then JSON.
	json bool
}

// Store is the database that the journal writes and reads. Safe for concurrent use.
type Store interface {
	// Commit writes one change in one transaction, durable on return; changes of one session are
	// written in order of arrival. The same transaction checks the change's token: if another server
	// has taken the lease, Commit fails with conflict. While the disk is full, and after a failed write,
	// every Commit is unavailable with the reason (HZ-17).
	Commit(ctx context.Context, c Encoded) (Committed, error)
	// Row returns the session's row as of the newest commit; not_found for an unknown session.
	Row(ctx context.Context, id holdfast.SessionID) (Row, error)
	// Events returns up to limit events after a sequence number, in order.
	Events(ctx context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error)
	// Head returns the session's newest sequence number; not_found for an unknown session.
	Head(ctx context.Context, id holdfast.SessionID) (int64, error)
}
