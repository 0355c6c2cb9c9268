package journal

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-run/holdfast"
)

// ApprovalChange creates an approval question to a person, or ends one.
type ApprovalChange struct {
	// Ask inserts a pending approval for the change's session; the store sets AskedAt if it is zero.
	// An id that already exists is a conflict. If Ask is set, the other fields are empty.
	Ask *holdfast.Approval
	// ID is the pending approval that the change ends. If its state is not pending, the change fails with a
	// conflict that quotes its state and who answered.
	ID holdfast.ApprovalID
	// To is the final state: allowed, denied or expired.
	To     holdfast.ApprovalState
	By     string
	Scope  holdfast.ApprovalScope
	Answer string
}

// About returns the id of the approval that the change creates or ends.
func (c ApprovalChange) About() holdfast.ApprovalID {
	if c.Ask != nil {
		return c.Ask.ID
	}
	return c.ID
}

// RuleChange adds a permission rule of a session or workspace, or removes one if Removed is set.
// Adding an existing rule can only raise the Trust of the stored one; removing a missing rule changes nothing.
type RuleChange struct {
	// Key identifies the owner of the rule: it is the session's id, or for a rule of scope workspace the
	// WorkspaceKey of the workspace.
	Key string
	// Source says who added the rule: an approval's id, "hook", "policy", or a person.
	Source string
	holdfast.RuleChange
}

// ChangeRules adds changes of permission rules to the change c, together with the event that records them. by
// says who made the changes.
func (c *Change) ChangeRules(turn holdfast.TurnID, by string, list []RuleChange) {
	ev := holdfast.RulesChanged{By: by}
	for _, r := range list {
		ev.Changes = append(ev.Changes, r.RuleChange)
	}
	c.Rules = append(c.Rules, list...)
	c.Events = append(c.Events, Draft{Type: holdfast.EventRulesChanged, Turn: turn, Data: ev})
}

// WorkspaceKey returns the key under which the store keeps the rules of a workspace.
func WorkspaceKey(id holdfast.Slug) string { return "w-" + string(id) }

// SettingsScope is the scope of rules in the settings of a workspace, which no answer, hook or agent can change.
const SettingsScope holdfast.ApprovalScope = "workspace's settings"

// Rule is a permission rule as it is stored.
type Rule struct {
	Scope    holdfast.ApprovalScope
	Key      string
	Behavior string
	Rule     string
	Source   string
	At       time.Time
	// Trust is the highest trust level that a session had when a change of that session added the rule.
	Trust holdfast.Trust
}

// Tightens reports whether the rule denies or asks, so that it allows nothing.
func (r Rule) Tightens() bool { return r.Behavior == "deny" || r.Behavior == "ask" }

// ApprovalQuery selects approvals, oldest question first. Zero fields do not filter.
type ApprovalQuery struct {
	State   holdfast.ApprovalState
	Session holdfast.SessionID
	// IDPrefix matches ids that begin with it.
	IDPrefix string
	// Turn and ToolUse, set together, select the approvals of one tool call.
	Turn    holdfast.TurnID
	ToolUse string
	// Due selects approvals that expire at or before this time; the zero time does not filter.
	Due time.Time
	// Cursor is the Next of the previous page; empty selects the first page, and any other text is invalid.
	Cursor string
	// Limit is the page size, 1-1000; 0 means 50. A page also ends at 4 MiB of input.
	Limit int
}

// ApprovalPage is one page of approvals. Next is empty on the last page.
type ApprovalPage struct {
	Approvals []holdfast.Approval
	Next      string
}

// EachApproval returns all approvals that a query selects, oldest question first. list returns one page of them, like the
// method Approvals of a store. After an error the sequence ends.
func EachApproval(ctx context.Context, list func(context.Context, ApprovalQuery) (ApprovalPage, error), q ApprovalQuery) iter.Seq2[holdfast.Approval, error] {
	q.Limit = 1000
	return pages(q.Cursor, func(cursor string) ([]holdfast.Approval, string, error) {
		q.Cursor = cursor
		page, err := list(ctx, q)
		return page.Approvals, page.Next, err
	})
}
