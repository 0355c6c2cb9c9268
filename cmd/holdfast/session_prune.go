package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type sessionPruneCmd struct {
	Ended  bool   `required:"" help:"Sessions that ended; no others."`
	Older  string `placeholder:"TIME" help:"Only those that were last active longer ago, as 30d or 12h."`
	Agent  string `placeholder:"NAME" help:"Only those of this agent."`
	Tag    string `placeholder:"TAG" help:"Only those with this tag."`
	Purge  bool   `help:"Skip the trash: logs and files are gone for good."`
	DryRun bool   `help:"Say which; change nothing."`
	Yes    bool   `short:"y" help:"Do not ask."`
}

// Help is shown below the one-line description.
func (*sessionPruneCmd) Help() string {
	return `Moves them to the trash. Asks first on a terminal; elsewhere --yes is needed.

Examples:
  holdfast session prune --ended --older 30d --dry-run
  holdfast session prune --ended --tag nightly --yes`
}

// Run removes ended sessions.
func (s *sessionPruneCmd) Run(e *env) error {
	age, err := days(s.Older)
	if err != nil {
		return err
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	list, err := (&sessionListCmd{Status: string(holdfast.StatusEnded), Agent: s.Agent, Tag: s.Tag}).page(e, c)
	if err != nil {
		return err
	}
	before := time.Now().Add(-age)
	found := []holdfast.Session{}
	for _, one := range list.Sessions {
		if one.LastActiveAt.Before(before) {
			found = append(found, one)
		}
	}
	question, key, what := "move %s to the trash?", "trashed", "moved to the trash"
	if s.Purge {
		question, key, what = "delete %s with logs and files for good?", "deleted", "deleted"
	}
	return removing{found, s.DryRun, s.Yes, question, key, what}.run(e, func(id holdfast.SessionID) error {
		return c.DeleteSession(e.ctx, id, holdfast.EndSession{Purge: s.Purge})
	})
}

// removing removes several sessions, with the words for it.
type removing struct {
	found     []holdfast.Session
	dry, yes  bool
	question  string
	key, what string
}

// run asks, unless it was told yes, and calls remove for each session. A dry run only says which.
func (r removing) run(e *env, remove func(holdfast.SessionID) error) error {
	if r.dry || len(r.found) == 0 {
		return saySessions(e, "would_be_"+r.key, "would be "+r.what, r.found)
	}
	if !r.yes {
		if err := e.agrees(fmt.Sprintf(r.question, count(len(r.found), "session", "sessions"))); err != nil {
			return err
		}
	}
	for i, one := range r.found {
		if err := remove(one.ID); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			return goOn(err, "%s %s; the same command goes on", count(i, "session was", "sessions were"), r.what)
		}
	}
	return saySessions(e, r.key, r.what, r.found)
}

// saySessions prints the sessions that were removed, or would be.
func saySessions(e *env, key, what string, found []holdfast.Session) error {
	if e.json {
		ids := []holdfast.SessionID{}
		for _, one := range found {
			ids = append(ids, one.ID)
		}
		return e.print(map[string]any{key: ids})
	}
	for i, short := range plain.ShortIDs(found) {
		fmt.Fprintf(e.stdout, "%s %s  %s\n", what, short, strings.TrimSpace(when(found[i].LastActiveAt)+"  "+cut(line(found[i].Title), 60)))
	}
	return e.say(nil, "%s", count(len(found), "session "+what, "sessions "+what))
}

// days parses a duration as time.ParseDuration does, or whole days such as 30d.
func days(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if n, ok := strings.CutSuffix(s, "d"); ok {
		var whole int
		whole, err = strconv.Atoi(n)
		d = time.Duration(whole) * 24 * time.Hour
	}
	if err != nil || d < 0 || d > 100*365*24*time.Hour {
		return 0, holdfast.Errorf(holdfast.KindInvalid, "session prune", "--older %s is not a duration", holdfast.Quote(s)).WithHint("30d, or 12h")
	}
	return d, nil
}

// agrees asks the user at the terminal, and returns an error unless the answer is yes. Without a
// terminal it returns KindInvalid: --yes is needed.
func (e *env) agrees(question string) error {
	if !isTerminal(e.stdin) || e.json {
		return holdfast.Errorf(holdfast.KindInvalid, "", "%s: there is no terminal to ask on", strings.TrimSuffix(question, "?")).WithHint("add --yes")
	}
	fmt.Fprintf(e.stderr, "%s [y/N] ", line(question))
	answer, err := bufio.NewReader(e.stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); err != nil || a != "y" && a != "yes" {
		e.note("nothing was deleted")
		return &exitError{1}
	}
	return nil
}
