package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// recall asks again what was asked before the chat began.
func (t *talk) recall() {
	if !t.person {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	page, err := t.c.Approvals(ctx, holdfast.ApprovalFilter{Session: string(t.session.ID)})
	if err != nil {
		t.trouble(err)
	}
	for _, a := range page.Approvals {
		t.ask(a)
	}
}

// ask shows a question and remembers it.
func (t *talk) ask(a holdfast.Approval) {
	if !t.person || t.e.json || slices.ContainsFunc(t.questions, func(q holdfast.Approval) bool { return q.ID == a.ID }) {
		return
	}
	t.questions = append(t.questions, a)
	t.unprompt()
	t.view.breakLine()
	_ = t.view.printer.Print(plain.Question(a, plain.MaxAsked)...)
	for _, rule := range plain.Suggestions(a) {
		t.say("s and w would grant %s", line(rule))
	}
}

// settled forgets a question that has ended.
func (t *talk) settled(id holdfast.ApprovalID) {
	t.questions = slices.DeleteFunc(t.questions, func(q holdfast.Approval) bool { return q.ID == id })
}

// hear follows questions in the log.
func (t *talk) hear(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventApprovalAsked:
		var a holdfast.Approval
		if err := ev.Decode(&a); err != nil {
			return err
		}
		t.ask(a)
	case holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		var a holdfast.ApprovalAnswered
		if err := ev.Decode(&a); err != nil {
			return err
		}
		t.settled(a.ID)
	}
	return nil
}

// reply answers the question that was asked first. What is no answer is neither
// taken for one nor sent as a message.
func (t *talk) reply(text string) {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	req := holdfast.AnswerApproval{Decision: "allow"}
	switch strings.ToLower(word) {
	case "y", "yes":
	case "s":
		req.Scope, req.Rule = holdfast.ScopeSession, rest
	case "w":
		req.Scope, req.Rule = holdfast.ScopeWorkspace, rest
	case "n", "no":
		req = holdfast.AnswerApproval{Decision: "deny", Reason: rest}
	default:
		word, rest = "", ""
	}
	if word == "" || rest != "" && req.Decision == "allow" && req.Scope == "" {
		t.say("a question is open: y allows it once, s [RULE] in this session, w [RULE] in this workspace, n [REASON] denies it")
		return
	}
	a := t.questions[0]
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	_, err := t.c.AnswerApproval(ctx, a.ID, req)
	if err != nil {
		t.trouble(err)
	}
	if err == nil || holdfast.IsKind(err, holdfast.KindConflict) || holdfast.IsKind(err, holdfast.KindNotFound) {
		t.settled(a.ID)
	}
}
