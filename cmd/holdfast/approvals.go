package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type approvalsCmd struct {
	List  approvalsListCmd  `cmd:"" aliases:"ls" help:"List what waits for an answer."`
	Show  approvalsShowCmd  `cmd:"" help:"Show a question with the whole input of its call."`
	Allow approvalsAllowCmd `cmd:"" help:"Let a tool call run."`
	Deny  approvalsDenyCmd  `cmd:"" help:"Deny a tool call; the model reads why."`

	Rules  approvalsRulesCmd  `cmd:"" help:"List the rules that answers and hooks added to a session and its workspace."`
	Revoke approvalsRevokeCmd `cmd:"" help:"Take back a rule: calls that it allowed are asked about again."`
}

type approvalsListCmd struct {
	Session string `placeholder:"ID" help:"Only those of this session."`
	State   string `placeholder:"STATE" help:"pending (the default), allowed, denied, expired or all."`
}

// Run lists the approvals that match the flags.
func (l *approvalsListCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	f := holdfast.ApprovalFilter{State: l.State, Limit: 1000}
	if l.Session != "" {
		id, err := e.resolve(c, l.Session)
		if err != nil {
			return err
		}
		f.Session = string(id)
	}
	list := []holdfast.Approval{}
	for a, err := range c.AllApprovals(e.ctx, f) {
		if err != nil {
			return err
		}
		list = append(list, a)
	}
	rows, short := approvalRows(list, isTerminal(e.stdout))
	if err := e.listing(map[string]any{"approvals": list}, []string{"ID", "SESSION", "TOOL", "STATE", "INPUT", "SUGGESTIONS"}, rows); err != nil {
		return err
	}
	if short && !e.json {
		e.note("cut at …: holdfast approvals show ID shows the whole input")
	}
	return nil
}

// approvalRows returns the table rows for approvals. With fit, long cells are cut to fit a terminal; short is true if
// one was cut.
func approvalRows(list []holdfast.Approval, fit bool) (rows [][]string, short bool) {
	cell := func(text string) string {
		whole := line(text)
		if !fit {
			return whole
		}
		shown := cut(whole, 60)
		short = short || shown != whole
		return shown
	}
	for _, a := range list {
		rows = append(rows, []string{string(a.ID), string(a.Session), a.Tool, standing(a), cell(compact(a.Input)), cell(strings.Join(a.Suggestions, ", "))})
	}
	return rows, short
}

// standing returns the state of an approval in a few words, with the person who answered it or the
// time until which it is pending, if these are known.
func standing(a holdfast.Approval) string {
	switch {
	case a.State != holdfast.ApprovalPending && a.AnsweredBy != "":
		return line(fmt.Sprintf("%s by %s", a.State, a.AnsweredBy))
	case a.State != holdfast.ApprovalPending:
		return string(a.State)
	case a.ExpiresAt == nil:
		return "pending"
	}
	return "pending until " + when(*a.ExpiresAt)
}

type approvalsShowCmd struct {
	ID string `arg:"" help:"The question, or the beginning of its id."`
}

// Run shows one approval with the whole input of its call.
func (s *approvalsShowCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	id, err := e.approvalID(c, s.ID)
	if err != nil {
		return err
	}
	a, err := c.Approval(e.ctx, id)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(map[string]any{"approval": a})
	}
	return e.showApproval(a)
}

func (e *env) showApproval(a holdfast.Approval) error {
	rows := [][]string{
		{"id", string(a.ID)},
		{"session", string(a.Session)},
		{"state", standing(a)},
		{"tool", line(a.Tool)},
		{"input", compact(a.Input)},
		{"why", line(a.Reason)},
	}
	for _, rule := range a.Suggestions {
		rows = append(rows, []string{"suggestion", line(rule)})
	}
	rows = append(rows, [][]string{
		{"scope", string(a.Scope)},
		{"answer", line(a.Answer)},
		{"asked", a.AskedAt.Local().Format(time.RFC3339)},
	}...)
	for _, r := range rows {
		if r[1] == "" {
			continue
		}
		if err := e.say(nil, "%-11s %s", r[0], r[1]); err != nil {
			return err
		}
	}
	return nil
}

