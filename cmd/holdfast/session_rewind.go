package main

import (
	"github.com/holdfast-run/holdfast"
)

type sessionRewindCmd struct {
	ID        string `arg:"" help:"The session: its id or a beginning or ending of it, its whole title, or @last."`
	To        string `required:"" placeholder:"CHECKPOINT" help:"Where to go: the id of a checkpoint or turn, or the number of a turn, as '#3'."`
	Interrupt bool   `help:"End a running turn first."`
	KeepFiles bool   `help:"Move the conversation alone; the files stay as they are."`
}

// Help is shown below the one-line description.
func (*sessionRewindCmd) Help() string {
	return `The conversation and the files become those of the checkpoint. The present is kept as a checkpoint first; the last line of the output is the command that goes back to it.

Examples:
  holdfast session rewind $id --to '#3'       # the end of turn 3
  holdfast session rewind $id --to 8b1e9f2a   # a checkpoint of the list`
}

// Run moves a session back to a checkpoint.
func (s *sessionRewindCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	id, err := e.resolveWhole(c, s.ID, false)
	if err != nil {
		return err
	}
	req := holdfast.RewindSession{Interrupt: s.Interrupt}
	keep := ""
	if s.KeepFiles {
		req.Files, keep = "keep", " --keep-files"
	}
	if req.To, err = checkpointOf(e.ctx, c, id, s.To); err != nil {
		return err
	}
	done, err := c.Rewind(e.ctx, id, req)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(done)
	}
	r := done.Rewound
	if err := e.say(nil, "%s is back at checkpoint %s, after event %d; files %s", done.Session.ID, line(string(r.Checkpoint)), r.Seq, line(string(r.Files))); err != nil || r.Kept == "" {
		return err
	}
	return e.say(nil, "to undo: holdfast session rewind %s --to %s%s", done.Session.ID, line(string(r.Kept)), keep)
}

type sessionForkCmd struct {
	ID    string `arg:"" help:"${session}"`
	At    string `placeholder:"CHECKPOINT" help:"Where the new session begins: the id of a checkpoint or turn, or the number of a turn, as '#3'; the newest otherwise."`
	Title string `placeholder:"TEXT" help:"The title of the new session; that of this one otherwise."`
	OwnID string `name:"id" placeholder:"UUID" help:"Your own id for the new session."`
	Key   string `name:"idempotency-key" placeholder:"KEY" help:"Makes a repeated command answer with the same session."`
}

// Help is shown below the one-line description.
func (*sessionForkCmd) Help() string {
	return `The new session has the conversation and a copy of the files, both as they were at the checkpoint; from then on the two sessions have nothing in common.

Examples:
  other=$(holdfast session fork $id)
  holdfast session fork $id --at '#3' --title "another try"`
}

// Run makes a new session that continues from a checkpoint of another one.
func (s *sessionForkCmd) Run(e *env) error {
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	req := holdfast.ForkSession{ID: holdfast.SessionID(s.OwnID), Title: s.Title}
	if s.At != "" {
		if req.At, err = checkpointOf(e.ctx, c, id, s.At); err != nil {
			return err
		}
	}
	key := s.Key
	if key == "" { // with a key, a request that broke off is repeated
		if key, err = newKey(); err != nil {
			return err
		}
	}
	forked, err := c.Fork(e.ctx, id, req, key)
	if err != nil {
		return err
	}
	e.remember(forked.ID)
	if err := e.say(map[string]any{"session": forked}, "%s", forked.ID); err != nil || e.json {
		return err
	}
	e.note("forked from %s; to go on: holdfast chat %s", id, forked.ID)
	return nil
}
