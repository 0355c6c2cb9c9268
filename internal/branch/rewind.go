package branch

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// The values of RewindSession.Files.
const (
	restoreFiles = "restore"
	keepFiles    = "keep"
)

// Rewind moves a session back to a checkpoint: its conversation, and unless the request keeps them its
// files. Its box stops. The events in between stay in the log.
func (b *Branches) Rewind(ctx context.Context, id holdfast.SessionID, req holdfast.RewindSession) (out holdfast.RewoundSession, err error) {
	if req.Files != "" && req.Files != restoreFiles && req.Files != keepFiles {
		return out, holdfast.Errorf(holdfast.KindInvalid, "session.rewind", "%s is no choice for the files", holdfast.Quote(req.Files)).
			WithHint("use %s or %s", restoreFiles, keepFiles)
	}
	row, err := b.cfg.Store.Row(ctx, id)
	if err != nil {
		return out, err
	}
	if _, _, err := b.cfg.Snapshots.Find(ctx, row, req.To); err != nil {
		return out, err // before a turn is interrupted for nothing
	}
	row, err = b.cfg.Sessions.Quiet(ctx, id, "rewind", req.Interrupt, func(ctx context.Context, row journal.Row) (err error) {
		out.Rewound, err = b.back(ctx, row, req)
		return err
	})
	out.Session = row.Session
	return out, err
}

// back moves a session back to a checkpoint. No turn of its scope runs or starts.
func (b *Branches) back(ctx context.Context, row journal.Row, req holdfast.RewindSession) (out holdfast.Rewound, err error) {
	cp, files, err := b.cfg.Snapshots.Find(ctx, row, req.To)
	if err != nil {
		return out, err
	}
	to, err := b.head(ctx, row.ID, cp)
	if err != nil {
		return out, err
	}
	spans, completed, err := Spans(ctx, b.cfg.Sessions, row.ID, to)
	if err != nil {
		return out, err
	}
	states, err := b.cfg.Store.AgentStates(ctx, row.ID)
	if err != nil {
		return out, err
	}
	out = holdfast.Rewound{Checkpoint: cp.ID, Seq: to, Files: holdfast.FilesRestored}
	put := &files
	switch {
	case req.Files == keepFiles:
		put, out.Files = nil, holdfast.FilesKept
	case files.ID == "":
		out.Files = holdfast.FilesEmpty
	}
	err = b.cfg.Snapshots.Rewind(ctx, row, put, func(c *journal.Change, kept holdfast.CheckpointID) {
		out.Kept = kept
		c.Files.Rewind = &journal.Rewind{Branch: spans, Completed: completed}
		c.States = left(states)
		c.Events = append(c.Events, journal.Draft{Type: holdfast.EventSessionRewound, Data: out})
	})
	return out, err
}

// left returns the states of agents that know the conversation which a rewind leaves, as states that
// no turn continues from (I-30).
func left(states []holdfast.AgentState) (out []holdfast.AgentState) {
	for _, s := range states {
		if s.Health == holdfast.HealthCurrent {
			s.Health = holdfast.HealthLeft
			out = append(out, s)
		}
	}
	return out
}
