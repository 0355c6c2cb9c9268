package journal

import (
	"time"

	"github.com/holdfast-run/holdfast"
)

// ApprovalChange asks a question to a person, or ends one.
type ApprovalChange struct {
	// Ask inserts a pending approval of the change's session; the store sets an
	// AskedAt that is zero. An approval of that id that exists already is conflict. With Ask
	// the other fields are empty.
	Ask *holdfast.Approval
	// ID is the approval to end. It must be pending: otherwise the change fails
	// with conflict, which quotes its state and who answered.
	ID holdfast.ApprovalID
	// To is the state at the end: allowed, denied or expired.
	To     holdfast.ApprovalState
	By     string
	Scope  holdfast.ApprovalScope
	Answer string
}

// About is the id of the approval that the change asks or ends.
func (c ApprovalChange) About() holdfast.ApprovalID {
	if c.Ask != nil {
		return c.Ask.ID
	}
	return c.ID
}

// RuleChange adds a permission rule of a session or workspace, or with Removed
// takes one away. Adding a rule that is there and removing one that is not change
// nothing.
type RuleChange struct {
	// Key is whose rule it is: the session's id, for scope workspace the key of
	// its workspace.
	Key string
	// Source says who wanted it: an approval's id, hook, policy, or a person.
	Source string
	holdfast.RuleChange
}

// Rule is a permission rule as it is stored.
type Rule struct {
	Scope    holdfast.ApprovalScope
	Key      string
	Behavior string
	Rule     string
	Source   string
	At       time.Time
}

// ApprovalQuery selects approvals, the longest asked first. Zero fields do not
// filter.
type ApprovalQuery struct {
	State   holdfast.ApprovalState
	Session holdfast.SessionID
	// IDPrefix is matched against the id.
	IDPrefix string
	// Turn and ToolUse, given together, are the tool call that was asked for.
	Turn    holdfast.TurnID
	ToolUse string
	// Due selects those whose time is over; the zero time does not filter.
	Due time.Time
	// Cursor is the Next of the page before; invalid when it is not one.
	Cursor string
	// Limit is the page size, 1-1000; 0 is 50. A page is cut at 4 MiB of input, too.
	Limit int
}

// ApprovalPage is one page of approvals. Next is empty on the last one.
type ApprovalPage struct {
	Approvals []holdfast.Approval
	Next      string
}
