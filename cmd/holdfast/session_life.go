package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type sessionUpdateCmd struct {
	ID        string  `arg:"" help:"${session}"`
	Trust     *string `placeholder:"TRUST" help:"untrusted or trusted."`
	Mode      *string `placeholder:"MODE" help:"Permission mode: ${modes}."`
	Model     *string `placeholder:"NAME" help:"The model."`
	Runtime   *string `placeholder:"NAME" help:"How the agent runs: native, claude or acp:NAME."`
	Interrupt bool    `help:"End a running turn first where the change needs that."`

	Budget     *string `placeholder:"BOUNDS" help:"What the session may use up from now on, whole: usd=5,turns=100, or none."`
	TurnBudget *string `placeholder:"BOUNDS" help:"The same for each turn."`

	AllowNet []string `placeholder:"DOMAIN" sep:"none" help:"A domain that its box may connect to from now on; repeatable."`
	DenyNet  []string `placeholder:"DOMAIN" sep:"none" help:"Takes one back, as it was granted; '*' takes back all. What is open is cut."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionUpdateCmd) Help() string {
	return "A running turn keeps what it began with, but for its budgets; the next one takes the change.\n\nExample:\n  holdfast session update $id --mode plan"
}

// Run changes a session.
func (s *sessionUpdateCmd) Run(e *env) error {
	budget, turnBudget, err := budgets(s.Budget, s.TurnBudget)
	if err != nil {
		return err
	}
	if s.Trust == nil && s.Mode == nil && s.Model == nil && s.Runtime == nil && budget == nil && turnBudget == nil &&
		len(s.AllowNet)+len(s.DenyNet) == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "session update", "no change to the session is given").
			WithHint("holdfast session update %s --mode plan", word(s.ID))
	}
	return e.update(s.ID, holdfast.UpdateSession{
		Trust: s.Trust, Mode: s.Mode, Model: s.Model, Runtime: s.Runtime, Interrupt: s.Interrupt,
		Budget: budget, TurnBudget: turnBudget, AllowNet: s.AllowNet, DenyNet: s.DenyNet,
	})
}

func (e *env) update(id string, req holdfast.UpdateSession) error {
	c, full, err := e.onSession(id)
	if err != nil {
		return err
	}
	one, err := c.UpdateSession(e.ctx, full, req)
	if err != nil {
		return err
	}
	if req.Trust != nil {
		e.warnTrust(one.Trust, runsAs(one))
	}
	return e.showSession(one)
}

type sessionRenameCmd struct {
	ID    string `arg:"" help:"${session}"`
	Title string `arg:"" help:"The new title."`
}

// Run changes the title.
func (s *sessionRenameCmd) Run(e *env) error {
	return e.update(s.ID, holdfast.UpdateSession{Title: &s.Title})
}

type sessionTagCmd struct {
	ID     string   `arg:"" help:"${session}"`
	Tags   []string `arg:"" optional:"" help:"All its tags from now on."`
	Add    []string `short:"a" placeholder:"TAG" sep:"none" help:"Add this one; repeatable."`
	Remove []string `short:"r" placeholder:"TAG" sep:"none" help:"Remove this one; repeatable."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionTagCmd) Help() string {
	return "Examples:\n  holdfast session tag $id --add urgent --remove later\n  holdfast session tag $id one two   # these and no others"
}

// Run changes the tags.
func (s *sessionTagCmd) Run(e *env) error {
	req := holdfast.UpdateSession{AddTags: s.Add, RemoveTags: s.Remove}
	switch {
	case len(s.Add)+len(s.Remove) == 0:
		tags := append([]string{}, s.Tags...)
		req.Tags = &tags
	case len(s.Tags) > 0:
		return holdfast.Errorf(holdfast.KindInvalid, "session tag", "the tags %s, which replace all others, cannot be combined with --add or --remove",
			holdfast.Quote(strings.Join(s.Tags, " "))).WithHint("either name all tags, or give the changes with --add and --remove")
	}
	return e.update(s.ID, req)
}

// ending holds the arguments that pause and end share.
type ending struct {
	IDs       []string `arg:"" name:"id" help:"${sessions}"`
	Interrupt bool     `help:"End a running turn first."`
	Reason    string   `placeholder:"TEXT" help:"Why; it is kept in the log."`
}

