package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Talk is the state of a conversation. Only one goroutine may use it.
type Talk struct {
	// Person is true if a person types, who can answer questions. JSON makes events be printed as JSON.
	Person, JSON bool
	// Echo makes messages of the user be shown where they enter the conversation.
	Echo   bool
	Teller plain.Narrator
	// Create describes the session that the first message creates; nil once the session exists.
	Create  *holdfast.CreateSession
	Session holdfast.Session
	// About returns warnings to show with the greeting of a session; forked is true for a fork that the chat just made.
	About func(s holdfast.Session, forked bool) []plain.Line
	// Copy copies files between the local disk and a session, for /cp.
	Copy func(ctx context.Context, id holdfast.SessionID, src, dst string) ([]string, error)
	// Compare returns the comparison that the words after /diff ask for, and the command that prints that comparison.
	Compare func(ctx context.Context, c *client.Client, id holdfast.SessionID, words []string) (of holdfast.CompareCheckpoints, command string, err error)

	live      Live
	pending   pending
	asking    int // number of calls to the server that have not returned
	running   holdfast.TurnID
	questions questions
	interrupt interrupt
	recallAt  int64 // number of the event after which the open questions are fetched
	failed    bool
}

// interrupt is the state of interrupting by Ctrl-C.
type interrupt int

const (
	notAsked interrupt = iota
	asking             // the server was asked to end the turn
	asked              // the server is ending the turn
	leaving            // no turn runs: the next Ctrl-C leaves
)

// outboxMost is the most messages that may wait for the server.
const outboxMost = 1024

// NewTalk makes a conversation with a session, or with one that the first message creates.
func NewTalk(s holdfast.Session, create *holdfast.CreateSession) *Talk {
	return &Talk{
		Session: s, Create: create, pending: newPending(), live: newLive(),
		About: func(holdfast.Session, bool) []plain.Line { return nil },
	}
}

// Idle reports whether nothing of this chat is in progress: no message, no call to the server and no turn.
func (t *Talk) Idle() bool { return t.asking == 0 && t.pending.none() }

// Question returns the question that the next line answers; ok is false if none is open.
func (t *Talk) Question() (holdfast.Approval, bool) { return t.questions.first() }

// Running reports whether a turn runs, and since when.
func (t *Talk) Running() (since time.Time, ok bool) { return t.live.began, t.running != "" }

// Begin returns the effects that start the conversation, with a greeting.
func (t *Talk) Begin() []Effect {
	if t.Create != nil {
		if !t.Person {
			return nil
		}
		model := ""
		if t.Session.Model != "" {
			model = " (model " + t.Session.Model + ")"
		}
		return []Effect{say("your first message makes a session%s; /help lists what else you can type", model)}
	}
	return []Effect{Remember{t.Session.ID}, t.greeting(false)}
}

func (t *Talk) greeting(forked bool) Show {
	s := t.Session
	return append(t.About(s, forked), say("session %s (%s, model %s); /help lists what else you can type", s.ID, s.Trust, s.Model)...)
}

// Event applies an event of the log.
func (t *Talk) Event(ev holdfast.Event) []Effect {
	out, err := t.event(ev)
	if err != nil {
		return append(out, Leave{Err: err})
	}
	if t.recallAt > 0 && ev.Seq >= t.recallAt {
		t.recallAt = 0
		out = append(out, recall(t.Session.ID))
	}
	return out
}

func (t *Talk) event(ev holdfast.Event) (out []Effect, err error) {
	if err := t.live.event(ev); err != nil {
		return nil, err
	}
	switch {
	case ev.Type == holdfast.EventTurnStarted:
		t.running = ev.Turn
	case ev.EndsTurn():
		return t.end(ev)
	case ev.Type == holdfast.EventSessionEnded:
		return []Effect{Leave{Lines: say("the session has ended")}}, nil
	}
	if t.JSON {
		return []Effect{Print{ev}}, nil
	}
	lines, err := t.tell(ev)
	if err != nil {
		return nil, err
	}
	if ev.Type == holdfast.EventSessionUpdated && t.Echo && ev.Seq > t.live.known {
		out = append(out, refresh(t.Session.ID))
	}
	if len(lines) > 0 {
		out = append(out, Show(lines))
	}
	more, err := t.hear(ev)
	return append(out, more...), err
}

