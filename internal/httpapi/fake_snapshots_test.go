package httpapi

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

// fakeSnapshots is a snapshot store in which each session of the fake has a checkpoint for each turn, and
// the checkpoint of each first turn is too old, and damaged.
type fakeSnapshots struct{ f *fakeEngine }

func (s fakeSnapshots) Store(context.Context) (out holdfast.SnapshotStore, err error) {
	err = s.f.see("store")
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for id, turns := range s.f.turns {
		out.Checkpoints += len(turns)
		out.Sessions = append(out.Sessions, holdfast.SessionSnapshots{Session: id, Checkpoints: len(turns), Packs: 1, Bytes: 10})
	}
	return out, err
}

func (s fakeSnapshots) first() (out []holdfast.ReportedCheckpoint) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for id, turns := range s.f.turns {
		if len(turns) > 0 {
			out = append(out, holdfast.ReportedCheckpoint{ID: holdfast.CheckpointID(turns[0].ID), Session: id})
		}
	}
	return out
}

func (s fakeSnapshots) Collect(_ context.Context, dry bool) (holdfast.CollectedSnapshots, error) {
	err := s.f.see([]any{"collect", dry})
	return holdfast.CollectedSnapshots{DryRun: dry, Checkpoints: s.first()}, err
}

func (s fakeSnapshots) Verify(context.Context) (holdfast.VerifiedSnapshots, error) {
	err := s.f.see("verify")
	return holdfast.VerifiedSnapshots{Damaged: s.first()}, err
}
