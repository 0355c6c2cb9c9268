package main

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/chat"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type chatCmd struct {
	Session  string     `arg:"" optional:"" name:"id" help:"${session} Without it, the first message makes a new one."`
	Continue bool       `short:"c" xor:"which" help:"Go on with your last session."`
	Resume   bool       `short:"r" xor:"which" help:"Choose a session from a list."`
	New      newSession `embed:""`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*chatCmd) Help() string {
	return `On a terminal, Enter sends what you typed; Alt-Enter, or a backslash at the end, begins another line; Ctrl-E opens $EDITOR. Up and Ctrl-R find what you sent before, Tab completes commands. What is sent while a turn runs waits for its end. When a tool has to be allowed, the chat asks: y allows it once, s in this session, w in this workspace (each with a rule of yours behind it, if you like), e edits the rule, n with a reason denies it. Ctrl-C interrupts the turn, a second one leaves; the session stays. When the server restarts, the chat waits for it and goes on.

With TERM=dumb, or when stdout is no terminal, each line is a message. Without a terminal on stdin, lines come from there one after the other, each when the turn before it has ended; the command ends with 1 if a turn failed.

Lines that begin with a slash are commands; /help lists them. Flags other than --continue and --resume describe the new session.

Examples:
  holdfast chat
  holdfast chat --dir .                # on your own files, in a box
  holdfast chat --continue
  holdfast chat 01a1
  printf 'first\nsecond\n' | holdfast chat 01a1`
}

// Run runs the chat until the user leaves.
func (c *chatCmd) Run(e *env) error {
	// Ctrl-C cancels e.ctx, but in a chat it interrupts the turn: so ctx does not follow e.ctx.
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.ctx))
	defer cancel()
	keys := make(chan os.Signal, 4)
	signal.Notify(keys, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(keys)

	talk := &chat.Chat{
		Stdin: e.stdin, Person: isTerminal(e.stdin), JSON: e.json,
		Printer: e.printer(), PrintJSON: func(ev holdfast.Event) error { return e.print(ev) },
		Client: e.clientWith, Remember: e.remember, About: c.about(e), NewKey: newKey, Signals: keys, Key: c.New.Key,
	}
	if c.Session == "" && !c.Continue && !c.Resume && !talk.Person {
		in := bufio.NewReader(e.stdin)
		if _, err := in.Peek(1); err != nil {
			e.note("nothing came on stdin: no session was made")
			return nil
		}
		talk.Stdin = in
	}
	talk.Copy, talk.Compare = e.copyInChat, comparisonOf
	e.screen(talk)
	if found, err := c.find(ctx, e, talk); err != nil || !found {
		return err
	}
	out, err := c.talk(ctx, e, talk)
	switch {
	case err != nil:
		return err
	case out.Lost != nil:
		return goOn(out.Lost, "messages that the server confirmed are carried out; to come back: holdfast chat %s", out.Session)
	case out.Code != 0:
		return &exitError{out.Code}
	}
	return nil
}

// copyInChat copies between the local disk and a session; a path that begins with a colon is
// the session's. It prints nothing: the screen is the chat's.
func (e *env) copyInChat(ctx context.Context, id holdfast.SessionID, src, dst string) ([]string, error) {
	silent := *e
	silent.ctx, silent.json, silent.stdin, silent.stdout = ctx, true, strings.NewReader(""), io.Discard
	from, in := strings.CutPrefix(src, ":")
	to, out := strings.CutPrefix(dst, ":")
	if in == out || src == "-" || dst == "-" {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "cp", "exactly one of %s and %s has to be a path of the session, with a colon before it", holdfast.Quote(src), holdfast.Quote(dst)).
			WithHint("/cp :report.md . copies out of the session, /cp data.csv :in/ into it")
	}
	var sum holdfast.Copied
	var err error
	if in {
		sum, err = silent.copyOut(string(id), from, dst, true)
	} else {
		sum, err = silent.copyIn(src, string(id), to, true)
	}
	if err != nil {
		return nil, err
	}
	return append(leftLines(sum), copiedLine(sum)), nil
}

// talk runs the chat on the screen if the terminal has one, else line by line.
func (c *chatCmd) talk(ctx context.Context, e *env, talk *chat.Chat) (chat.Outcome, error) {
	if !hasScreen(e) {
		return talk.Lines(ctx, isTerminal(e.stdout))
	}
	return talk.OnScreen(ctx)
}

