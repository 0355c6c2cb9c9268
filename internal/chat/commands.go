package chat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// command is a command that the user types as a line with a slash. do carries it out at once; if
// do is nil or returns nil, ask calls the server and its lines are shown.
type command struct {
	name, arg, help string
	do              func(t *Talk, arg string) []Effect
	ask             func(ctx context.Context, c *client.Client, s holdfast.Session, arg string) ([]plain.Line, error)
	// early is true if the command works before there is a session.
	early bool
	// values returns the values that Tab offers for the argument.
	values func(ctx context.Context, c *client.Client) []string
}

// commands returns all commands, in the order of the help.
func commands() []command {
	return []command{
		{name: "/status", help: "the session, its turns and what waits", ask: showSession},
		{name: "/cost", help: "what the session used up, and its budgets", ask: showCost},
		{name: "/files", arg: "[DIR]", help: "the files of the workspace", ask: showFiles},
		{name: "/diff", arg: "[A [B]]", help: "what changed in the files since the start, since checkpoint A, or from A to B, as in /diff #2 #3; /diff stat counts lines", do: (*Talk).diff},
		{name: "/cp", arg: "SRC DST", help: "copy files; the session's path has a colon before it: /cp :report.md .", do: (*Talk).copy},
		{name: "/rewind", arg: "[TURNS]", help: "go back by one turn or more, with the files; in a named workspace or a directory of your own they stay, but for /rewind 1 --files", do: rewind},
		{name: "/fork", arg: "[TITLE]", help: "go on in a new session that has all of this one", do: fork},
		{name: "/model", arg: "[NAME]", help: "the models, or another model from the next turn on", ask: showModels, do: (*Talk).setModel, early: true, values: modelNames},
		{name: "/mode", arg: "[MODE]", help: "the permission mode, or another one", do: (*Talk).setMode, early: true, values: func(context.Context, *client.Client) []string { return modeNames() }},
		{name: "/sessions", help: "the latest sessions", ask: showSessions, early: true},
		{name: "/verbose", help: "show changes, output and thinking whole; again: as usual", do: detail(plain.Verbose), early: true},
		{name: "/quiet", help: "show no tools; again: as usual", do: detail(plain.Quiet), early: true},
		{name: "/interrupt", help: "end the running turn; Ctrl-C does the same", do: func(t *Talk, _ string) []Effect { return t.stop(false) }},
		{name: "/help", help: "this list", do: help, early: true},
		{name: "/quit", help: "leave; the session stays. Ctrl-D does the same", do: func(t *Talk, _ string) []Effect { return t.Leave(0) }, early: true},
	}
}

// command carries out a line that begins with a slash.
func (t *Talk) command(text string) []Effect {
	name, arg, _ := strings.Cut(text, " ")
	arg = strings.TrimSpace(arg)
	if name == "/exit" {
		name = "/quit"
	}
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if i < 0 {
		out := []Effect{say("there is no command %s; /help lists the commands, and // sends a message that begins with a slash", plain.Cut(name, 60))}
		if t.Echo { // the text may be a message that begins with a file path: put it back into the editor
			out = append(out, Restore{text})
		}
		return out
	}
	c := all[i]
	if t.Create != nil && !c.early {
		return []Effect{say("there is no session yet: your first message makes it")}
	}
	if c.do != nil {
		if out := c.do(t, arg); out != nil || c.ask == nil {
			return out
		}
	}
	s := t.Session
	return t.call(callLimit, func(ctx context.Context, cl *client.Client) Input {
		lines, err := c.ask(ctx, cl, s, arg)
		return func(t *Talk) []Effect {
			if err != nil {
				return []Effect{trouble(err)}
			}
			if c.name == "/status" {
				lines = append(lines, t.pending.status(t.running != "")...)
			}
			return []Effect{Show(lines)}
		}
	})
}

func help(t *Talk, _ string) []Effect {
	var out Show
	if t.Echo {
		for _, l := range keysHelp {
			out = append(out, plain.Line{Text: l})
		}
	}
	for _, c := range commands() {
		out = append(out, plain.Line{Text: fmt.Sprintf("%-16s %s", strings.TrimSpace(c.name+" "+c.arg), c.help)})
	}
	return []Effect{append(out, plain.Line{Text: fmt.Sprintf("%-16s %s", "//TEXT", "send a message that begins with a slash")})}
}

// keysHelp describes the keys of the editor that do not do the same in every editor.
var keysHelp = []string{
	"Enter            send; a backslash before it, or Alt-Enter: another line",
	"Up, Ctrl-R       what was sent before; look for it",
	"Tab, Ctrl-E      complete a command; write in $EDITOR",
	"Ctrl-C           end the turn; again: leave",
}

// detail returns a command that switches to a level of detail, or back to the normal one if it
// is on already.
func detail(d plain.Detail) func(*Talk, string) []Effect {
	return func(t *Talk, _ string) []Effect {
		if t.Teller.Detail == d {
			t.Teller.Detail = plain.Normal
			return []Effect{say("tools are shown with the last lines of their output")}
		}
		t.Teller.Detail = d
		if d == plain.Quiet {
			return []Effect{say("tools are not shown; /quiet again shows them")}
		}
		return []Effect{say("changes, output and thinking are shown whole; /verbose again folds them")}
	}
}

