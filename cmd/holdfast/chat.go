package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

type chatCmd struct {
	ID    string `arg:"" optional:"" help:"${session} Without it a new one is made."`
	Agent string `placeholder:"NAME" help:"The new session's agent."`
	Trust string `placeholder:"TRUST" help:"The new session's trust: untrusted or trusted."`
	Model string `placeholder:"NAME" help:"The new session's model."`
	Mode  string `placeholder:"MODE" help:"The new session's permission mode: ${modes}."`
	Title string `placeholder:"TEXT" help:"The new session's title."`
}

// Help is shown below the one-line description.
func (*chatCmd) Help() string {
	return `Each line is a message. What is sent while a turn runs waits for its end. When a tool has to be allowed, the chat asks: y allows it once, s in this session, w in this workspace (each with a rule of yours behind it, if you like), n with a reason denies it. Ctrl-C interrupts the turn, a second one leaves; the session stays. When the server restarts, the chat waits for it and goes on. Without a terminal, lines come from stdin one after the other, each when the turn before it has ended; the command ends with 1 if a turn failed.

Lines that begin with a slash: /help, /status, /files [DIR], /interrupt, /quit.

Examples:
  holdfast chat
  holdfast chat 01a1
  printf 'first\nsecond\n' | holdfast chat 01a1`
}

// patience is how long a chat waits for a server that went away.
const patience = 24 * time.Hour

// Run talks until the user leaves.
func (c *chatCmd) Run(e *env) error {
	// The first Ctrl-C ends e.ctx; here it belongs to the turn.
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.ctx))
	defer cancel()
	keys := make(chan os.Signal, 4)
	signal.Notify(keys, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(keys)

	t := &talk{
		e: e, ctx: ctx, person: isTerminal(e.stdin), link: make(chan client.Wait, 16),
		view: e.view(isTerminal(e.stdout)), open: map[holdfast.TurnID]bool{}, ended: map[holdfast.TurnID]bool{},
	}
	if c.ID == "" && !t.person {
		in := bufio.NewReader(e.stdin)
		if _, err := in.Peek(1); err != nil {
			e.note("nothing came on stdin: no session was made")
			return nil
		}
		e.stdin = in
	}
	if err := c.session(t); err != nil {
		return err
	}
	e.remember(t.session.ID)
	e.noteDouble(t.session.Model)
	t.view.teller.Double, t.view.teller.Asks = nil, t.person
	return t.loop(keys)
}

// session finds the session or makes one.
func (c *chatCmd) session(t *talk) (err error) {
	e := t.e
	waiting := func(w client.Wait) {
		select {
		case t.link <- w:
		case <-t.ctx.Done():
		}
	}
	t.stream, err = e.clientWith(client.Config{ReconnectFor: patience, Waiting: waiting})
	if err != nil {
		return err
	}
	// Messages are repeated here, where it can be said that they wait.
	if t.c, err = e.clientWith(client.Config{ReconnectFor: time.Nanosecond, Waiting: func(w client.Wait) {
		if w.Err == nil && !w.Over {
			waiting(w) // the stream reports the rest
		}
	}}); err != nil {
		return err
	}
	if c.ID != "" {
		if *c != (chatCmd{ID: c.ID}) {
			return holdfast.Errorf(holdfast.KindInvalid, "chat", "%s exists: its settings are not given here", holdfast.Quote(c.ID)).
				WithHint("holdfast session update %s --help", c.ID)
		}
		id, err := e.resolve(t.c, c.ID)
		if err == nil {
			t.session, err = t.c.Session(t.ctx, id)
		}
		return err
	}
	t.session, err = t.c.CreateSession(t.ctx, holdfast.CreateSession{
		Agent: c.Agent, Trust: c.Trust, Model: c.Model, Mode: c.Mode, Title: c.Title,
	}, "")
	if err == nil && c.Trust != "" {
		e.warnTrust(t.session.Trust)
	}
	return err
}

// talk is one chat. Its fields belong to the goroutine of loop.
type talk struct {
	e       *env
	ctx     context.Context
	c       *client.Client // calls
	stream  *client.Client // follows the log
	session holdfast.Session
	person  bool // somebody types: show a prompt, take lines at any time
	view    *turnView
	link    chan client.Wait // the client waits for the server, or it is back

	waiting int                      // messages that the server has not confirmed
	open    map[holdfast.TurnID]bool // our turns that have not ended
	ended   map[holdfast.TurnID]bool // ends that may come before the confirmation
	running holdfast.TurnID
	// questions wait for an answer of this person, the longest asked first.
	questions []holdfast.Approval
	asked     bool // an interrupt was asked for
	leaving   bool // Ctrl-C was pressed while nothing ran
	prompted  bool
	failed    bool
}