// asked returns at most plain.MaxAsked characters of the input of the tool call that an approval is about. If it was
// cut, more says how to read the rest.
func asked(a holdfast.Approval) (input string, more []string) {
	r := []rune(compact(a.Input))
	if len(r) <= plain.MaxAsked {
		return string(r), nil
	}
	return string(r[:plain.MaxAsked]), []string{plain.Beginning(plain.MaxAsked, len(r), a.ID)}
}

type approvalsAllowCmd struct {
	ID     string   `arg:"" help:"The question, or the beginning of its id."`
	Scope  string   `placeholder:"SCOPE" help:"What the answer is for: once (this call, the default), session or workspace."`
	Rule   []string `placeholder:"RULE" sep:"none" help:"A rule that a scope beyond once grants, such as Bash(git *); repeatable. Without it: the suggested ones."`
	Reason string   `placeholder:"TEXT" help:"Kept with the answer."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*approvalsAllowCmd) Help() string {
	return `An answer for the session or the workspace grants rules: calls that they match need no approval any more. Without --rule they are the suggested ones, which "approvals show" lists: one for each part of the call, and nothing else. No grant lifts a rule that denies.

Examples:
  holdfast approvals allow 01a1
  holdfast approvals allow 01a1 --scope session
  holdfast approvals allow 01a1 --scope session --rule 'Bash(git *)' --rule 'Bash(go test *)'`
}

// Run answers the approval with allow.
func (a *approvalsAllowCmd) Run(e *env) error {
	return e.answer(a.ID, holdfast.AnswerApproval{Decision: "allow", Scope: holdfast.ApprovalScope(a.Scope), Rules: a.Rule, Reason: a.Reason})
}

type approvalsDenyCmd struct {
	ID     string `arg:"" help:"The question, or the beginning of its id."`
	Reason string `placeholder:"TEXT" help:"Why; the model reads it."`
}

// Run answers the approval with deny.
func (d *approvalsDenyCmd) Run(e *env) error {
	return e.answer(d.ID, holdfast.AnswerApproval{Decision: "deny", Reason: d.Reason})
}

func (e *env) answer(id string, req holdfast.AnswerApproval) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	full, err := e.approvalID(c, id)
	if err != nil {
		return err
	}
	a, err := c.AnswerApproval(e.ctx, full, req)
	if err != nil {
		return err
	}
	input, more := asked(a)
	text := fmt.Sprintf("%s %s: %s %s", a.ID, a.State, line(a.Tool), input)
	return e.say(map[string]any{"approval": a}, "%s", strings.Join(append([]string{text}, more...), "\n"))
}

// approvalID returns the id of the approval that id names: a whole id, or a unique beginning of one.
func (e *env) approvalID(c *client.Client, id string) (holdfast.ApprovalID, error) {
	if full, err := holdfast.Parse[holdfast.ApprovalID](id); err == nil {
		return full, nil
	}
	prefix := strings.ToLower(id)
	const hint = "holdfast approvals list shows the ids"
	if prefix == "" || len(prefix) > 36 || strings.Trim(prefix, "0123456789abcdef-") != "" {
		return "", holdfast.Errorf(holdfast.KindInvalid, "approvals", "%s is neither the id of an approval nor the beginning of one", holdfast.Quote(id)).WithHint(hint)
	}
	page, err := c.Approvals(e.ctx, holdfast.ApprovalFilter{State: "all", IDPrefix: prefix, Limit: 2})
	if err != nil {
		return "", err
	}
	switch len(page.Approvals) {
	case 0:
		return "", holdfast.Errorf(holdfast.KindNotFound, "approvals", "no approval's id begins with %s", holdfast.Quote(id)).WithHint(hint)
	case 1:
		return page.Approvals[0].ID, nil
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, "approvals", "%s is the beginning of several approval ids, such as %s and %s",
		holdfast.Quote(id), page.Approvals[0].ID, page.Approvals[1].ID).WithHint("give more characters of the approval's id")
}