// hasScreen reports whether stdin and stdout are a terminal whose cursor can be moved, and --json is not set.
func hasScreen(e *env) bool {
	term := e.getenv("TERM")
	return !e.json && isTerminal(e.stdin) && isTerminal(e.stdout) && term != "dumb" && term != ""
}

// screen sets talk.Screen: the terminal, its colours and environment, and the user's editor.
func (e *env) screen(talk *chat.Chat) {
	talk.Screen = chat.Terminal{Color: e.color, Env: os.Environ(), Edit: func(path string) *exec.Cmd {
		name := strings.Fields(cmp.Or(strings.TrimSpace(e.getenv("VISUAL")), strings.TrimSpace(e.getenv("EDITOR")), "vi"))
		return exec.Command(name[0], append(name[1:], path)...)
	}}
	if o, ok := e.stdout.(*output); ok {
		talk.Screen.Out, _ = o.w.(*os.File) // nil if stdout is not a file; hasScreen is false then
	}
}

// about returns a function that gives the warnings for a session of a chat: that the session is trusted, if --trust was
// given or the session is a fork, and, without --json, that its model is the test double.
func (c *chatCmd) about(e *env) func(s holdfast.Session, forked bool) []plain.Line {
	return func(s holdfast.Session, forked bool) (out []plain.Line) {
		if c.New.Trust != "" || forked {
			out = trustLines(s.Trust, runsAs(s))
		}
		if !e.json {
			out = append(out, doubleLines(s.Model)...)
		}
		return out
	}
}

// find stores in talk the session to open, or the description of the one that the first message
// creates. found is false if the user left the list without choosing a session.
func (c *chatCmd) find(ctx context.Context, e *env, talk *chat.Chat) (found bool, err error) {
	named := c.Session
	switch {
	case named != "" && (c.Continue || c.Resume):
		return false, holdfast.Errorf(holdfast.KindInvalid, "chat", "the session is chosen both by the name %s and by --continue or --resume", holdfast.Quote(named)).
			WithHint("leave out --continue and --resume, or the session's name")
	case c.Resume && !hasScreen(e):
		return false, holdfast.Errorf(holdfast.KindInvalid, "chat", "--resume shows a list to choose from and needs a terminal").
			WithHint("holdfast session list, then holdfast chat ID")
	case c.Continue:
		named = lastName
	}
	if c.New.given() && (named != "" || c.Resume) {
		typed := holdfast.Quote(named)
		switch {
		case c.Resume:
			typed, named = "--resume", "ID"
		case c.Continue:
			typed = "--continue"
		}
		return false, holdfast.Errorf(holdfast.KindInvalid, "chat", "%s opens an existing session: flags for new sessions do not change it", typed).
			WithHint("holdfast session update %s --help", word(named))
	}
	fresh := named == "" && !c.Resume
	// With --dir, --from or --git the session is created now, not by the first message: a directory that
	// cannot be used is refused before the user types anything.
	if fresh && !c.New.imports() && c.New.Dir == "" {
		req, err := c.New.request()
		talk.Create = &req
		return err == nil, err
	}
	cl, err := e.client()
	if err != nil {
		return false, err
	}
	if fresh {
		req, err := c.New.request()
		if err == nil {
			talk.Session, err = c.New.create(e, cl, req, c.New.Key)
		}
		return err == nil, err
	}
	if c.Resume {
		return choose(ctx, talk, cl)
	}
	id, err := e.resolve(cl, named)
	if err == nil {
		talk.Session, err = cl.Session(e.ctx, id)
	}
	return err == nil, err
}

// choose lets the user pick one of the newest sessions and stores it in talk. It returns false
// if none was picked.
func choose(ctx context.Context, talk *chat.Chat, cl *client.Client) (bool, error) {
	page, err := cl.Sessions(ctx, holdfast.SessionFilter{Limit: 100})
	if err != nil {
		return false, err
	}
	if len(page.Sessions) == 0 {
		return false, holdfast.Errorf(holdfast.KindNotFound, "chat", "the server has no session to choose").WithHint("holdfast chat begins a new session")
	}
	s, err := talk.Pick(ctx, page.Sessions)
	if s != nil {
		talk.Session = *s
	}
	return s != nil, err
}