// heard is an event of the log, or the end of it.
type heard struct {
	ev  holdfast.Event
	err error
}

// sent is what became of a message.
type sent struct {
	turn holdfast.TurnID
	held error // not yet: it is tried again
	err  error
}

func (t *talk) loop(keys <-chan os.Signal) error {
	t.e.note("session %s (%s, model %s); /help lists what else you can type", t.session.ID, t.session.Trust, t.session.Model)
	events, lines := make(chan heard), make(chan string)
	out, results := make(chan string, 1024), make(chan sent)
	go t.listen(events)
	go t.read(lines)
	go t.send(out, results)
	t.recall()
	for {
		take := lines
		if idle := t.waiting == 0 && len(t.open) == 0; (idle || len(t.questions) > 0) && t.person && !t.prompted {
			t.prompt()
		} else if !idle && (!t.person || lines == nil) {
			take = nil
		} else if idle && lines == nil {
			return t.leave(0)
		}
		select {
		case h := <-events:
			if h.err != nil {
				return goOn(h.err, "what was sent and confirmed goes on; to come back: holdfast chat %s", t.session.ID)
			}
			if over, err := t.event(h.ev); over || err != nil {
				return err
			}
		case l, ok := <-take:
			t.prompted, t.leaving = false, false
			if !ok && t.person {
				return t.leave(0)
			} else if !ok {
				lines = nil
			} else if over, err := t.line(l, out); over || err != nil {
				return err
			}
		case r := <-results:
			if err := t.confirmed(r); err != nil {
				return err
			}
		case w := <-t.link:
			t.heard(w)
		case s := <-keys:
			if over := t.key(s); over {
				return t.leave(130)
			}
		}
	}
}

// heard reports that the client waits for the server, or that it is back.
func (t *talk) heard(w client.Wait) {
	switch {
	case w.Over:
		t.say("the server is back")
	case w.Err != nil && w.For < time.Second:
		t.say("the server went away; waiting for it: %v", w.Err)
	default:
		t.say("%s", waits(w))
	}
}

// listen passes the log on from where it was when the chat began.
func (t *talk) listen(to chan<- heard) {
	for ev, err := range t.stream.Follow(t.ctx, t.session.ID, t.session.LastSeq) {
		select {
		case to <- heard{ev, err}:
		case <-t.ctx.Done():
			return
		}
	}
}

