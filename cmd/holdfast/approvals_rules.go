package main

import (
	"github.com/holdfast-run/holdfast"
)

type approvalsRulesCmd struct {
	ID string `arg:"" help:"The session, or the beginning of its id."`
}

// Run lists the rules that were added to a session and its workspace.
func (r *approvalsRulesCmd) Run(e *env) error {
	c, id, err := e.onSession(r.ID)
	if err != nil {
		return err
	}
	list, err := c.AddedRules(e.ctx, id)
	if err != nil {
		return err
	}
	return showRules(e, list)
}

func showRules(e *env, list []holdfast.Rule) error {
	var rows [][]string
	for _, r := range list {
		rows = append(rows, []string{string(r.Scope), line(r.Behavior), line(r.Rule), string(r.Trust), line(r.By), when(r.AddedAt)})
	}
	return e.listing(map[string]any{"rules": list}, []string{"SCOPE", "BEHAVIOR", "RULE", "TRUST", "BY", "ADDED"}, rows)
}

type approvalsRevokeCmd struct {
	ID    string `arg:"" help:"The session, or the beginning of its id."`
	Rule  string `arg:"" help:"The rule, as \"approvals rules\" lists it."`
	Scope string `placeholder:"SCOPE" help:"Only the rule of the session, or only that of the workspace; by default both."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*approvalsRevokeCmd) Help() string {
	return `Shows the rules that were removed. A rule of the workspace is removed for all its sessions. A turn that runs decides its next call without the rule. Rules that deny or ask are not removed, and what the settings allow is changed in the settings.

Examples:
  holdfast approvals revoke 01a1 'Bash(git push *)'
  holdfast approvals revoke 01a1 'Bash(git push *)' --scope workspace`
}

// Run removes a rule that allows calls, and prints what was removed from the session and its workspace.
func (r *approvalsRevokeCmd) Run(e *env) error {
	c, id, err := e.onSession(r.ID)
	if err != nil {
		return err
	}
	removed, err := c.RevokeRule(e.ctx, id, holdfast.ApprovalScope(r.Scope), r.Rule)
	if err != nil {
		return err
	}
	return showRules(e, removed)
}
