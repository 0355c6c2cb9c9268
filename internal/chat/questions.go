package chat

import (
	"slices"

	"github.com/holdfast-run/holdfast"
)

// questions are the approvals that wait for an answer of this person, the oldest first. The
// zero value is empty.
type questions struct{ open []holdfast.Approval }

// first returns the question that the next answer is for; ok is false if none is open.
func (q *questions) first() (holdfast.Approval, bool) {
	if len(q.open) == 0 {
		return holdfast.Approval{}, false
	}
	return q.open[0], true
}

// add appends a question, and reports false if it is open already.
func (q *questions) add(a holdfast.Approval) bool {
	if slices.ContainsFunc(q.open, func(b holdfast.Approval) bool { return b.ID == a.ID }) {
		return false
	}
	q.open = append(q.open, a)
	return true
}

// settled removes a question that was answered or has expired.
func (q *questions) settled(id holdfast.ApprovalID) {
	q.open = slices.DeleteFunc(q.open, func(a holdfast.Approval) bool { return a.ID == id })
}

// over removes the open questions of a turn that has ended.
func (q *questions) over(turn holdfast.TurnID) {
	q.open = slices.DeleteFunc(q.open, func(a holdfast.Approval) bool { return a.Turn == turn })
}
