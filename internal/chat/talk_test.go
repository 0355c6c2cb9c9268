package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

const session = "01890a5d-ac96-774b-bcce-b302099a8057"

// talking is a conversation of a person with a session.
func talking() *Talk {
	t := NewTalk(holdfast.Session{ID: session, Trust: holdfast.Untrusted, Model: "m"}, nil)
	t.Person, t.Teller.Asks = true, true
	return t
}

func event(t *testing.T, typ holdfast.EventType, turn holdfast.TurnID, data any) holdfast.Event {
	t.Helper()
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return holdfast.Event{Session: session, Type: typ, Turn: turn, Seq: 1, Data: raw}
}

// text is all that effects show, a line each; what else they do stands in brackets.
func text(effects []Effect) string {
	var b strings.Builder
	for _, e := range effects {
		switch e := e.(type) {
		case Show:
			for _, l := range e {
				if l.Text != "" {
					b.WriteString(l.Text + "\n")
				}
			}
		case Leave:
			for _, l := range e.Lines {
				if l.Text != "" {
					b.WriteString(l.Text + "\n")
				}
			}
			fmt.Fprintf(&b, "[leave %d %v]\n", e.Code, e.Err)
		case Restore:
			fmt.Fprintf(&b, "[restore %q]\n", e.Text)
		case Message:
			fmt.Fprintf(&b, "[message %q]\n", e.Text)
		default:
			fmt.Fprintf(&b, "[%T]\n", e)
		}
	}
	return b.String()
}

func expect(t *testing.T, what string, effects []Effect, want string) {
	t.Helper()
	if got := text(effects); got != want {
		t.Errorf("%s:\n%s\nnot\n%s", what, got, want)
	}
}

func TestCtrlCEndsTheTurnThenLeaves(t *testing.T) {
	k := talking()
	expect(t, "a turn starts", k.Event(event(t, holdfast.EventTurnStarted, "t1", holdfast.TurnStartedData{})), "")
	expect(t, "the first", k.Interrupt(), "[chat.Call]\ninterrupting; Ctrl-C again leaves\n")
	expect(t, "the second", k.Interrupt(), "left; the turn goes on: holdfast chat "+session+"\n[leave 130 <nil>]\n")

	// After the turn's end the next Ctrl-C is a first one again, in whatever order the
	// answer and the end come.
	for _, endFirst := range []bool{true, false} {
		k = talking()
		k.Event(event(t, holdfast.EventTurnStarted, "t1", holdfast.TurnStartedData{}))
		k.Interrupt()
		if !endFirst {
			k.stopped(nil, "t1", true)
		}
		k.Event(event(t, holdfast.EventTurnInterrupted, "t1", holdfast.TurnEnded{}))
		if endFirst {
			k.stopped(nil, "t1", true)
		}
		expect(t, "after the end", k.Interrupt(), "[chat.Call]\n")
	}
}

func TestCtrlCWhereNothingRuns(t *testing.T) {
	conflict := holdfast.Errorf(holdfast.KindConflict, "x", "no turn")
	k := talking()
	expect(t, "the first", k.Interrupt(), "[chat.Call]\n")
	expect(t, "its answer", k.stopped(conflict, "", true), "nothing runs\nCtrl-C again or /quit leaves\n")
	expect(t, "the second", k.Interrupt(), "left; to come back: holdfast chat "+session+"\n[leave 130 <nil>]\n")
	k = talking()
	k.Interrupt()
	k.stopped(conflict, "", true)
	k.Line("a message takes it back")
	expect(t, "after a message", k.Interrupt(), "[chat.Call]\n")
	k = NewTalk(holdfast.Session{}, &holdfast.CreateSession{})
	k.Person = true
	expect(t, "without a session", k.Interrupt(), "nothing runs\nCtrl-C again or /quit leaves\n")
	expect(t, "without a session, the second", k.Interrupt(), "left; no session was made\n[leave 130 <nil>]\n")
}

// FH-34.
func TestTheFirstMessageMakesTheSession(t *testing.T) {
	k := NewTalk(holdfast.Session{}, &holdfast.CreateSession{Model: "m"})
	k.Person = true
	k.About = func(holdfast.Session, bool) []plain.Line { return []plain.Line{{Text: "about"}} }
	expect(t, "a command", k.Line("/status"), "there is no session yet: your first message makes it\n")
	expect(t, "a mode", k.Line("/mode plan"), "mode plan, once your first message makes the session\n")
	out := k.Line("hello")
	if m := out[0].(Message); m.Create.Model != "m" || m.Create.Mode != "plan" {
		t.Errorf("%+v", m)
	}
	made := holdfast.Session{ID: session, Trust: holdfast.Trusted, Model: "m", LastSeq: 1}
	expect(t, "it is there", k.Confirmed(Sent{Text: "hello", Created: &made}),
		"[chat.Remember]\nabout\nsession "+session+" (trusted, model m); /help lists what else you can type\n[chat.Follow]\n")
	expect(t, "the message is", k.Confirmed(Sent{Text: "hello", Turn: "t1"}), "")
	if k.Idle() {
		t.Error("idle while a turn runs")
	}
	k.Event(event(t, holdfast.EventTurnCompleted, "t1", holdfast.TurnEnded{}))
	if !k.Idle() {
		t.Error("not idle after the turn")
	}
}

