package resume

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Config configures Resumes. All fields but Ready must be set.
type Config struct {
	// Ready prepares the files of a session for use, which may record events; nil if nothing is to be done. Row
	// returns a session.
	Ready func(ctx context.Context, row journal.Row) error
	Row   func(ctx context.Context, id holdfast.SessionID) (journal.Row, error)
	// Files returns the state of a session's files and box. Stop stops the box.
	Files func(ctx context.Context, row journal.Row) (Files, error)
	Stop  func(ctx context.Context, row journal.Row, reason string) error

	Journal   *journal.Journal
	Snapshots Snapshots
	// OwnState reports whether a runtime's agents keep their own conversation.
	OwnState func(runtime string) bool
	// AtRisk returns the files of a session that a power cut may have taken; nil for none.
	AtRisk func(ctx context.Context, row journal.Row) (*holdfast.FilesAtRisk, error)
	Clock  func() time.Time
}

// Files are the facts about a session's files and its box.
type Files struct {
	// Workspace is true if the directory of the files exists. HadFiles is true if it existed once, so
	// that its absence is a loss.
	Workspace, HadFiles bool
	// BoxLive is true if the session's box runs and is connected.
	BoxLive bool
}

// Resumes resumes sessions. Safe for concurrent use with different sessions.
type Resumes struct{ cfg Config }

// New returns the Resumes of a server.
func New(cfg Config) *Resumes { return &Resumes{cfg} }

// Plan returns how a session would be resumed. It changes nothing.
func (r *Resumes) Plan(ctx context.Context, row journal.Row, fresh bool) (Plan, error) {
	f, err := r.facts(ctx, row)
	if err != nil {
		return Plan{}, err
	}
	return Decide(f, fresh)
}

func (r *Resumes) facts(ctx context.Context, row journal.Row) (Facts, error) {
	files, err := r.cfg.Files(ctx, row)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Session: row.Session, Files: files, Agent: r.cfg.OwnState(row.Runtime)}
	if f.AtRisk, err = r.cfg.AtRisk(ctx, row); err != nil || f.Workspace {
		return f, err
	}
	f.Snapshot, err = r.cfg.Snapshots.Newest(ctx, row)
	return f, err
}

// Resume makes a plan and executes it. The caller holds the session's lock, and afterwards starts
// the turns that may be queued.
func (r *Resumes) Resume(ctx context.Context, row journal.Row, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	began := r.cfg.Clock()
	if r.cfg.Ready != nil {
		// Call Ready before the resume is recorded: it settles which files a power cut damaged.
		if err := r.cfg.Ready(ctx, row); err != nil {
			return holdfast.Resumed{Session: row.Session}, err
		}
		now, err := r.cfg.Row(ctx, row.ID)
		if err != nil {
			return holdfast.Resumed{Session: row.Session}, err
		}
		row = now
	}
	plan, err := r.Plan(ctx, row, req.Fresh)
	if err != nil {
		return holdfast.Resumed{Session: row.Session}, err
	}
	if plan.FilesLost || plan.Restore != "" {
		// Stop the box, because its processes would go on in the removed directory.
		if err := r.cfg.Stop(ctx, row, "the workspace is gone"); err != nil {
			return holdfast.Resumed{Session: row.Session}, err
		}
	}
	if plan.Restore != "" {
		if err := r.cfg.Snapshots.Restore(ctx, row, plan.Restore); err != nil {
			return holdfast.Resumed{Session: row.Session}, err
		}
	}
	c := journal.NewChange(row.ID)
	c.Status = plan.Walk
	none, no := "", false
	c.Set = &journal.RowPatch{Error: &none}
	if plan.FilesLost {
		// The files are gone: reset the marks, so that the first box gets the agent's files again.
		c.Set.FilesSeeded, c.Set.HadFiles = &no, &no
		if row.Source != nil {
			c.Set.Source = &holdfast.Source{From: row.Source.From, Complete: row.Source.Complete}
		}
	}
	plan.Receipt.DurationMS = clock.Milliseconds(r.cfg.Clock().Sub(began))
	c.Events = []journal.Draft{{Type: holdfast.EventSessionResumed, Data: plan.Receipt}}
	done, err := r.cfg.Journal.Commit(ctx, c)
	if err != nil {
		return holdfast.Resumed{Session: row.Session}, err
	}
	return holdfast.Resumed{Session: done.Row.Session, Receipt: &plan.Receipt}, nil
}

// Failed returns the change that moves a session to error because of err.
func Failed(id holdfast.SessionID, err error) journal.Change {
	c := journal.NewChange(id)
	c.Status = []holdfast.Status{holdfast.StatusError}
	f := holdfast.Failure{Kind: holdfast.KindOf(err), Message: err.Error(), Hint: holdfast.HintOf(err)}
	c.Set = &journal.RowPatch{Error: &f.Message}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionError, Data: f}}
	return c
}

// CutOff returns the error of a resume that the end of the server cut off.
func CutOff(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "session.resume", "the server stopped while session %s was being resumed", id).
		WithHint("holdfast session resume %s", id)
}