// tell returns the lines that show an event of the log.
func (t *Talk) tell(ev holdfast.Event) ([]plain.Line, error) {
	if ev.Type == holdfast.EventMessageUser {
		var m holdfast.UserMessage
		if err := ev.Decode(&m); err != nil || !t.Echo {
			return nil, err
		}
		return ownMessage(m.Text(), t.Teller.Detail), nil
	}
	lines, err := t.Teller.Event(ev)
	if ev.Type == holdfast.EventThinking && len(lines) == 0 && t.Echo && t.Teller.Detail == plain.Normal {
		var d holdfast.Thinking
		err = ev.Decode(&d)
		lines = []plain.Line{{Text: "∴ thought, " + plain.Count(utf8.RuneCountInString(d.Text), "character", "characters") + "; /verbose shows the next ones"}}
	}
	return lines, err
}

// ownLines is the number of lines after which a message of the user is folded.
const ownLines = 12

// ownMessage returns a message of the user as lines, folded where it is long.
func ownMessage(text string, detail plain.Detail) []plain.Line {
	lines := strings.Split(strings.TrimRight(plain.Prose(text), "\n"), "\n")
	more := len(lines) - ownLines
	if more <= 0 || detail == plain.Verbose {
		return []plain.Line{{Kind: plain.Own, Text: strings.Join(lines, "\n")}}
	}
	return []plain.Line{
		{Kind: plain.Own, Text: strings.Join(lines[:ownLines], "\n")},
		{Kind: plain.Context, Text: "… " + plain.Count(more, "more line", "more lines")},
	}
}

func (t *Talk) end(ev holdfast.Event) ([]Effect, error) {
	t.interrupt = notAsked
	if t.running == ev.Turn {
		t.running = ""
	}
	t.pending.over(ev.Turn)
	t.questions.over(ev.Turn)
	if t.JSON {
		return []Effect{Print{ev}}, nil
	}
	if ev.Type != holdfast.EventTurnCompleted {
		t.failed = true
	}
	lines, err := t.Teller.End(ev)
	out := []Effect{Show(append([]plain.Line{{Kind: plain.Break}}, lines...))}
	if t.Echo && ev.Seq > t.live.known {
		out = append(out, refresh(t.Session.ID))
	}
	return out, err
}

// Line handles a line, or a text of several lines, that the user entered: a command, an answer or
// a message. Only a single line can be a command.
func (t *Talk) Line(l string) []Effect {
	if t.interrupt == leaving {
		t.interrupt = notAsked
	}
	text := strings.TrimSpace(l)
	_, question := t.Question()
	switch {
	case text == "":
		return nil
	case strings.Contains(text, "\n") && !question: // a text of several lines is a message, and keeps its slashes
	case strings.HasPrefix(text, "//") && !question:
		text = text[1:]
	case strings.HasPrefix(text, "/") && !strings.Contains(text, "\n"):
		return t.command(text)
	case question:
		return t.reply(text)
	}
	switch {
	case t.pending.waiting >= outboxMost:
		return []Effect{Restore{l}, say("not sent: %d messages wait for the server already", t.pending.waiting)}
	case len(text) > holdfast.MaxText:
		return []Effect{Restore{l}, say("not sent: %d bytes are more than the %d of a message; put them in a file of the session: holdfast files put %s NAME",
			len(text), holdfast.MaxText, t.name())}
	}
	t.pending.sent()
	t.live.sending(text)
	return []Effect{Message{Text: text, Session: t.Session.ID, Create: t.Create}}
}

// name returns the session's id for a command to paste, or SESSION before there is one.
func (t *Talk) name() string {
	if t.Session.ID == "" {
		return "SESSION"
	}
	return string(t.Session.ID)
}

// Confirmed applies the outcome of sending a message.
func (t *Talk) Confirmed(r Sent) []Effect {
	if r.Created != nil {
		t.Session, t.Create = *r.Created, nil
		return []Effect{Remember{r.Created.ID}, t.greeting(false), Follow{r.Created.ID, r.Created.LastSeq}}
	}
	switch {
	case errors.Is(r.Held, holdfast.ErrFull):
		return []Effect{say("not sent yet: %v; it goes out when there is a place", r.Held)}
	case r.Held != nil:
		return []Effect{say("not sent yet: %v; it goes out when the server is back", r.Held)}
	case r.Err != nil && (t.Create != nil && !t.Person || holdfast.IsKind(r.Err, holdfast.KindGone) || t.Create == nil && holdfast.IsKind(r.Err, holdfast.KindNotFound)):
		return []Effect{Leave{Err: r.Err}}
	case r.Err != nil:
		t.failed = true
		t.live.unsent(r.Text)
		t.pending.answered()
		return []Effect{Restore{r.Text}, trouble(r.Err)}
	}
	t.live.confirmed(r)
	if t.pending.confirmed(r.Turn) {
		t.live.gone(r.Turn, "")
	}
	return nil
}

