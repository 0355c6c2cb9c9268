package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

type sendCmd struct {
	ID        string `arg:"" help:"${session}"`
	Text      string `arg:"" help:"The message; - reads it from stdin."`
	Quiet     bool   `short:"q" help:"Show the assistant's text alone."`
	NoWait    bool   `help:"Return once the message is durable; prints the turn's id."`
	Interrupt bool   `xor:"mode" help:"End a running turn first instead of waiting for it."`
	Steer     bool   `xor:"mode" help:"Join a running turn instead of waiting for it."`
	NoResume  bool   `help:"Fail if the session is paused instead of resuming it."`
	Key       string `name:"idempotency-key" placeholder:"KEY" help:"Makes a repeated command show the same turn."`
}

// Help is shown below the one-line description.
func (*sendCmd) Help() string {
	return `The assistant's text goes to stdout, tools with the last lines of their output and notices to stderr; with --json all events go to stdout, one a line. Ends with 1 if the turn failed or was interrupted. Ctrl-C leaves the turn running.

Examples:
  holdfast send 01a1 "run the tests and fix what fails"
  git diff | holdfast send 01a1 -`
}

// Run sends a message and shows its turn.
func (s *sendCmd) Run(e *env) error {
	text, err := s.text(e)
	if err != nil {
		return err
	}
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	e.remember(id)
	msg := holdfast.SendMessage{Text: text, Key: s.Key}
	if msg.Key == "" {
		if msg.Key, err = newKey(); err != nil {
			return err
		}
	}
	switch {
	case s.Interrupt:
		msg.Mode = string(holdfast.SendInterrupt)
	case s.Steer:
		msg.Mode = string(holdfast.SendSteer)
	}
	if s.NoResume {
		msg.Resume = new(bool)
	}
	if s.NoWait {
		sent, err := c.Send(e.ctx, id, msg)
		if err != nil {
			return s.unsent(e, id, msg, err)
		}
		return e.say(sent, "%s", sent.Turn.ID)
	}
	stream, err := c.Stream(e.ctx, id, msg)
	if err != nil {
		return s.unsent(e, id, msg, err)
	}
	defer stream.Close()
	last := stream.Seq
	show := &turnView{e: e, live: isTerminal(e.stdout), textOnly: s.Quiet}
	for ev, err := range stream.Events(e.ctx) {
		if err != nil {
			show.breakLine()
			if e.ctx.Err() != nil {
				e.note("detached; the turn goes on: holdfast session events %s --after %d --follow", id, stream.Seq)
				return &exitError{130}
			}
			return goOn(err, "the message is accepted and its turn goes on with the server; to take it up: holdfast session events %s --after %d --follow", id, last)
		}
		last = max(last, ev.Seq)
		if err := show.event(ev); err != nil {
			return err
		}
		if ev.Turn == stream.Turn && ev.EndsTurn() {
			return show.end(ev)
		}
	}
	return nil
}

// unsent reports the state of a message that was not confirmed.
func (s *sendCmd) unsent(e *env, id holdfast.SessionID, msg holdfast.SendMessage, err error) error {
	switch {
	case e.ctx.Err() != nil:
		e.note("given up before the server confirmed the message; to be sure, repeat it with --idempotency-key %s", msg.Key)
		return &exitError{130}
	case !client.MayHaveArrived(err):
		return err
	}
	return goOn(err, "the message may have been accepted; this never sends it twice: holdfast send %s --idempotency-key %s TEXT", id, msg.Key)
}

// goOn adds a hint to an error about a server that is away or was replaced: how to
// continue.
func goOn(err error, format string, args ...any) error {
	kind := holdfast.KindOf(err)
	if kind != holdfast.KindUnavailable && !client.Strange(err) {
		return err
	}
	how := fmt.Sprintf(format, args...)
	if hint := holdfast.HintOf(err); hint != "" {
		how = hint + "; " + how
	}
	return (&holdfast.Error{Kind: kind, Msg: err.Error(), Err: err}).WithHint("%s", how)
}

func (s *sendCmd) text(e *env) (string, error) {
	if s.Text != "-" {
		return s.Text, nil
	}
	data, err := io.ReadAll(io.LimitReader(e.stdin, holdfast.MaxText+1))
	if err != nil {
		return "", holdfast.Errorf(holdfast.KindInvalid, "send", "stdin: %w", err)
	}
	if len(data) > holdfast.MaxText {
		return "", holdfast.Errorf(holdfast.KindTooLarge, "send", "the text on stdin is over %d bytes", holdfast.MaxText).
			WithHint("put it in a file: holdfast files put %s NAME", s.ID)
	}
	return string(data), nil
}

// turnView shows a turn: text on stdout, the rest on stderr.
type turnView struct {
	e     *env
	live  bool   // show deltas as they come
	shown string // what of the next message was shown by deltas
	mid   bool   // the cursor is within a line of text
	tools map[string]string
	// quiet: whoever watches is asked in place.
	quiet bool
	// textOnly: nothing is shown but the assistant's text, and questions.
	textOnly bool
	// double: the note about the test double was shown, or is not wanted.
	double bool
}

func (v *turnView) event(ev holdfast.Event) error {
	if v.e.json {
		return v.e.print(ev)
	}
	switch ev.Type {
	case holdfast.DeltaText:
		var d holdfast.TextDelta
		if !v.live {
			return nil
		}
		if err := ev.Decode(&d); err != nil {
			return err
		}
		v.shown += d.Text
		return v.text(d.Text)
	case holdfast.EventMessageAssistant:
		var m holdfast.AssistantMessage
		if err := ev.Decode(&m); err != nil {
			return err
		}
		return v.message(m)
	}
	return v.notice(ev)
}

