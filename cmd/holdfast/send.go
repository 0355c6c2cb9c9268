package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
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

// Help returns the text that the help shows below the one-line description of the command.
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
	show := e.view(isTerminal(e.stdout))
	if s.Quiet {
		show.teller.Detail = plain.Quiet
	}
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
			err := show.end(ev)
			if !e.json && !s.Quiet {
				err = cmp.Or(err, unstored(e, c, id, show, ev))
			}
			return err
		}
	}
	return nil
}

// unstored shows the event snapshot.failed of the turn that the event end has ended, if the turn's snapshot failed. It
// waits for at most a second: a snapshot that fails later is reported only in the log.
func unstored(e *env, c *client.Client, id holdfast.SessionID, show *turnView, end holdfast.Event) error {
	ctx, cancel := context.WithTimeout(e.ctx, time.Second)
	defer cancel()
	page, err := c.Checkpoints(ctx, id, "", 1) // the server answers this request only after the snapshot is taken or has failed
	if err != nil || len(page.Checkpoints) == 0 || !page.Checkpoints[0].Failed || page.Checkpoints[0].Turn != end.Turn {
		return nil
	}
	list, err := c.Events(ctx, id, holdfast.EventFilter{After: end.Seq, Types: []holdfast.EventType{holdfast.EventSnapshotFailed}})
	for _, ev := range list {
		if err == nil && ev.Turn == end.Turn {
			return show.event(ev)
		}
	}
	return nil
}

// unsent returns the error for a message that the server did not confirm, with a hint how to
// send it again safely.
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

// goOn adds a hint how to continue to an error about a server that cannot be reached or was
// replaced.
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
		return "", holdfast.Errorf(holdfast.KindInvalid, "send", "stdin cannot be read: %w", err)
	}
	if len(data) > holdfast.MaxText {
		return "", holdfast.Errorf(holdfast.KindTooLarge, "send", "the text on stdin is over %d bytes", holdfast.MaxText).
			WithHint("put the text into a file of the session: holdfast files put %s NAME", word(s.ID))
	}
	return string(data), nil
}

// turnView shows a turn: text on stdout, the rest on stderr.
type turnView struct {
	e       *env
	teller  plain.Narrator
	printer *plain.Printer
}

// view returns a turnView; with live it shows text as it is produced.
func (e *env) view(live bool) *turnView {
	return &turnView{e: e, teller: plain.Narrator{Live: live, Double: doubleLines}, printer: e.printer()}
}

// printer returns a printer that writes lines for people to stdout and stderr.
func (e *env) printer() *plain.Printer {
	return &plain.Printer{Out: e.stdout, Err: e.stderr, Style: e.look}
}

func (v *turnView) event(ev holdfast.Event) error {
	if v.e.json {
		return v.e.print(ev)
	}
	lines, err := v.teller.Event(ev)
	if err != nil {
		return err
	}
	return v.printer.Print(lines...)
}

// breakLine ends a line of text before something else is shown.
func (v *turnView) breakLine() {
	_ = v.printer.Break() // breaking the line may fail: the next write returns the same error
}

// end prints how the turn ended, from its last event, and returns the outcome of the command: nil, or an error with an
// exit code.
func (v *turnView) end(ev holdfast.Event) error {
	v.breakLine()
	if ev.Type == holdfast.EventTurnCompleted {
		return nil
	}
	if v.e.json {
		return &exitError{1}
	}
	lines, err := v.teller.End(ev)
	if err != nil {
		return err
	}
	return verdict(false, v.printer.Print(lines...))
}