func showSession(ctx context.Context, c *client.Client, s holdfast.Session, _ string) ([]plain.Line, error) {
	s, err := c.Session(ctx, s.ID)
	return data(plain.Session(s)), err
}

func showCost(ctx context.Context, c *client.Client, s holdfast.Session, _ string) ([]plain.Line, error) {
	u, err := c.Usage(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	spent := holdfast.Spent{Usage: u.Usage, Calls: u.Calls, Turns: u.Turns, DurationMS: u.DurationMS}
	lines := []string{"the session: " + plain.Spent(spent) + ", " + plain.Lasted(float64(u.DurationMS))}
	if u.Running != nil {
		lines = append(lines, "this turn:   "+plain.Spent(*u.Running))
	}
	if b := plain.Budget(u.Budget); b != "" {
		lines = append(lines, "budget:      "+b)
	}
	if b := plain.Budget(u.TurnBudget); b != "" {
		lines = append(lines, "turn budget: "+b)
	}
	return data(lines), nil
}

func showFiles(ctx context.Context, c *client.Client, s holdfast.Session, dir string) ([]plain.Line, error) {
	list, err := c.ListFiles(ctx, s.ID, dir)
	if err != nil {
		return nil, err
	}
	out := data(plain.Files(list))
	if more := plain.FilesCut(list); more != "" {
		out = append(out, plain.Line{Text: more})
	}
	return out, nil
}

func showModels(ctx context.Context, c *client.Client, s holdfast.Session, _ string) ([]plain.Line, error) {
	m, err := c.Models(ctx)
	if err != nil {
		return nil, err
	}
	out := data([]string{"model " + plain.OneLine(cmp.Or(s.Model, m.Default))})
	for _, name := range namesOf(m) {
		out = append(out, plain.Line{Kind: plain.Data, Text: "  " + plain.OneLine(name)})
	}
	return append(out, plain.Line{Text: "/model NAME changes it"}), nil
}

// namesOf returns the names of all models that a server's providers list.
func namesOf(m holdfast.Models) (out []string) {
	for _, p := range m.Providers {
		out = append(out, p.Models...)
	}
	return out
}

func modelNames(ctx context.Context, c *client.Client) []string {
	m, err := c.Models(ctx)
	if err != nil {
		return nil
	}
	return namesOf(m)
}

func modeNames() (out []string) {
	for _, m := range holdfast.Words[holdfast.Mode]() {
		out = append(out, string(m))
	}
	return out
}

func showSessions(ctx context.Context, c *client.Client, s holdfast.Session, _ string) ([]plain.Line, error) {
	page, err := c.Sessions(ctx, holdfast.SessionFilter{Limit: 15})
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for i, id := range plain.ShortIDs(page.Sessions) {
		one := page.Sessions[i]
		mark := ""
		if one.ID == s.ID {
			mark = "*"
		}
		rows = append(rows, []string{mark, id, string(one.Status), plain.When(one.LastActiveAt), plain.Cut(plain.OneLine(one.Title), 40)})
	}
	out := data(plain.Table([]string{"", "ID", "STATUS", "LAST ACTIVE", "TITLE"}, rows))
	return append(out, plain.Line{Text: "another one: /quit, then holdfast chat ID"}), nil
}

// setModel changes the model; without a name it returns nil, so that the models are shown.
func (t *Talk) setModel(name string) []Effect {
	if name == "" {
		return nil
	}
	return t.update(holdfast.UpdateSession{Model: &name}, func(c *holdfast.CreateSession) { c.Model = name }, "model "+name)
}

// setMode changes the permission mode; without a name it shows the current one.
func (t *Talk) setMode(mode string) []Effect {
	if mode == "" {
		now := string(t.Session.Mode)
		if t.Create != nil {
			now = cmp.Or(t.Create.Mode, "the server's default")
		}
		return []Effect{say("mode %s; /mode MODE changes it: %s", now, strings.Join(modeNames(), ", "))}
	}
	return t.update(holdfast.UpdateSession{Mode: &mode}, func(c *holdfast.CreateSession) { c.Mode = mode }, "mode "+mode)
}

// update changes the session on the server, or, before the session exists, the request to create it.
func (t *Talk) update(req holdfast.UpdateSession, early func(*holdfast.CreateSession), what string) []Effect {
	if t.Create != nil {
		create := *t.Create
		early(&create)
		t.Create = &create
		return []Effect{say("%s, once your first message makes the session", what)}
	}
	id := t.Session.ID
	return t.call(callLimit, func(ctx context.Context, c *client.Client) Input {
		s, err := c.UpdateSession(ctx, id, req)
		return func(t *Talk) []Effect {
			if err != nil {
				return []Effect{trouble(err)}
			}
			t.Session = s
			return []Effect{say("%s", what)}
		}
	})
}

func data(lines []string) (out []plain.Line) {
	for _, l := range lines {
		out = append(out, plain.Line{Kind: plain.Data, Text: l})
	}
	return out
}
