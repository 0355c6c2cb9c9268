package engine

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/place"
)

// loopRuntime is the runtime that runs in the server. It keeps nothing of a
// conversation beside the log.
const loopRuntime = "native"

// Facts are what a resume is decided on.
type Facts struct {
	Session holdfast.Session
	// Agent: its runtime's agent keeps a conversation of its own. How that is had back
	// is found out when the agent is started, and told by a receipt of its own.
	Agent bool
	// BoxLive: the session's box runs and is connected.
	BoxLive bool
	// Workspace: the directory of the session's files is there. HadFiles: it was
	// there once, so that its absence is a loss.
	Workspace, HadFiles bool
	// AtRisk lists files that may be lost since a power cut.
	AtRisk *holdfast.FilesAtRisk
}

// Plan is how a session will be resumed. It is pure: what `--dry-run` prints is
// what would be done.
type Plan struct {
	Receipt holdfast.Receipt
	// Walk are the states the session goes through.
	Walk []holdfast.Status
	// FilesLost: the workspace will be made anew, empty.
	FilesLost bool
}

// PlanResume decides how a session is resumed. Never silently less: when files
// are gone and nothing holds them, it is conflict unless fresh accepts that.
func PlanResume(f Facts, fresh bool) (Plan, error) {
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
	case !f.HadFiles:
		p.Receipt.Files = holdfast.FilesEmpty
	case !fresh:
		return p, place.FilesGone(s.ID)
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
