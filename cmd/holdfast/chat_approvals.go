package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
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
	for _, l := range questionLines(a) {
		t.e.callLine(l)
	}
	if len(a.Suggestions) > 0 {
		t.say("s and w would grant %s", line(strings.Join(a.Suggestions, ", ")))
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
		return shown(ev, func(a holdfast.Approval) error {
			t.ask(a)
			return nil
		})
	case holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		return shown(ev, func(a holdfast.ApprovalAnswered) error {
			t.settled(a.ID)
			return nil
		})
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
		req.Scope = holdfast.ScopeSession
	case "w":
		req.Scope = holdfast.ScopeWorkspace
	case "n", "no":
		req = holdfast.AnswerApproval{Decision: "deny", Reason: rest}
	default:
		word, rest = "", ""
	}
	if word == "" || rest != "" && req.Decision == "allow" && req.Scope == "" {
		t.say("a question is open: y allows it once, s [RULE] in this session, w [RULE] in this workspace, n [REASON] denies it")
		return
	}
	if rest != "" && req.Decision == "allow" {
		req.Rules = []string{rest}
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