// message shows a finished message, of which deltas may have shown a part.
func (v *turnView) message(m holdfast.AssistantMessage) error {
	var full strings.Builder
	for _, p := range m.Parts {
		full.WriteString(p.Text)
	}
	rest, ok := strings.CutPrefix(full.String(), v.shown)
	if !ok { // what was shown belongs to an answer that was given up
		v.breakLine()
		rest = full.String()
	}
	v.shown = ""
	if err := v.text(rest); err != nil {
		return err
	}
	v.breakLine()
	if !v.double {
		v.double = true
		v.e.noteDouble(m.Model)
	}
	return nil
}

func (v *turnView) text(s string) error {
	if s == "" {
		return nil
	}
	if v.live {
		s = prose(s)
	}
	v.mid = !strings.HasSuffix(s, "\n")
	_, err := io.WriteString(v.e.stdout, s)
	return err
}

// breakLine ends a line of text before something else is shown.
func (v *turnView) breakLine() {
	if v.mid {
		v.mid = false
		// A broken stdout shows at the next write.
		_, _ = io.WriteString(v.e.stdout, "\n")
	}
}

func (v *turnView) say(format string, args ...any) error {
	v.breakLine()
	v.e.note("%s", cut(line(fmt.Sprintf(format, args...)), 200))
	return nil
}

// notice shows what is not text.
func (v *turnView) notice(ev holdfast.Event) error {
	if v.textOnly && ev.Type != holdfast.EventApprovalAsked && ev.Type != holdfast.EventNotice {
		return nil
	}
	switch ev.Type {
	case holdfast.EventToolRequested:
		return shown(ev, v.requested)
	case holdfast.EventToolFinished:
		return shown(ev, v.finished)
	case holdfast.EventToolDenied:
		return shown(ev, func(d holdfast.ToolDecision) error {
			return v.say("✗ %s denied by %s: %s", cmp.Or(v.tools[d.ToolUseID], "a tool"), d.By, d.Reason)
		})
	case holdfast.EventToolUnknown:
		return shown(ev, func(d holdfast.ToolUnknown) error {
			return v.say("? %s: outcome unknown: %s", cmp.Or(v.tools[d.ToolUseID], "a tool"), d.Reason)
		})
	case holdfast.EventApprovalAsked:
		return shown(ev, v.asked)
	case holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		return shown(ev, v.answered)
	case holdfast.EventTurnQueued:
		return shown(ev, func(d holdfast.TurnQueuedData) error { return v.say("queued, position %d", d.Position) })
	case holdfast.EventBoxQueued:
		return shown(ev, func(d holdfast.BoxQueued) error { return v.say("waiting for a box, position %d", d.Position) })
	case holdfast.EventBoxStarted:
		return shown(ev, func(d holdfast.BoxStarted) error { return v.say("box started in %.0f ms (%s)", d.DurationMS, d.Driver) })
	case holdfast.EventBoxOOM, holdfast.EventBoxPids, holdfast.EventBoxLost, holdfast.EventBoxStopped:
		return shown(ev, func(d holdfast.BoxEnded) error { return v.say("%s: %s", ev.Type, d.Reason) })
	case holdfast.EventSessionResumed:
		return shown(ev, func(d holdfast.Receipt) error { return v.say("resumed: %s", receipt(d)) })
	case holdfast.EventNotice:
		return shown(ev, func(d holdfast.Notice) error {
			if d.Code == holdfast.NoticeVoid {
				v.shown = ""
			}
			if v.textOnly {
				return nil
			}
			return v.say("! %s", d.Text)
		})
	}
	return nil
}

// asked shows a question, and how to answer it.
func (v *turnView) asked(a holdfast.Approval) error {
	if v.quiet {
		return v.say("⏸ %s waits for an answer: %s", a.Tool, a.Reason)
	}
	v.breakLine()
	v.e.note("⏸ %s waits for an answer", a.Tool)
	for _, l := range questionLines(a) {
		v.e.callLine(l)
	}
	v.e.note("  holdfast approvals allow %s", a.ID)
	v.e.note("  holdfast approvals deny %s --reason TEXT", a.ID)
	return nil
}

func (v *turnView) answered(a holdfast.ApprovalAnswered) error {
	what := string(a.State)
	if a.By != "" {
		what += " by " + a.By
	}
	if len(a.Granted) > 0 {
		what += fmt.Sprintf("; from now on in this %s: %s", a.Scope, strings.Join(a.Granted, ", "))
	}
	return v.say("▶ %s", what)
}

// shown decodes a payload and shows it.
func shown[T any](ev holdfast.Event, show func(T) error) error {
	var d T
	if err := ev.Decode(&d); err != nil {
		return err
	}
	return show(d)
}

// end turns the turn's last event into the command's outcome.
func (v *turnView) end(ev holdfast.Event) error {
	v.breakLine()
	if ev.Type == holdfast.EventTurnCompleted {
		return nil
	}
	if v.e.json {
		return &exitError{1}
	}
	var d holdfast.TurnEnded
	if err := ev.Decode(&d); err != nil {
		return err
	}
	what := strings.TrimPrefix(string(ev.Type), "turn.")
	if d.Message != "" && d.Message != what {
		what += ": " + d.Message
	}
	fmt.Fprintf(v.e.stderr, "%sholdfast: the turn %s%s\n", v.e.style(red), line(what), v.e.style(reset))
	if d.Hint != "" {
		fmt.Fprintf(v.e.stderr, "hint: %s\n", line(d.Hint))
	}
	return &exitError{1}
}
