package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

type sessionCmd struct {
	Create     sessionCreateCmd     `cmd:"" aliases:"new" help:"Create a session; prints its id."`
	List       sessionListCmd       `cmd:"" aliases:"ls" help:"List sessions, newest first."`
	Search     sessionSearchCmd     `cmd:"" help:"Search titles and conversations, newest sessions first."`
	Show       sessionShowCmd       `cmd:"" help:"Show a session."`
	Update     sessionUpdateCmd     `cmd:"" help:"Change trust, mode, model or runtime."`
	Pause      sessionPauseCmd      `cmd:"" help:"Pause a session; a message resumes it."`
	Resume     sessionResumeCmd     `cmd:"" help:"Resume a session; says what was kept and what was lost."`
	Interrupt  sessionInterruptCmd  `cmd:"" help:"End the running turn; the session stays usable."`
	End        sessionEndCmd        `cmd:"" help:"End a session for good; its files stay."`
	Delete     sessionDeleteCmd     `cmd:"" aliases:"rm" help:"End a session and remove it."`
	Prune      sessionPruneCmd      `cmd:"" help:"Remove sessions that ended, with their logs and files."`
	Rename     sessionRenameCmd     `cmd:"" help:"Change the title."`
	Tag        sessionTagCmd        `cmd:"" help:"Add and remove tags, or set them all; none clears them."`
	Transcript sessionTranscriptCmd `cmd:"" help:"Print the conversation."`
	Diff       sessionDiffCmd       `cmd:"" help:"Print what changed in the files since the session started, as a patch."`
	Events     sessionEventsCmd     `cmd:"" help:"Print the log; one JSON object a line with --json."`
}

type sessionCreateCmd struct {
	Agent   string            `placeholder:"NAME" help:"A deployed agent; the built-in default otherwise."`
	Trust   string            `placeholder:"TRUST" help:"untrusted: tools run in a box. trusted: on the host."`
	Runtime string            `placeholder:"NAME" help:"How the agent runs: native, claude or acp:NAME, as acp:gemini."`
	Model   string            `placeholder:"NAME" help:"The model."`
	Mode    string            `placeholder:"MODE" help:"Permission mode: ${modes}."`
	Env     map[string]string `placeholder:"K=V" mapsep:"none" help:"Environment of its tools; repeatable."`
	ID      string            `name:"id" placeholder:"UUID" help:"Your own id."`
	Title   string            `placeholder:"TEXT" help:"The title."`
	Tag     []string          `placeholder:"TAG" sep:"none" help:"A tag; repeatable."`

	Budget     *string `placeholder:"BOUNDS" help:"What the session may use up, as turns=10,tokens=100000,usd=2.5,seconds=3600, or none."`
	TurnBudget *string `placeholder:"BOUNDS" help:"The same for each turn, whose turns are model calls."`

	AllowNet []string `placeholder:"DOMAIN" sep:"none" help:"A domain that its box may connect to, as pypi.org, *.npmjs.org or example.com:8443; repeatable. The server's network.allow bounds it."`
	NoNet    bool     `help:"Its box may connect to nothing, whatever agent and server name."`

	importFlags

	Key string `name:"idempotency-key" placeholder:"KEY" help:"Makes a repeated command answer with the same session."`
}

// Help is shown below the one-line description.
func (*sessionCreateCmd) Help() string {
	return `--from and --git start the session with a copy of a repository or of any directory. Either all of it is there or the session takes no message; after a break the same command goes on. git clones on this machine, as you, without hooks, submodules and filters.

Examples:
  id=$(holdfast session create --agent reviewer --title "review")
  holdfast session create --from .
  holdfast session create --git https://github.com/you/project#main`
}

// Run creates a session.
func (s *sessionCreateCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	budget, turnBudget, err := budgets(s.Budget, s.TurnBudget)
	if err != nil {
		return err
	}
	created, err := s.create(e, c, holdfast.CreateSession{
		ID: s.ID, Agent: s.Agent, Trust: s.Trust, Runtime: s.Runtime, Model: s.Model, Mode: s.Mode,
		Title: s.Title, Tags: s.Tag, Env: s.Env, Budget: budget, TurnBudget: turnBudget, Network: destinations(s.AllowNet, s.NoNet),
	}, s.Key)
	if err != nil {
		return err
	}
	if s.Trust != "" {
		e.warnTrust(created.Trust)
	}
	e.noteDouble(created.Model)
	e.remember(created.ID)
	return e.say(map[string]any{"session": created}, "%s", created.ID)
}

// destinations is what a session names of the network; nil is nothing said.
func destinations(allow []string, none bool) []string {
	if none && len(allow) == 0 {
		return []string{}
	}
	return allow
}

// warnTrust says what was chosen.
func (e *env) warnTrust(t holdfast.Trust) {
	if t == holdfast.Trusted {
		e.note("trusted: its tools run as the server's user on the host, without a box, and can do all that user can; path rules are judged by the text of a call, nothing enforces them")
	}
}