// Linked shows that the client waits for the server, or that the server is back.
func (t *Talk) Linked(w client.Wait) []Effect {
	switch {
	case w.Over:
		t.live.away = false
		return []Effect{say("the server is back")}
	case w.Err != nil && w.For < time.Second:
		t.live.away = true
		return []Effect{say("the server went away; waiting for it: %v", w.Err)}
	}
	return []Effect{say("%s", w)}
}

// Interrupt handles Ctrl-C: the first one ends the turn, whoever sent its message; the next one leaves.
func (t *Talk) Interrupt() []Effect {
	switch {
	case t.interrupt != notAsked:
		return t.Leave(130)
	case t.Create != nil:
		t.interrupt = leaving
		return []Effect{say("nothing runs"), say(leaveHint)}
	}
	return t.stop(true)
}

const leaveHint = "Ctrl-C again or /quit leaves"

// stop asks the server to end the running turn. With byKey, if no turn runs, the next Ctrl-C leaves.
func (t *Talk) stop(byKey bool) []Effect {
	if byKey {
		t.interrupt = asking
	}
	turn := t.running
	out := t.call(5*time.Second, stopped(t.Session.ID, turn, byKey))
	if turn != "" {
		out = append(out, say(interrupting))
	}
	return out
}

const interrupting = "interrupting; Ctrl-C again leaves"

// stopped handles the server's reply to stop. turn is the turn that ran, as far as was known.
// The reply may come after the turn's end.
func (t *Talk) stopped(err error, turn holdfast.TurnID, byKey bool) []Effect {
	var out []Effect
	switch {
	case err == nil && t.running != turn:
		return nil
	case err == nil && turn != "":
		t.interrupt = asked
		return nil
	case err == nil:
		t.interrupt = asked
		return []Effect{say(interrupting)}
	case holdfast.IsKind(err, holdfast.KindConflict):
		out = append(out, say("nothing runs"))
	default:
		out = append(out, trouble(err))
	}
	if byKey {
		t.interrupt = leaving
		out = append(out, say(leaveHint))
	}
	return out
}

// Leave ends the conversation and shows how to come back.
func (t *Talk) Leave(code int) []Effect {
	lines := []plain.Line{{Kind: plain.Break}}
	switch {
	case t.Create != nil && t.Person:
		lines = append(lines, plain.Line{Text: "left; no session was made"})
	case t.Create != nil && t.pending.waiting == 0:
		lines = append(lines, plain.Line{Text: "nothing came on stdin: no session was made"})
	case len(t.pending.open) > 0 || t.running != "":
		lines = append(lines, plain.Notef("left; the turn goes on: holdfast chat %s", t.Session.ID))
	case t.Person:
		lines = append(lines, plain.Notef("left; to come back: holdfast chat %s", t.Session.ID))
	}
	if n := t.pending.waiting; n > 0 {
		lines = append(lines, plain.Notef("%s not confirmed by the server", plain.Count(n, "message is", "messages are")))
		code = max(code, 1)
	}
	if code == 0 && t.failed && !t.Person {
		code = 1
	}
	return []Effect{Leave{Code: code, Lines: lines}}
}

// Lost ends the conversation, because the client gave up following the log.
func (t *Talk) Lost(err error) []Effect { return []Effect{Leave{Lost: err}} }

// call returns a Call effect that is counted in asking: where no person types, the next line
// waits until the call has returned.
func (t *Talk) call(limit time.Duration, do doer) []Effect {
	t.asking++
	return []Effect{Call{limit, do.then(func(t *Talk) { t.asking-- })}}
}

// say returns a line that shows a note about the conversation.
func say(format string, args ...any) Show {
	return Show{{Kind: plain.Note, Text: plain.OneLine(fmt.Sprintf(format, args...))}}
}

// trouble returns the lines for an error that does not end the conversation.
func trouble(err error) Show {
	out := Show{{Kind: plain.Trouble, Text: plain.OneLine("! " + err.Error())}}
	if hint := holdfast.HintOf(err); hint != "" {
		out = append(out, plain.Line{Kind: plain.Hint, Text: plain.OneLine("hint: " + hint)})
	}
	return out
}