// read passes lines on. It stays in its last read when the chat ends first.
func (t *talk) read(to chan<- string) {
	defer close(to)
	in := bufio.NewReader(t.e.stdin)
	for {
		l, err := in.ReadString('\n')
		if l != "" {
			select {
			case to <- strings.TrimRight(l, "\r\n"):
			case <-t.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// send sends messages in order. A key makes it safe to send one again, which is
// done for as long as the server is away.
func (t *talk) send(messages <-chan string, results chan<- sent) {
	tell := func(s sent) bool {
		select {
		case results <- s:
			return true
		case <-t.ctx.Done():
			return false
		}
	}
	for {
		var text string
		select {
		case text = <-messages:
		case <-t.ctx.Done():
			return
		}
		key, err := newKey()
		for told := false; err == nil; {
			var s holdfast.Sent
			if s, err = t.c.Send(t.ctx, t.session.ID, holdfast.SendMessage{Text: text, Key: key}); err == nil {
				if !tell(sent{turn: s.Turn.ID}) {
					return
				}
				break
			}
			if !holdfast.IsKind(err, holdfast.KindUnavailable) {
				break
			}
			if !told && !tell(sent{held: err}) {
				return
			}
			held := err
			told, err = true, nil
			if !t.pause(max(300*time.Millisecond, client.RetryAfter(held))) {
				return
			}
		}
		if err != nil && !tell(sent{err: err}) {
			return
		}
	}
}

// pause waits a little before the next attempt.
func (t *talk) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// event shows an event. over says that there is nothing more to talk about.
func (t *talk) event(ev holdfast.Event) (over bool, err error) {
	switch {
	case ev.Type == holdfast.EventTurnStarted:
		t.running = ev.Turn
	case ev.EndsTurn():
		t.asked = false
		if t.running == ev.Turn {
			t.running = ""
		}
		if t.waiting > 0 {
			t.ended[ev.Turn] = true
		}
		delete(t.open, ev.Turn)
		t.questions = slices.DeleteFunc(t.questions, func(q holdfast.Approval) bool { return q.Turn == ev.Turn })
		t.unprompt()
		if t.e.json {
			return false, t.e.print(ev)
		}
		var exit *exitError
		if err := t.view.end(ev); errors.As(err, &exit) {
			t.failed = true
		} else if err != nil {
			return false, err
		}
		return false, nil
	case ev.Type == holdfast.EventSessionEnded:
		t.say("the session is ended")
		return true, nil
	}
	t.unprompt()
	if err := t.view.event(ev); err != nil {
		return false, err
	}
	return false, t.hear(ev)
}

// line does what a line says: a command, or a message.
func (t *talk) line(l string, out chan<- string) (over bool, err error) {
	text := strings.TrimSpace(l)
	switch {
	case text == "":
		return false, nil
	case strings.HasPrefix(text, "//") && len(t.questions) == 0:
		text = text[1:]
	case strings.HasPrefix(text, "/"):
		return t.command(text)
	case len(t.questions) > 0:
		t.reply(text)
		return false, nil
	}
	if t.waiting >= cap(out) {
		t.say("not sent: %d messages wait for the server already", t.waiting)
		return false, nil
	}
	t.waiting++
	out <- text
	return false, nil
}

func (t *talk) confirmed(r sent) error {
	switch {
	case errors.Is(r.held, holdfast.ErrFull):
		t.say("not sent yet: %v; it goes out when there is a place", r.held)
		return nil
	case r.held != nil:
		t.say("not sent yet: %v; it goes out when the server is back", r.held)
		return nil
	case r.err != nil && (holdfast.IsKind(r.err, holdfast.KindGone) || holdfast.IsKind(r.err, holdfast.KindNotFound)):
		return r.err
	case r.err != nil:
		t.failed = true
		t.trouble(r.err)
	case !t.ended[r.turn]:
		t.open[r.turn] = true
	}
	if t.waiting--; t.waiting == 0 {
		clear(t.ended)
	}
	return nil
}

// key handles a signal and reports whether to leave.
func (t *talk) key(s os.Signal) (over bool) {
	if s != os.Interrupt || t.asked || t.leaving {
		return true
	}
	if !t.interrupt() {
		t.leaving = true
		t.say("Ctrl-C again or /quit leaves")
	}
	return false
}

// interrupt ends the running turn, whoever sent it, and reports whether there
// was one.
func (t *talk) interrupt() bool {
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	_, err := t.c.Interrupt(ctx, t.session.ID)
	switch {
	case err == nil:
		t.asked = true
		t.say("interrupting; Ctrl-C again leaves")
	case holdfast.IsKind(err, holdfast.KindConflict):
		t.say("nothing runs")
	default:
		t.trouble(err)
	}
	return err == nil
}

// leave says how to come back.
func (t *talk) leave(code int) error {
	t.view.breakLine()
	t.unprompt()
	if len(t.open) > 0 || t.running != "" {
		t.say("left; the turn goes on: holdfast chat %s", t.session.ID)
	} else if t.person {
		t.say("left; to come back: holdfast chat %s", t.session.ID)
	}
	if t.waiting > 0 {
		t.say("%s not confirmed by the server", count(t.waiting, "message is", "messages are"))
		code = max(code, 1)
	}
	if code == 0 && t.failed && !t.person {
		code = 1
	}
	if code != 0 {
		return &exitError{code}
	}
	return nil
}

// prompt shows that the next line is awaited.
func (t *talk) prompt() {
	t.prompted = true
	if t.person && !t.e.json {
		what := "> "
		if len(t.questions) > 0 {
			what = "y once, s session, w workspace, n deny [reason] > "
		}
		fmt.Fprint(t.e.stderr, what)
	}
}

// unprompt makes room for something else; what was typed stays typed.
func (t *talk) unprompt() {
	if t.prompted && t.person && !t.e.json {
		_, _ = io.WriteString(t.e.stderr, "\r\x1b[K")
	}
	t.prompted = false
}

func (t *talk) say(format string, args ...any) {
	t.unprompt()
	t.view.breakLine()
	t.e.note(format, args...)
}

// trouble shows an error that does not end the chat.
func (t *talk) trouble(err error) {
	t.say("! %v", err)
	if hint := holdfast.HintOf(err); hint != "" {
		t.e.note("hint: %s", hint)
	}
}