type sessionListCmd struct {
	Status string `placeholder:"STATUS" help:"Only this status."`
	Agent  string `placeholder:"NAME" help:"Only this agent."`
	Tag    string `placeholder:"TAG" help:"Only with this tag."`
	Text   string `placeholder:"TEXT" help:"Only with this in the title."`
	Query  string `placeholder:"WORDS" help:"Only with these words in title or conversation."`
	Limit  int    `short:"n" default:"50" help:"How many at most; 0 is all."`
	Cursor string `placeholder:"CURSOR" help:"Go on where a list ended: its next."`
	Quiet  bool   `short:"q" help:"Print ids alone, whole."`
}

// Help is shown below the one-line description.
func (*sessionListCmd) Help() string {
	return `The table shows the ending of each id, which is enough to name the session.

Examples:
  holdfast session list --status paused
  holdfast session pause $(holdfast session list -q --tag nightly)`
}

// Run lists sessions.
func (s *sessionListCmd) Run(e *env) error {
	if s.Limit < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "session list", "--limit %d is negative", s.Limit)
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	list, err := s.page(e, c)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(list)
	}
	if s.Quiet {
		for _, one := range list.Sessions {
			fmt.Fprintln(e.stdout, line(string(one.ID)))
		}
		return nil
	}
	var rows [][]string
	for i, short := range shortIDs(list.Sessions) {
		one := list.Sessions[i]
		rows = append(rows, []string{
			short, string(one.Status), string(one.Agent), string(one.Trust),
			strconv.FormatInt(one.CompletedTurns, 10), when(one.LastActiveAt), cut(line(one.Title), 40),
		})
	}
	if err := e.table([]string{"ID", "STATUS", "AGENT", "TRUST", "TURNS", "LAST ACTIVE", "TITLE"}, rows); err != nil {
		return err
	}
	if list.Next != "" {
		e.note("there are more: --limit 0 shows all, --cursor %s goes on", list.Next)
	}
	return nil
}

// page puts pages of the server together up to the limit.
func (s *sessionListCmd) page(e *env, c *client.Client) (holdfast.SessionPage, error) {
	const most = 500
	all := holdfast.SessionPage{Sessions: []holdfast.Session{}, Next: s.Cursor}
	f := holdfast.SessionFilter{Status: s.Status, Agent: s.Agent, Tag: s.Tag, Text: s.Text, Query: s.Query}
	for {
		if f.Cursor, f.Limit = all.Next, most; s.Limit > 0 {
			f.Limit = min(s.Limit-len(all.Sessions), most)
		}
		page, err := c.Sessions(e.ctx, f)
		if err != nil {
			return all, err
		}
		all.Sessions = append(all.Sessions, page.Sessions...)
		if all.Next = page.Next; all.Next == "" || len(all.Sessions) == s.Limit {
			return all, nil
		}
	}
}

type sessionShowCmd struct {
	ID string `arg:"" help:"${session}"`
}

// Run shows a session.
func (s *sessionShowCmd) Run(e *env) error {
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	one, err := c.Session(e.ctx, id)
	if err != nil {
		return err
	}
	agents, err := c.SessionAgents(e.ctx, id)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(map[string]any{"session": one, "agents": agents})
	}
	if err := e.showSession(one); err != nil {
		return err
	}
	for _, a := range agents {
		if _, err := fmt.Fprintf(e.stdout, "%-12s %s\n", "agent state", line(agentState(a))); err != nil {
			return err
		}
	}
	return nil
}

// agentState is one line on what an agent keeps of itself.
func agentState(a holdfast.AgentState) string {
	s := fmt.Sprintf("%d: %s %s, %s, knows %d turns up to event %d", a.Generation, strings.TrimSpace(a.Runtime+" "+a.Version), a.AgentID, a.Health, a.Turns, a.Upto)
	if a.Call != "" {
		s += fmt.Sprintf(", call %s in box %s", a.Call, a.Box)
	}
	return s
}

// showNetwork is one line on what a session names of the network.
func showNetwork(list []string) string {
	if list != nil && len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

func (e *env) showSession(s holdfast.Session) error {
	if e.json {
		return e.print(map[string]any{"session": s})
	}
	parked := ""
	if s.ParkedUntil != nil {
		parked = when(*s.ParkedUntil)
	}
	rows := [][2]string{
		{"id", string(s.ID)},
		{"status", string(s.Status)},
		{"error", s.Error},
		{"title", s.Title},
		{"tags", strings.Join(s.Tags, ", ")},
		{"agent", string(s.Agent) + " " + short(string(s.AgentVersion))},
		{"trust", string(s.Trust)},
		{"runtime", s.Runtime},
		{"model", s.Model},
		{"mode", string(s.Mode)},
		{"env", strings.Join(slices.Sorted(maps.Keys(s.Env)), ", ")},
		{"turns", fmt.Sprintf("%d completed", s.CompletedTurns)},
		{"events", strconv.FormatInt(s.LastSeq, 10)},
		{"created", when(s.CreatedAt)},
		{"spent", showSpent(s.Spent)},
		{"budget", showBudget(s.Budget)},
		{"turn budget", showBudget(s.TurnBudget)},
		{"network", showNetwork(s.Network)},
		{"parked until", parked},
		{"last active", when(s.LastActiveAt)},
	}
	for _, r := range rows {
		if r[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(e.stdout, "%-12s %s\n", r[0], line(r[1])); err != nil {
			return err
		}
	}
	return nil
}
