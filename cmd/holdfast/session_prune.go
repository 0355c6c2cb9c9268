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

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionPruneCmd) Help() string {
	return `Moves them to the trash. Asks first on a terminal; elsewhere --yes is needed.

Examples:
  holdfast session prune --ended --older 30d --dry-run
  holdfast session prune --ended --tag nightly --yes`
}

// Run moves ended sessions to the trash, or with --purge removes them for good.
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
	r := removing{found: found, dry: s.DryRun, yes: s.Yes, question: question, key: key, what: what}
	return r.run(e, func(id holdfast.SessionID) error {
		return c.DeleteSession(e.ctx, id, holdfast.EndSession{Purge: s.Purge})
	})
}

// removing is a command that removes several sessions: the sessions that it found, its flags, and the texts for the
// question and the result.
type removing struct {
	found     []holdfast.Session
	dry, yes  bool
	question  string
	key, what string
	// spaces are deleted workspaces whose files are removed too, by calling empty.
	spaces []holdfast.DeletedWorkspace
	empty  func() error
}

// run asks the user, unless --yes was given, and calls remove for each session. A dry run only prints what would be
// removed.
func (r removing) run(e *env, remove func(holdfast.SessionID) error) error {
	if r.dry || len(r.found)+len(r.spaces) == 0 {
		return r.say(e, "would_be_"+r.key, "would be "+r.what)
	}
	if !r.yes {
		if err := e.agrees(fmt.Sprintf(r.question, r.all())); err != nil {
			return err
		}
	}
	for i, one := range r.found {
		if err := remove(one.ID); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			return goOn(err, "%s %s; the same command goes on", count(i, "session was", "sessions were"), r.what)
		}
	}
	if len(r.spaces) > 0 {
		if err := r.empty(); err != nil {
			return err
		}
	}
	return r.say(e, r.key, r.what)
}

// all returns the number of sessions and workspaces that will be removed, as text.
func (r removing) all() string {
	sessions := count(len(r.found), "session", "sessions")
	if len(r.spaces) == 0 {
		return sessions
	}
	return sessions + " and " + count(len(r.spaces), "deleted workspace", "deleted workspaces")
}

// say prints the sessions and workspaces that were removed, or, in a dry run, would be removed.
func (r removing) say(e *env, key, what string) error {
	if e.json {
		ids, spaces := []holdfast.SessionID{}, []holdfast.Slug{}
		for _, one := range r.found {
			ids = append(ids, one.ID)
		}
		for _, one := range r.spaces {
			spaces = append(spaces, one.ID)
		}
		doc := map[string]any{key: ids}
		if r.spaces != nil {
			doc[key+"_workspaces"] = spaces
		}
		return e.print(doc)
	}
	for i, short := range plain.ShortIDs(r.found) {
		fmt.Fprintf(e.stdout, "%s %s  %s\n", what, short, strings.TrimSpace(when(r.found[i].LastActiveAt)+"  "+cut(line(r.found[i].Title), 60)))
	}
	for _, one := range r.spaces {
		fmt.Fprintf(e.stdout, "%s: the files of workspace %s\n", what, one.ID)
	}
	return e.say(nil, "%s %s", r.all(), what)
}

// days parses a duration as time.ParseDuration does, or whole days such as 30d.
func days(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	const day, most = 24 * time.Hour, 100 * 365 * 24 * time.Hour
	d, err := time.ParseDuration(s)
	if n, ok := strings.CutSuffix(s, "d"); ok {
		var whole int
		whole, err = strconv.Atoi(n)
		d = time.Duration(max(-1, min(whole, int(most/day)+1))) * day // more days might not fit a Duration
	}
	if err != nil || d < 0 || d > most {
		return 0, holdfast.Errorf(holdfast.KindInvalid, "session prune", "--older %s is not a duration from 0 to 100 years", holdfast.Quote(s)).WithHint("write a duration such as 30d or 12h")
	}
	return d, nil
}

// agrees asks the user at the terminal, and returns an error unless the answer is yes. Without a
// terminal, or with --json, it fails with KindInvalid: --yes is needed.
func (e *env) agrees(question string) error {
	if !isTerminal(e.stdin) || e.json {
		return holdfast.Errorf(holdfast.KindInvalid, "", "%s: this needs a confirmation, and there is no terminal to ask on", strings.TrimSuffix(question, "?")).WithHint("add --yes")
	}
	fmt.Fprintf(e.stderr, "%s [y/N] ", line(question))
	answer, err := bufio.NewReader(e.stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); err != nil || a != "y" && a != "yes" {
		e.note("nothing was deleted")
		return &exitError{1}
	}
	return nil
}
