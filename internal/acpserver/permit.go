package acpserver

import (
	"context"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
)

// The options that the editor offers for an approval.
const (
	allowOnce    acp.PermissionOptionId = "allow_once"
	allowAlways  acp.PermissionOptionId = "allow_always"
	rejectOnce   acp.PermissionOptionId = "reject_once"
	rejectAlways acp.PermissionOptionId = "reject_always"
)

// question is an approval that the editor's user is asked, at once or once the editor has the
// log up to head.
type question struct {
	a        holdfast.Approval
	put      bool
	withdraw context.CancelFunc
}

// ask adds a pending approval as a question, and puts it to the editor if that has the log. o.mu
// is held.
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

// put asks the editor's user a question, once. o.mu is held.
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

// withdraw removes a question that has been answered, and withdraws it from the editor. o.mu is held.
func (o *session) withdraw(id holdfast.ApprovalID) {
	if q := o.asked[id]; q != nil {
		delete(o.asked, id)
		if q.withdraw != nil {
			q.withdraw()
		}
	}
}

// callOf returns the key of a call: equal for approvals of the same tool and input.
func callOf(a holdfast.Approval) string { return a.Tool + "\x00" + a.InputHash }

// question waits for the user's answer and sends it to the server. It ends without an answer if
// somebody else answers or the editor leaves; then the approval stays pending.
func (o *session) question(ctx context.Context, a holdfast.Approval, never bool) {
	choice := rejectAlways
	if !never {
		req := acp.RequestPermissionRequest{SessionId: acp.SessionId(o.id), ToolCall: asking(a, o.view.place), Options: options(a)}
		var res acp.RequestPermissionResponse
		err := o.s.peer.Call(ctx, acp.ClientMethodSessionRequestPermission, req, &res)
		if err != nil || res.Outcome.Selected == nil {
			if err != nil && ctx.Err() == nil {
				o.s.cfg.Log.Warn("the editor did not answer an approval; answer it with: holdfast approvals", "approval_id", a.ID, "error", err)
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
		o.s.cfg.Log.Warn("the server did not accept the answer to an approval", "approval_id", a.ID, "error", err)
		for _, u := range notice("the server did not accept the answer: " + err.Error()) {
			o.tell(u, 0)
		}
	}
}

// asking returns the tool call of an approval as an update for the editor.
func asking(a holdfast.Approval, at place) acp.ToolCallUpdate {
	line, kind, status := title(a.Tool, a.Input), kindOf(a.Tool), acp.ToolCallStatusPending
	where, change := at.shown(a.Tool, a.Input)
	return acp.ToolCallUpdate{
		ToolCallId: acp.ToolCallId(a.ToolUseID), Title: &line, Kind: &kind, Status: &status, RawInput: raw(a.Input), Locations: where,
		Content: append(content("asked because "+a.Reason), change...),
	}
}

// options returns the options for an approval. Allowing for the session grants rules: it is
// offered only if there are suggested rules, with their names. Denying for longer is only
// remembered by this connection.
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
