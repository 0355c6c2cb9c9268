// Package resume brings sessions back that are paused or in error: it gathers facts, decides with a
// pure function, and executes the plan.
//
// The engine owns one Resumes. It imports the journal. Invariant: nothing is lost silently:
// what a resume loads and loses stands in its receipt, which is recorded with the session's new
// state.
package resume

import (
	"errors"

	"github.com/holdfast-run/holdfast"
)

// Facts are what a resume is decided on.
type Facts struct {
	Session holdfast.Session
	// Agent: the runtime's agent keeps a conversation of its own. How much of it is left shows when the
	// agent starts; the receipt of that start (agent_state.started) has the tier then.
	Agent bool
	Files
	// Snapshot is the newest copy of the files; empty for none.
	Snapshot string
	// AtRisk lists files that may be lost since a power cut.
	AtRisk *holdfast.FilesAtRisk
}

// Plan is how a session will be resumed. It is pure: what `--dry-run` prints is
// what would be done.
type Plan struct {
	Receipt holdfast.Receipt
	// Walk are the states the session goes through.
	Walk []holdfast.Status
	// Restore is the snapshot that the files are made from; empty: they stay as they are.
	Restore string
	// FilesLost: the workspace will be made again, empty.
	FilesLost bool
}

// Decide decides how a session is resumed. Files that are there stay; files that are gone come
// from the newest snapshot. If there is none, the error is conflict, unless fresh accepts the loss.
func Decide(f Facts, fresh bool) (Plan, error) {
	s := f.Session
	p := Plan{
		Walk: []holdfast.Status{holdfast.StatusStarting, holdfast.StatusActive},
		Receipt: holdfast.Receipt{
			From: s.Status, Tier: holdfast.TierRebuilt, Path: "cold",
			Turns: s.CompletedTurns, Events: s.LastSeq, Files: holdfast.FilesKept, Box: "none", AtRisk: f.AtRisk,
		},
	}
	switch {
	case s.Status == holdfast.StatusEnded:
		return p, holdfast.Errorf(holdfast.KindGone, "session.resume", "session %s has ended", s.ID).
			WithHint("holdfast session create starts a new one")
	case s.Status == holdfast.StatusStarting:
		p.Walk = p.Walk[1:]
	}
	if s.CompletedTurns == 0 {
		p.Receipt.Tier = holdfast.TierFresh
	}
	switch {
	case f.Workspace:
	case f.Snapshot != "":
		p.Restore = f.Snapshot
		p.Receipt.Files = holdfast.FilesRestored
	case !f.HadFiles:
		p.Receipt.Files = holdfast.FilesEmpty
	case !fresh:
		return p, FilesGone(s.ID)
	default:
		p.FilesLost = true
		p.Receipt.Files = holdfast.FilesLost
		p.Receipt.Lost = append(p.Receipt.Lost, "all files of the workspace")
	}
	if f.BoxLive && f.Workspace {
		p.Receipt.Path, p.Receipt.Tier, p.Receipt.Box = "fast", holdfast.TierLive, "kept"
	}
	if f.Agent && p.Receipt.Tier != holdfast.TierFresh {
		p.Receipt.Tier = holdfast.TierPending
	}
	return p, nil
}

// errFilesGone is in the chain of the error of a session whose files are gone.
var errFilesGone = errors.New("the workspace is gone and no snapshot holds it")

// FilesGone is the refusal of a session whose files are gone.
func FilesGone(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindConflict, "session.resume", "session %s: %w", id, errFilesGone).
		WithHint("holdfast session resume %s --fresh (or fresh: true) goes on with the agent's own files only", id)
}

// AreFilesGone reports whether an error is FilesGone.
func AreFilesGone(err error) bool { return errors.Is(err, errFilesGone) }
