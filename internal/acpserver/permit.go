package acpserver

import (
	"context"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// The options that the editor offers for an approval.
const (
	allowOnce    acp.PermissionOptionId = "allow_once"
	allowAlways  acp.PermissionOptionId = "allow_always"
	rejectOnce   acp.PermissionOptionId = "reject_once"
	rejectAlways acp.PermissionOptionId = "reject_always"
)

// question is an approval that the editor's user has to decide. The user is asked at once, or,
// while the editor is still receiving the session's log, once it has the log up to event head.
type question struct {
	a        holdfast.Approval
	put      bool
	withdraw context.CancelFunc
}

// ask adds a pending approval as a question. It asks the editor's user at once if the editor has
// already received the session's log. o.mu is held.
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

// question waits for the user's answer and sends it to the server. If never is true, it denies without asking. If
// somebody else answers, it ends. If the editor leaves, it ends, too, and the approval stays pending.
func (o *session) question(ctx context.Context, a holdfast.Approval, never bool) {
	choice := rejectAlways
	if !never {
		asked, whole := o.view.asking(a)
		offered := options(a, whole)
		req := acp.RequestPermissionRequest{SessionId: acp.SessionId(o.id), ToolCall: asked, Options: offered}
		var res acp.RequestPermissionResponse
		err := o.s.peer.Call(ctx, acp.ClientMethodSessionRequestPermission, req, &res)
		if err != nil || res.Outcome.Selected == nil {
			if err != nil && ctx.Err() == nil {
				o.s.cfg.Log.Warn("the editor did not answer an approval; answer it with: holdfast approvals", "approval_id", a.ID, "error", err)
			}
			return
		}
		choice = res.Outcome.Selected.OptionId
		if !slices.ContainsFunc(offered, func(one acp.PermissionOption) bool { return one.OptionId == choice }) {
			o.s.cfg.Log.Warn("the editor gave an answer that was not offered", "approval_id", a.ID, "answer", choice)
			return
		}
	}
	answer := answerOf(choice)
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

// asking returns the tool call of an approval as an update for the editor. It returns false if the update does not show
// all that is decided on.
func (v *view) asking(a holdfast.Approval) (acp.ToolCallUpdate, bool) {
	c := v.call(a.Tool, a.Input)
	line, kind, status := c.title(), kindOf(a.Tool), acp.ToolCallStatusPending
	where, change, note := c.shown()
	text, whole := c.question(a, change)
	in := raw(a.Input)
	if in == nil && len(a.Input) > 0 {
		note = leftOut(a.Input)
	}
	if note != "" {
		text += "\n" + note + "; to see it: holdfast approvals show " + plain.OneLine(string(a.ID))
	}
	return acp.ToolCallUpdate{
		ToolCallId: acp.ToolCallId(a.ToolUseID), Title: &line, Kind: &kind, Status: &status, RawInput: in, Locations: where,
		Content: append(content(fenced(text)), change...),
	}, whole
}

// options returns the options for an approval. A call that the editor does not show as a whole can only be rejected
// there. The option to allow the call in the whole session grants permission rules: it is offered only if rules are
// suggested, and names them. Denying for longer lasts only while the session is open in the editor.
func options(a holdfast.Approval, whole bool) []acp.PermissionOption {
	var out []acp.PermissionOption
	if whole {
		out = append(out, acp.PermissionOption{OptionId: allowOnce, Name: "Allow once", Kind: acp.PermissionOptionKindAllowOnce})
	}
	if whole && len(a.Suggestions) > 0 {
		rules := make([]string, len(a.Suggestions))
		for i, rule := range a.Suggestions {
			rules[i] = plain.OneLine(rule)
		}
		out = append(out, acp.PermissionOption{
			OptionId: allowAlways, Name: "Allow in this session: " + strings.Join(rules, ", "), Kind: acp.PermissionOptionKindAllowAlways,
		})
	}
	return append(out,
		acp.PermissionOption{OptionId: rejectOnce, Name: "Reject", Kind: acp.PermissionOptionKindRejectOnce},
		acp.PermissionOption{OptionId: rejectAlways, Name: "Reject this call while the session is open here", Kind: acp.PermissionOptionKindRejectAlways},
	)
}

// answerOf returns the answer for an option. Every option but allowOnce and allowAlways denies.
func answerOf(choice acp.PermissionOptionId) holdfast.AnswerApproval {
	switch choice {
	case allowOnce:
		return holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeOnce}
	case allowAlways:
		return holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ScopeSession}
	}
	return holdfast.AnswerApproval{Decision: "deny", Reason: "rejected in the editor"}
}
