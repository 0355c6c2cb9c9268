package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type trashCmd struct {
	List    trashListCmd    `cmd:"" aliases:"ls" help:"List the sessions and the files of workspaces in the trash."`
	Restore trashRestoreCmd `cmd:"" help:"Take sessions out of the trash."`
	Empty   trashEmptyCmd   `cmd:"" help:"Remove all that is in the trash for good."`
}

// trashed holds the sessions and deleted workspaces that are in the trash.
type trashed struct {
	holdfast.SessionPage
	Workspaces []holdfast.DeletedWorkspace `json:"workspaces"`
}

// inTrash returns all sessions and deleted workspaces that are in the trash.
func inTrash(e *env) (c *client.Client, list trashed, err error) {
	if c, err = e.client(); err != nil {
		return c, list, err
	}
	if list.SessionPage, err = (&sessionListCmd{Trash: true}).page(e, c); err != nil {
		return c, list, err
	}
	list.Workspaces, err = c.TrashedWorkspaces(e.ctx)
	return c, list, err
}

type trashListCmd struct{}

// Run lists what is in the trash.
func (*trashListCmd) Run(e *env) error {
	_, list, err := inTrash(e)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(list)
	}
	var rows [][]string
	for i, short := range plain.ShortIDs(list.Sessions) {
		one := list.Sessions[i]
		rows = append(rows, []string{short, string(one.Agent), strconv.FormatInt(one.CompletedTurns, 10), "in " + left(one), cut(line(one.Title), 40)})
	}
	if err := e.table([]string{"ID", "AGENT", "TURNS", "GONE", "TITLE"}, rows); err != nil {
		return err
	}
	for _, w := range list.Workspaces {
		if err := e.say(nil, "the files of workspace %s, deleted %s", w.ID, when(*w.DeletedAt)); err != nil {
			return err
		}
	}
	return nil
}

// left returns a text that says how much longer a session stays in the trash.
func left(s holdfast.Session) string {
	if s.PurgeAt == nil {
		return ""
	}
	return plain.Age(max(time.Until(*s.PurgeAt), 0))
}

type trashRestoreCmd struct {
	IDs []string `arg:"" name:"id" help:"Sessions in the trash: ids, or beginnings or endings of them, or titles."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*trashRestoreCmd) Help() string {
	return "A session ended when it was deleted. Its log and files are there again; to talk on, fork it.\n\nExamples:\n  holdfast trash restore $id\n  holdfast session fork $id"
}

// Run takes sessions out of the trash.
func (s *trashRestoreCmd) Run(e *env) error {
	return each[holdfast.Session]{
		trash: true, key: "sessions",
		do: func(c *client.Client, id holdfast.SessionID) (holdfast.Session, error) {
			return c.UntrashSession(e.ctx, id)
		},
		said: func(one holdfast.Session) string {
			return fmt.Sprintf("%s is back; to talk on: holdfast session fork %s", one.ID, one.ID)
		},
	}.run(e, s.IDs)
}

type trashEmptyCmd struct {
	DryRun bool `help:"Say what would be removed; change nothing."`
	Yes    bool `short:"y" help:"Do not ask."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*trashEmptyCmd) Help() string {
	return `Logs and files are gone for good, also the files of deleted workspaces. Asks first on a terminal; elsewhere --yes is needed. The server removes each by itself when its time has come.

Examples:
  holdfast trash empty --dry-run
  holdfast session delete $id --purge   # only this one`
}

// Run removes the sessions, and the files of deleted workspaces, in the trash for good, after it asked the user.
func (s *trashEmptyCmd) Run(e *env) error {
	c, list, err := inTrash(e)
	if err != nil {
		return err
	}
	r := removing{
		found: list.Sessions, dry: s.DryRun, yes: s.Yes, question: "delete %s with logs and files for good?", key: "deleted", what: "deleted",
		spaces: list.Workspaces, empty: func() error { return c.EmptyWorkspaceTrash(e.ctx) },
	}
	return r.run(e, func(id holdfast.SessionID) error {
		return c.DeleteSession(e.ctx, id, holdfast.EndSession{Purge: true})
	})
}
