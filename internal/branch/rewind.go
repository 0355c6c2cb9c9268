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

// Rewind moves a session back to a checkpoint: its conversation, and its files too unless they are kept. They are kept
// if the request says so, and by default in a workspace that is not the session's alone. The session's box stops. The
// events since the checkpoint stay in the log. A dry run only returns what the rewind would do.
func (b *Branches) Rewind(ctx context.Context, id holdfast.SessionID, req holdfast.RewindSession) (out holdfast.RewoundSession, err error) {
	if req.Files != "" && req.Files != restoreFiles && req.Files != keepFiles {
		return out, holdfast.Errorf(holdfast.KindInvalid, "session.rewind", "%s is not a choice for what a rewind does with the files", holdfast.Quote(req.Files)).
			WithHint("use %s or %s", restoreFiles, keepFiles)
	}
	row, err := b.cfg.Store.Row(ctx, id)
	if err != nil {
		return out, err
	}
	if _, _, err := b.cfg.Snapshots.Find(ctx, row, req.To); err != nil {
		return out, err // checked here, before Quiet interrupts a turn in vain
	}
	if req.Files == "" {
		borrowed, err := b.cfg.Snapshots.Borrowed(ctx, row)
		if err != nil {
			return out, err
		}
		if borrowed {
			req.Files = keepFiles
		}
	}
	if req.DryRun {
		return b.plan(ctx, row, req)
	}
	if err := b.alone(id, req); err != nil {
		return out, err // checked here, before Quiet interrupts a turn in vain
	}
	row, err = b.cfg.Sessions.Quiet(ctx, id, "rewind", req.Interrupt, func(ctx context.Context, row journal.Row) (err error) {
		if err = b.alone(id, req); err == nil {
			out.Rewound, err = b.back(ctx, row, req)
		}
		return err
	})
	out.Session = row.Session
	return out, err
}

// alone fails with conflict if a rewind would replace files that another session's running turn uses.
func (b *Branches) alone(id holdfast.SessionID, req holdfast.RewindSession) error {
	other := b.cfg.Sessions.Working(id)
	if other == "" || req.Files == keepFiles {
		return nil
	}
	return holdfast.Errorf(holdfast.KindConflict, "session.rewind", "cannot replace the files: session %s shares them, and a turn of it is running", other).
		WithHint("wait for the end of that turn: holdfast session events %s --follow shows it; or leave the files as they are: --keep-files", other)
}

// plan returns what a rewind would do. It changes neither the conversation nor a file, though it may take a snapshot.
// The session's box keeps running.
func (b *Branches) plan(ctx context.Context, row journal.Row, req holdfast.RewindSession) (out holdfast.RewoundSession, err error) {
	return between(ctx, b, row.ID, "session.rewind", func(ctx context.Context, row journal.Row) (holdfast.RewoundSession, error) {
		return b.planned(ctx, row, req)
	})
}

// between calls do while no turn of the session's scope runs, and returns the results of do. It returns conflict if a
// turn runs, and gone if the session has ended.
func between[T any](ctx context.Context, b *Branches, id holdfast.SessionID, op string, do func(context.Context, journal.Row) (T, error)) (out T, err error) {
	type answer struct {
		out T
		err error
	}
	got := make(chan answer, 1)
	done := b.cfg.Sessions.Between(id, func(ctx context.Context, row journal.Row) {
		var a answer
		a.out, a.err = do(ctx, row)
		got <- a
	})
	if done == nil {
		return out, holdfast.Errorf(holdfast.KindConflict, op, "a turn of session %s is running, so that the files may still change", id).
			WithHint("holdfast session events %s --follow shows when the turn ends; or end it now: holdfast session interrupt %s", id, id)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return out, ctx.Err()
	}
	select {
	case a := <-got:
		return a.out, a.err
	default:
		return out, holdfast.Errorf(holdfast.KindGone, op, "session %s has ended", id)
	}
}

// planned does the work of Branches.plan. The caller makes sure that no turn of the session's scope runs.
func (b *Branches) planned(ctx context.Context, row journal.Row, req holdfast.RewindSession) (out holdfast.RewoundSession, err error) {
	cp, files, err := b.cfg.Snapshots.Find(ctx, row, req.To)
	if err != nil {
		return out, err
	}
	out.Session = row.Session
	out.Rewound = holdfast.Rewound{Checkpoint: cp.ID, Files: holdfast.FilesKept}
	if out.Rewound.Seq, err = b.head(ctx, row.ID, cp); err != nil || req.Files == keepFiles {
		return out, err
	}
	if files.ID == "" {
		out.Rewound.Files = holdfast.FilesEmpty
		return out, nil
	}
	plan, err := b.cfg.Snapshots.Plan(ctx, row, files)
	out.Rewound.Files, out.Plan = holdfast.FilesRestored, &plan
	return out, err
}

// back moves a session back to a checkpoint. The caller makes sure that no turn of the session's scope runs or starts.
func (b *Branches) back(ctx context.Context, row journal.Row, req holdfast.RewindSession) (out holdfast.Rewound, err error) {
	cp, files, err := b.cfg.Snapshots.Find(ctx, row, req.To)
	if err != nil {
		return out, err
	}
	to, err := b.head(ctx, row.ID, cp)
	if err != nil {
		return out, err
	}
	_, completed, err := Spans(ctx, b.cfg.Sessions, row.ID, to)
	if err != nil {
		return out, err
	}
	spans, _, err := Spans(ctx, b.cfg.Sessions, row.ID, cp.Seq) // the target itself is not abandoned, nor is what led to it
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

// left returns those agent states that are current, with the health HealthLeft: these agents know the conversation that
// the rewind abandons, and with this health no later turn continues from them (I-30).
func left(states []holdfast.AgentState) (out []holdfast.AgentState) {
	for _, s := range states {
		if s.Health == holdfast.HealthCurrent {
			s.Health = holdfast.HealthLeft
			out = append(out, s)
		}
	}
	return out
}