// FH-53.
func TestNothingTypedIsLost(t *testing.T) {
	k := talking()
	big := strings.Repeat("x", holdfast.MaxText+1)
	if out := k.Line(big); out[0].(Restore).Text != big || !strings.Contains(text(out[1:]), "not sent: 10485761 bytes are more than the 10485760 of a message") {
		t.Errorf("%.200q", text(out[1:]))
	}
	k.Line("one")
	expect(t, "away", k.Confirmed(Sent{Text: "one", Held: errors.New("gone")}), "not sent yet: gone; it goes out when the server is back\n")
	err := holdfast.Errorf(holdfast.KindInvalid, "x", "refused").WithHint("do this")
	expect(t, "refused", k.Confirmed(Sent{Text: "one", Err: err}), "[restore \"one\"]\n! x: refused\nhint: do this\n")
	k.Line("two")
	expect(t, "leaving", k.Leave(0), "left; to come back: holdfast chat "+session+"\n1 message is not confirmed by the server\n[leave 1 <nil>]\n")
}

// TestTheEndMayComeFirst: the log tells of a turn's end before the message is confirmed.
func TestTheEndMayComeFirst(t *testing.T) {
	k := talking()
	k.Line("quick")
	k.Event(event(t, holdfast.EventTurnStarted, "t1", holdfast.TurnStartedData{}))
	k.Event(event(t, holdfast.EventTurnCompleted, "t1", holdfast.TurnEnded{}))
	k.Confirmed(Sent{Text: "quick", Turn: "t1"})
	if !k.Idle() || len(k.live.Outbox) != 0 {
		t.Errorf("not idle: %+v", k)
	}
}

func TestQuestionsHideNothing(t *testing.T) {
	k := talking()
	command := strings.Repeat("word ", 20_000) + "rm -rf \u202e/\x1b[2J"
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	a := holdfast.Approval{ID: "q1", Turn: "t1", Tool: "Bash", Input: input, Reason: "mode", Suggestions: []string{"Bash(word *)"}}
	got := text(k.Event(event(t, holdfast.EventApprovalAsked, "t1", a)))
	want := "Bash wants to run: " + strings.Repeat("word ", 20_000) + `rm -rf \u202e/\u001b[2J` + "\nasked because mode\ns and w would grant Bash(word *)\n"
	if got != want {
		t.Errorf("%.100q … %q", got, got[max(0, len(got)-200):])
	}
	expect(t, "a second time", k.Ask(a), "")
	for _, no := range []string{"what is this", "yes do that", "y now", "e now", "//x"} {
		if out := text(k.Line(no)); strings.Contains(out, "[") && !strings.Contains(out, "[RULES]") || strings.Contains(out, "Call") {
			t.Errorf("%q is taken for an answer: %s", no, out)
		}
	}
	expect(t, "e", k.Line("e"), "edit the rules: s in front grants them in this session, w in this workspace\n[restore \"s Bash(word *)\"]\n")
	for _, yes := range []string{"y", "YES", "s", "s Bash(git *)", "w", "n", "n not now"} {
		expect(t, yes, k.Line(yes), "[chat.Call]\n")
	}
	expect(t, "a refused answer", k.answered("q1", "s x", errors.New("no rule")), "! no rule\n[restore \"s x\"]\n")
	if _, ok := k.Question(); !ok {
		t.Error("the question is gone")
	}
	k.Event(event(t, holdfast.EventApprovalAnswered, "t1", holdfast.ApprovalAnswered{ID: "q1", State: holdfast.ApprovalAllowed}))
	if _, ok := k.Question(); ok {
		t.Error("the question stays")
	}
}

func TestLongQuestionsSayWhereTheyAre(t *testing.T) {
	input, err := json.Marshal(map[string]string{"command": strings.Repeat("line\n", 2*manyLines)})
	if err != nil {
		t.Fatal(err)
	}
	got := text(talking().Ask(holdfast.Approval{ID: "q1", Tool: "Bash", Input: input}))
	if strings.Count(got, "line\n") != 2*manyLines || !strings.HasSuffix(got, "the call has 1002 lines; to read it again: holdfast approvals show q1\n") {
		t.Errorf("%q", got[max(0, len(got)-200):])
	}
}

// FH-32.
func TestCommandsHaveHelp(t *testing.T) {
	got := text(talking().Line("/help"))
	for _, c := range commands() {
		if !strings.Contains(got, c.name) || c.help == "" || c.do == nil && c.ask == nil {
			t.Errorf("%s is not in the help, or does nothing:\n%s", c.name, got)
		}
	}
	expect(t, "no command", talking().Line("/nonsense x"), "there is no command /nonsense; /help lists the commands, and // sends a message that begins with a slash\n")
	k := talking()
	k.Echo = true
	expect(t, "a path", k.Line("/etc/x is broken"), "there is no command /etc/x; /help lists the commands, and // sends a message that begins with a slash\n[restore \"/etc/x is broken\"]\n")
	expect(t, "a paste that begins with a path", k.Line("/quit\nis what I typed"), "[message \"/quit\\nis what I typed\"]\n")
	expect(t, "two slashes", talking().Line("//x"), "[message \"/x\"]\n")
	expect(t, "a paste that begins with a comment", talking().Line("// x\ny()"), "[message \"// x\\ny()\"]\n")
}
