package chat

import (
	"context"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// maxQuestion is the most characters of a call's input that are shown to the person who decides
// on the call.
const maxQuestion = 1 << 20

// manyLines is the number of lines above which a question may not fit a terminal's scrollback.
const manyLines = 500

// hear updates the open questions from approval events of the log.
func (t *Talk) hear(ev holdfast.Event) ([]Effect, error) {
	switch ev.Type {
	case holdfast.EventApprovalAsked:
		var a holdfast.Approval
		if err := ev.Decode(&a); err != nil {
			return nil, err
		}
		return t.Ask(a), nil
	case holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		var a holdfast.ApprovalAnswered
		if err := ev.Decode(&a); err != nil {
			return nil, err
		}
		t.questions.settled(a.ID)
	}
	return nil, nil
}

// Ask shows an approval as a question and adds it to the open ones, if a person types and the chat prints no JSON.
func (t *Talk) Ask(a holdfast.Approval) []Effect {
	if !t.Person || t.JSON || !t.questions.add(a) {
		return nil
	}
	out := Show(plain.Question(a, maxQuestion))
	if len(out) > manyLines {
		out = append(out, say("the call has %d lines; to read it again: holdfast approvals show %s", len(out), a.ID)...)
	}
	if rules := a.Suggestions; len(rules) > 0 {
		out = append(out, say("s and w would grant %s", strings.Join(rules, ", "))...)
	}
	return []Effect{out}
}

// rules splits a line into permission rules at its commas. A comma in parentheses is part of a
// rule.
func rules(text string) (out []string) {
	depth, from := 0, 0
	add := func(to int) {
		if rule := strings.TrimSpace(text[from:to]); rule != "" {
			out = append(out, rule)
		}
		from = to + 1
	}
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth <= 0:
			add(i)
		}
	}
	add(len(text))
	return out
}

const answers = "a question is open: y allows it once, s [RULES] in this session, w [RULES] in this workspace, e edits the rules, n [REASON] denies it"

// reply sends text as the answer to the oldest open question. For a text that is not an answer, reply
// shows how to answer, and sends nothing.
func (t *Talk) reply(text string) []Effect {
	a, _ := t.Question()
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	req := holdfast.AnswerApproval{Decision: "allow"}
	switch strings.ToLower(word) {
	case "y", "yes":
		if rest != "" {
			return []Effect{say(answers)}
		}
	case "s":
		req.Scope, req.Rules = holdfast.ScopeSession, rules(rest)
	case "w":
		req.Scope, req.Rules = holdfast.ScopeWorkspace, rules(rest)
	case "e":
		if rest != "" {
			return []Effect{say(answers)}
		}
		return []Effect{
			say("edit the rules: s in front grants them in this session, w in this workspace"),
			Restore{strings.TrimSpace("s " + strings.Join(a.Suggestions, ", "))},
		}
	case "n", "no":
		req = holdfast.AnswerApproval{Decision: "deny", Reason: rest}
	default:
		return []Effect{say(answers)}
	}
	return t.call(callLimit, func(ctx context.Context, c *client.Client) Input {
		_, err := c.AnswerApproval(ctx, a.ID, req)
		return func(t *Talk) []Effect { return t.answered(a.ID, text, err) }
	})
}

// answered handles the server's reply to an answer. If the answer was accepted or the question
// is no longer open, the question is removed; else the text goes back to the editor.
func (t *Talk) answered(id holdfast.ApprovalID, text string, err error) []Effect {
	if err == nil {
		t.questions.settled(id)
		return nil
	}
	out := []Effect{trouble(err)}
	if holdfast.IsKind(err, holdfast.KindConflict) || holdfast.IsKind(err, holdfast.KindNotFound) {
		t.questions.settled(id)
		return out
	}
	return append(out, Restore{text})
}
