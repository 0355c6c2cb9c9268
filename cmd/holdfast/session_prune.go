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
	Ended  bool   `required:"" help:"Sessions that ended; no others are removed."`
	Older  string `placeholder:"TIME" help:"Only those that were last active longer ago, as 30d or 12h."`
	Agent  string `placeholder:"NAME" help:"Only those of this agent."`
	Tag    string `placeholder:"TAG" help:"Only those with this tag."`
	DryRun bool   `help:"Say what would be removed; change nothing."`
	Yes    bool   `short:"y" help:"Do not ask."`
}

// Help is shown below the one-line description.
func (*sessionPruneCmd) Help() string {
	return `Logs and files are gone for good. Asks first on a terminal; elsewhere --yes is needed.

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
	if s.DryRun || len(found) == 0 {
		return s.say(e, "would_delete", "would be deleted", found)
	}
	if !s.Yes {
		if err := e.agrees(fmt.Sprintf("delete %s with logs and files for good?", count(len(found), "session", "sessions"))); err != nil {
			return err
		}
	}
	for i, one := range found {
		err := c.DeleteSession(e.ctx, one.ID, holdfast.EndSession{Purge: true})
		if err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			return goOn(err, "%s deleted; the same command goes on", count(i, "session was", "sessions were"))
		}
	}
	return s.say(e, "deleted", "deleted", found)
}

// say prints the sessions that were deleted, or would be.
func (*sessionPruneCmd) say(e *env, key, what string, found []holdfast.Session) error {
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
