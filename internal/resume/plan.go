// Package resume makes paused or failed sessions active again: it gathers facts, decides with a
// pure function, and executes the plan.
//
// The engine owns one Resumes. It imports the journal. Invariant: no loss is silent: the receipt,
// which is recorded with the session's new state, lists what a resume loaded and what was lost.
package resume

import (
	"errors"

	"github.com/holdfast-run/holdfast"
)

// Facts are the facts from which a resume is decided.
type Facts struct {
	Session holdfast.Session
	// Agent is true if the runtime's agent keeps its own conversation. How much of it is left is
	// known only when the agent starts; the receipt of that start (agent_state.started) then has the
	// tier.
	Agent bool
	Files
	// Snapshot is the newest snapshot of the files; empty if there is none.
	Snapshot string
	// AtRisk describes files that a power cut may have taken; nil for none.
	AtRisk *holdfast.FilesAtRisk
}

// Plan is how a session will be resumed. `--dry-run` prints the same plan that a resume executes.
type Plan struct {
	Receipt holdfast.Receipt
	// Walk lists the states that the session goes through; it is empty if the session is active already.
	Walk []holdfast.Status
	// Restore is the snapshot to restore the files from; empty leaves the files as they are.
	Restore string
	// FilesLost is true if the files are lost and the workspace will be created again, empty.
	FilesLost bool
}

// Decide decides how a session is resumed. Existing files stay; missing files come from the newest
// snapshot. If there is no snapshot either, but the session had files, Decide fails with conflict,
// unless fresh accepts the loss.
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
	case s.Status == holdfast.StatusActive:
		p.Walk = nil
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

// errFilesGone is wrapped by the errors of sessions whose files are gone.
var errFilesGone = errors.New("the workspace is gone and no snapshot holds it")

// FilesGone returns the error that refuses to resume a session whose files are gone.
func FilesGone(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindConflict, "session.resume", "session %s cannot be resumed: %w", id, errFilesGone).
		WithHint("holdfast session resume %s --fresh (or fresh: true) goes on with the agent's own files only", id)
}

// AreFilesGone reports whether an error was returned by FilesGone.
func AreFilesGone(err error) bool { return errors.Is(err, errFilesGone) }
