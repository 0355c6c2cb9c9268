package main

import (
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

type sessionRewindCmd struct {
	ID        string `arg:"" help:"The session: its id or a beginning or ending of it, its whole title, or @last."`
	To        string `required:"" placeholder:"CHECKPOINT" help:"Where to go: the id of a checkpoint or turn, or the number of a turn, as '#3'."`
	Interrupt bool   `help:"End a running turn first."`
	KeepFiles bool   `xor:"files" help:"Move the conversation alone; the files stay as they are. This is how it is for a directory of your own."`
	Files     bool   `xor:"files" help:"Rewind the files, too. Without --yes, show what would change."`
	Yes       bool   `help:"With --files: change them."`
	DryRun    bool   `help:"Show what would change, and change nothing."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionRewindCmd) Help() string {
	return `The conversation and the files become those of the checkpoint. The present is kept as a checkpoint first; the last line of the output is the command that goes back to it.

In a directory of your own the files stay, unless --files --yes asks for them. Then single files are written and removed, and nothing else is touched; if somebody else changed one of them since the checkpoint, the rewind is refused. Without --yes, --files shows what would change and ends with exit code 4.

Examples:
  holdfast session rewind $id --to '#3'       # the end of turn 3
  holdfast session rewind $id --to 8b1e9f2a   # a checkpoint of the list
  holdfast session rewind $id --to '#3' --files --yes`
}

// Run moves a session back to a checkpoint. With --dry-run, or with --files but without --yes, it only shows what that
// would change.
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
	switch {
	case s.KeepFiles:
		req.Files, keep = "keep", " --keep-files"
	case s.Files:
		req.Files = "restore"
		if s.Yes {
			keep = " --files --yes"
		}
	}
	if req.To, err = checkpointOf(e.ctx, c, id, s.To); err != nil {
		return err
	}
	if s.DryRun || s.Files && !s.Yes {
		return s.plan(e, c, id, req)
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
	return e.say(nil, "to undo: holdfast session rewind %s --to %s%s", done.Session.ID, word(string(r.Kept)), keep)
}

// plan shows what a rewind would change. Without --dry-run it then returns an error, because nothing was changed.
func (s *sessionRewindCmd) plan(e *env, c *client.Client, id holdfast.SessionID, req holdfast.RewindSession) error {
	req.DryRun = true
	would, err := c.Rewind(e.ctx, id, req)
	if err != nil {
		return err
	}
	if e.json {
		err = e.print(would)
	} else {
		err = showPlan(e, would)
	}
	if err != nil || s.DryRun {
		return err
	}
	to := would.Rewound.Checkpoint
	if p := would.Plan; p != nil && p.ConflictCount > 0 {
		return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "nothing was changed: files that the rewind would change were changed by others, so it will be refused with --yes too").
			WithHint("holdfast session fork %s --at %s makes a copy of the session with the files of that checkpoint; a rewind without --files takes only the conversation back", id, to)
	}
	return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "nothing was changed: a rewind with --files but without --yes only shows its plan").
		WithHint("holdfast session rewind %s --to %s --files --yes carries the plan out", id, to)
}

// showPlan prints the plan of a rewind, one line for each path.
func showPlan(e *env, would holdfast.RewoundSession) error {
	p := would.Plan
	if p == nil {
		return e.say(nil, "the conversation would be back at event %d; files %s", would.Rewound.Seq, line(string(would.Rewound.Files)))
	}
	for _, l := range []struct {
		what  string
		paths []string
	}{
		{"write", p.Write},
		{"remove", p.Remove},
		{"make directory", p.MakeDirs},
		{"remove directory, if empty", p.RemoveDirs},
		{"conflict, others changed", p.Conflicts},
	} {
		for _, path := range l.paths {
			if err := e.say(nil, "%s: %s", l.what, line(path)); err != nil {
				return err
			}
		}
	}
	text := fmt.Sprintf("%s to write, %d to remove", count(len(p.Write), "file", "files"), len(p.Remove))
	if p.More > 0 {
		text += fmt.Sprintf(", and %d paths more", p.More)
	}
	if p.LeftOut > 0 {
		text += fmt.Sprintf("; %d paths differ and stay, because checkpoints leave them out", p.LeftOut)
	}
	if p.ConflictCount > 0 {
		text += fmt.Sprintf("; %s: the rewind will be refused", count(p.ConflictCount, "conflict", "conflicts"))
	}
	return e.say(nil, "%s", text)
}

type sessionForkCmd struct {
	ID    string `arg:"" help:"${session}"`
	At    string `placeholder:"CHECKPOINT" help:"Where the new session begins: the id of a checkpoint or turn, or the number of a turn, as '#3'; the newest otherwise."`
	Title string `placeholder:"TEXT" help:"The title of the new session; that of this one otherwise."`
	OwnID string `name:"id" placeholder:"UUID" help:"Your own id for the new session."`
	Key   string `name:"idempotency-key" placeholder:"KEY" help:"Makes a repeated command answer with the same session."`
}

// Help returns the text that the help shows below the one-line description of the command.
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
	if key == "" { // with a key, the client repeats the request if the connection breaks
		if key, err = newKey(); err != nil {
			return err
		}
	}
	forked, err := c.Fork(e.ctx, id, req, key)
	if err != nil {
		return err
	}
	e.warnTrust(forked.Trust, runsAs(forked))
	e.remember(forked.ID)
	if err := e.say(map[string]any{"session": forked}, "%s", forked.ID); err != nil || e.json {
		return err
	}
	e.note("forked from %s; to go on: holdfast chat %s", id, forked.ID)
	return nil
}
