package acpserver

import (
	"context"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
)

// The answers that the editor offers.
const (
	allowOnce    acp.PermissionOptionId = "allow_once"
	allowAlways  acp.PermissionOptionId = "allow_always"
	rejectOnce   acp.PermissionOptionId = "reject_once"
	rejectAlways acp.PermissionOptionId = "reject_always"
)

// question is one that the editor's user is asked, or will be once the editor knows
// the log.
type question struct {
	a        holdfast.Approval
	put      bool
	withdraw context.CancelFunc
}

// ask notes a question, and puts it to the editor. o.mu is held.
func (o *session) ask(a holdfast.Approval) {
	if o.asked[a.ID] != nil || a.State != "" && a.State != holdfast.ApprovalPending {
		return
	}
	q := &question{a: a}
	o.asked[a.ID] = q
	if o.head == 0 {
		o.put(q)
	}
}

// put asks the editor's user. o.mu is held.
func (o *session) put(q *question) {
	if q.put {
		return
	}
	q.put = true
	var ctx context.Context
	ctx, q.withdraw = context.WithCancel(o.ctx)
	never := o.never[callOf(q.a)]
	if !o.s.begin(func() { o.question(ctx, q.a, never) }) {
		q.withdraw()
	}
}

// withdraw takes a question back that has an answer. o.mu is held.
func (o *session) withdraw(id holdfast.ApprovalID) {
	if q := o.asked[id]; q != nil {
		delete(o.asked, id)
		if q.withdraw != nil {
			q.withdraw()
		}
	}
}

// callOf is what makes two questions the same.
func callOf(a holdfast.Approval) string { return a.Tool + "\x00" + a.InputHash }

// question waits for the user's answer and passes it on. It ends without one when
// somebody else answers, and when the editor leaves: the question stays.
func (o *session) question(ctx context.Context, a holdfast.Approval, never bool) {
	choice := rejectAlways
	if !never {
		req := acp.RequestPermissionRequest{SessionId: acp.SessionId(o.id), ToolCall: asking(a), Options: options(a)}
		res, err := acp.SendRequest[acp.RequestPermissionResponse](o.s.conn, ctx, acp.ClientMethodSessionRequestPermission, req)
		if err != nil || res.Outcome.Selected == nil {
			if err != nil && ctx.Err() == nil {
				o.s.cfg.Log.Warn("the editor does not answer a question; holdfast approvals does", "approval_id", a.ID, "error", err)
			}
			return
		}
		choice = res.Outcome.Selected.OptionId
	}
	answer, ok := answerOf(choice)
	if !ok {
		o.s.cfg.Log.Warn("the editor gave an answer that was not offered", "approval_id", a.ID, "answer", choice)
		return
	}
	if choice == rejectAlways {
		o.mu.Lock()
		o.never[callOf(a)] = true
		o.mu.Unlock()
	}
	err := persist(ctx, func() error {
		_, err := o.s.cfg.API.AnswerApproval(ctx, a.ID, answer)
		return err
	})
	if err != nil && ctx.Err() == nil && !holdfast.IsKind(err, holdfast.KindConflict) {
		o.s.cfg.Log.Warn("an answer was not taken", "approval_id", a.ID, "error", err)
		for _, u := range notice("the answer was not taken: " + err.Error()) {
			o.tell(u, 0)
		}
	}
}

// asking is the call that the question is about.
func asking(a holdfast.Approval) acp.ToolCallUpdate {
	line, kind, status := title(a.Tool, a.Input), kindOf(a.Tool), acp.ToolCallStatusPending
	return acp.ToolCallUpdate{
		ToolCallId: acp.ToolCallId(a.ToolUseID), Title: &line, Kind: &kind, Status: &status, RawInput: raw(a.Input),
		Content: content("asked because " + a.Reason),
	}
}

// options are the answers there are. What holds for longer than once needs rules, and is
// offered where there are some to grant, with the name of each; nothing forbids for longer but this
// connection's memory of what its user said.
func options(a holdfast.Approval) []acp.PermissionOption {
	out := []acp.PermissionOption{{OptionId: allowOnce, Name: "Allow once", Kind: acp.PermissionOptionKindAllowOnce}}
	if len(a.Suggestions) > 0 {
		out = append(out, acp.PermissionOption{
			OptionId: allowAlways, Name: "Allow in this session: " + strings.Join(a.Suggestions, ", "), Kind: acp.PermissionOptionKindAllowAlways,
		})
	}
	return append(out,
		acp.PermissionOption{OptionId: rejectOnce, Name: "Reject", Kind: acp.PermissionOptionKindRejectOnce},
		acp.PermissionOption{OptionId: rejectAlways, Name: "Reject this call while the session is open here", Kind: acp.PermissionOptionKindRejectAlways},
	)
}

func answerOf(choice acp.PermissionOptionId) (holdfast.AnswerApproval, bool) {
	switch choice {
	case allowOnce:
		return holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeOnce}, true
	case allowAlways:
		return holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeSession}, true
	case rejectOnce, rejectAlways:
		return holdfast.AnswerApproval{Decision: "deny", Reason: "rejected in the editor"}, true
	}
	return holdfast.AnswerApproval{}, false
}