func (s *ending) run(e *env, call func(*client.Client, context.Context, holdfast.SessionID, holdfast.EndSession) (holdfast.Session, error)) error {
	return each[holdfast.Session]{
		do: func(c *client.Client, id holdfast.SessionID) (holdfast.Session, error) {
			return call(c, e.ctx, id, holdfast.EndSession{Interrupt: s.Interrupt, Reason: s.Reason})
		},
		said: func(one holdfast.Session) string { return fmt.Sprintf("%s is %s", one.ID, one.Status) },
		key:  "sessions",
		only: "session",
	}.run(e, s.IDs)
}

// each is a command that is carried out for several sessions, one after the other, by do. said describes the result for
// one session. With --json, all results are printed in a list under the name key; or, if one session was named and
// each.only is not empty, that session's result alone is printed, under the name each.only.
type each[T any] struct {
	trash     bool // the sessions are in the trash
	do        func(*client.Client, holdfast.SessionID) (T, error)
	said      func(T) string
	key, only string
}

// run does the command, but only if each name means a session. It stops at the first error and notes how many
// sessions are left.
func (x each[T]) run(e *env, names []string) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	var ids []holdfast.SessionID
	for _, name := range names {
		id, err := e.resolveWhole(c, name, x.trash)
		if err != nil {
			return err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var done []T
	for i, id := range ids {
		var one T
		if one, err = x.do(c, id); err == nil {
			done = append(done, one)
			if !e.json {
				err = e.say(nil, "%s", x.said(one))
			}
		}
		if err != nil {
			if left := len(ids) - i - 1; left > 0 {
				e.note("nothing was done with %s", count(left, "session after it", "sessions after it"))
			}
			break
		}
	}
	switch {
	case !e.json || len(done) == 0:
		return err
	case len(names) == 1 && x.only != "":
		return e.print(map[string]any{x.only: done[0]})
	}
	return errors.Join(err, e.print(map[string]any{x.key: done}))
}

type sessionPauseCmd struct {
	ending
}

// Run pauses a session.
func (s *sessionPauseCmd) Run(e *env) error {
	return s.run(e, (*client.Client).PauseSession)
}

type sessionInterruptCmd struct {
	ID string `arg:"" help:"${session}"`
}

// Run ends the running turn.
func (s *sessionInterruptCmd) Run(e *env) error {
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	one, err := c.Interrupt(e.ctx, id)
	if err != nil {
		return err
	}
	return e.say(map[string]any{"session": one}, "the turn of %s is interrupted", one.ID)
}

type sessionEndCmd struct {
	ending
}

// Run ends a session.
func (s *sessionEndCmd) Run(e *env) error {
	return s.run(e, (*client.Client).EndSession)
}

type sessionDeleteCmd struct {
	IDs       []string `arg:"" name:"id" help:"${sessions}"`
	Interrupt bool     `help:"End a running turn first."`
	Purge     bool     `help:"Skip the trash: log and files are gone for good."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionDeleteCmd) Help() string {
	return "The sessions end, and stay in the trash for the time of the setting keep_trash; holdfast trash restore brings them back.\n\nExample:\n  holdfast session delete $id"
}

// Run moves sessions to the trash, or with --purge removes them for good.
func (s *sessionDeleteCmd) Run(e *env) error {
	key, said := "trashed", "%s is in the trash"
	if s.Purge {
		key, said = "deleted", "deleted %s"
	}
	return each[holdfast.SessionID]{
		do: func(c *client.Client, id holdfast.SessionID) (holdfast.SessionID, error) {
			return id, c.DeleteSession(e.ctx, id, holdfast.EndSession{Interrupt: s.Interrupt, Purge: s.Purge})
		},
		said: func(id holdfast.SessionID) string { return fmt.Sprintf(said, id) },
		key:  key,
	}.run(e, s.IDs)
}

type sessionResumeCmd struct {
	ID     string `arg:"" help:"${session}"`
	DryRun bool   `help:"Say what would happen; change nothing."`
	Fresh  bool   `help:"Where the files cannot be recovered, go on with the agent's own files."`
}

// Run resumes a session and prints the receipt.
func (s *sessionResumeCmd) Run(e *env) error {
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	res, err := c.ResumeSession(e.ctx, id, holdfast.ResumeSession{DryRun: s.DryRun, Fresh: s.Fresh})
	if err != nil {
		return err
	}
	if e.json {
		return e.print(res)
	}
	if res.Receipt == nil {
		_, err := fmt.Fprintf(e.stdout, "%s is %s already\n", res.Session.ID, res.Session.Status)
		return err
	}
	verb := "is " + string(res.Session.Status)
	if s.DryRun {
		verb = "would be resumed"
	}
	_, err = fmt.Fprintf(e.stdout, "%s %s: %s\n", res.Session.ID, verb, plain.Receipt(*res.Receipt))
	return err
}
