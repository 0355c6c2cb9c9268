package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type sessionCmd struct {
	Create     sessionCreateCmd     `cmd:"" aliases:"new" help:"Create a session; prints its id."`
	List       sessionListCmd       `cmd:"" aliases:"ls" help:"List sessions, newest first."`
	Search     sessionSearchCmd     `cmd:"" help:"Search titles and conversations, newest sessions first."`
	Show       sessionShowCmd       `cmd:"" help:"Show a session."`
	Update     sessionUpdateCmd     `cmd:"" help:"Change trust, mode, model, runtime, budgets or network."`
	Pause      sessionPauseCmd      `cmd:"" help:"Pause a session; a message resumes it."`
	Resume     sessionResumeCmd     `cmd:"" help:"Resume a session; says what was kept and what was lost."`
	Points     pointsCmds           `embed:""`
	Interrupt  sessionInterruptCmd  `cmd:"" help:"End the running turn; the session stays usable."`
	End        sessionEndCmd        `cmd:"" help:"End a session for good; its files stay."`
	Delete     sessionDeleteCmd     `cmd:"" aliases:"rm" help:"End a session and move it to the trash."`
	Prune      sessionPruneCmd      `cmd:"" help:"Move sessions that ended to the trash."`
	Rename     sessionRenameCmd     `cmd:"" help:"Change the title."`
	Tag        sessionTagCmd        `cmd:"" help:"Add and remove tags, or set them all; none clears them."`
	Transcript sessionTranscriptCmd `cmd:"" help:"Print the conversation."`
	Diff       sessionDiffCmd       `cmd:"" help:"Print what changed in the files since the session started, as a patch."`
	Events     sessionEventsCmd     `cmd:"" help:"Print the log; one JSON object a line with --json."`
}

// pointsCmds are the commands for the checkpoints of a session.
type pointsCmds struct {
	Checkpoints sessionCheckpointsCmd `cmd:"" help:"List the points that a session can return to, newest first."`
	Rewind      sessionRewindCmd      `cmd:"" help:"Go back to a checkpoint, with conversation and files; can be undone."`
	Hold        sessionHoldCmd        `cmd:"" help:"Hold a checkpoint, so that the server never removes it by its rules."`
	Release     sessionReleaseCmd     `cmd:"" help:"Release a checkpoint that is held."`
	Fork        sessionForkCmd        `cmd:"" help:"Make a new session that continues from a checkpoint; prints its id."`
}

type sessionCreateCmd struct {
	New newSession `embed:""`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionCreateCmd) Help() string {
	return `--from and --git start the session with a copy of a repository or of any directory. The session accepts messages only when the copy is complete; after an interruption, the same command continues the copy. git clones on this machine, as you, without hooks, submodules and filters.

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
	req, err := s.New.request()
	if err != nil {
		return err
	}
	created, err := s.New.create(e, c, req, s.New.Key)
	if err != nil {
		return err
	}
	if s.New.Trust != "" {
		e.warnTrust(created.Trust, runsAs(created))
	}
	e.noteDouble(created.Model)
	e.remember(created.ID)
	return e.say(map[string]any{"session": created}, "%s", created.ID)
}

// warnTrust warns on stderr if a session is trusted; as says as which user its tools run.
func (e *env) warnTrust(t holdfast.Trust, as string) {
	_ = e.printer().Print(trustLines(t, as)...) // writes to stderr; an error of that is ignored
}

// trustLines returns the warning of warnTrust as lines, or nil for an untrusted session.
func trustLines(t holdfast.Trust, as string) []plain.Line {
	if t != holdfast.Trusted {
		return nil
	}
	return []plain.Line{{Text: "trusted: its tools run " + as + " on the host, without a box, and can do all that user can; path rules are judged by the text of a call, nothing enforces them"}}
}

// runsAs says as which user the tools of a trusted session run.
func runsAs(s holdfast.Session) string {
	if s.Workspace == "" {
		return "as the server's user (as root if the server is root's)"
	}
	return "as the server's user (if that is root, as the owner of the workspace's files)"
}

// runsAsAny is the text of runsAs for sessions that do not exist yet, with or without a workspace.
const runsAsAny = "as the server's user (in a workspace of a root server, as the owner of its files)"

type sessionListCmd struct {
	Status    string `placeholder:"STATUS" help:"Only this status."`
	Agent     string `placeholder:"NAME" help:"Only this agent."`
	Tag       string `placeholder:"TAG" help:"Only with this tag."`
	Workspace string `placeholder:"SLUG" help:"Only of this workspace."`
	Text      string `placeholder:"TEXT" help:"Only with this in the title."`
	Query     string `placeholder:"WORDS" help:"Only with these words in title or conversation."`
	Limit     int    `short:"n" default:"50" help:"How many at most; 0 is all."`
	Cursor    string `placeholder:"CURSOR" help:"Go on where a list ended: its next."`
	Quiet     bool   `short:"q" help:"Print ids alone, whole."`
	Trash     bool   `kong:"-"`
}

// Help returns the text that the help shows below the one-line description of the command.
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
	for i, short := range plain.ShortIDs(list.Sessions) {
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

// page fetches pages of the server's list until it has --limit sessions, or all if that is 0, and returns them as one
// page.
func (s *sessionListCmd) page(e *env, c *client.Client) (holdfast.SessionPage, error) {
	const most = 500
	all := holdfast.SessionPage{Sessions: []holdfast.Session{}, Next: s.Cursor}
	f := holdfast.SessionFilter{Status: s.Status, Agent: s.Agent, Tag: s.Tag, Workspace: holdfast.Slug(s.Workspace), Text: s.Text, Query: s.Query, Trash: s.Trash}
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

// agentState describes in one line the state of an agent that stores a conversation of its own.
func agentState(a holdfast.AgentState) string {
	s := fmt.Sprintf("%d: %s %s, %s, knows %d turns up to event %d", a.Generation, strings.TrimSpace(a.Runtime+" "+a.Version), a.AgentID, a.Health, a.Turns, a.Upto)
	if a.Call != "" {
		s += fmt.Sprintf(", call %s in box %s", a.Call, a.Box)
	}
	return s
}

func (e *env) showSession(s holdfast.Session) error {
	if e.json {
		return e.print(map[string]any{"session": s})
	}
	return e.lines(plain.Session(s))
}
