package main

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// heldArgs names a checkpoint to hold or to release.
type heldArgs struct {
	ID         string `arg:"" help:"${session}"`
	Checkpoint string `arg:"" help:"Which one: the id of a checkpoint or turn, or the number of a turn, as '#3'."`
}

type sessionHoldCmd struct {
	Of heldArgs `embed:""`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionHoldCmd) Help() string {
	return `The server removes old checkpoints by the settings snapshots.keep, snapshots.max_age and snapshots.quota, but never one that is held. Only deleting the session removes it. A turn that changed no file has the files of the checkpoint before, so the two are held and released together.

Examples:
  holdfast session hold $id '#3'       # the end of turn 3
  holdfast session hold $id 8b1e9f2a   # a checkpoint of the list`
}

// Run holds a checkpoint.
func (s *sessionHoldCmd) Run(e *env) error {
	return s.Of.apply(e, (*client.Client).HoldCheckpoint, "is held; to release it: holdfast session release")
}

type sessionReleaseCmd struct {
	Of heldArgs `embed:""`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*sessionReleaseCmd) Help() string {
	return `The rules of the server apply to the checkpoint again. Nothing is removed at once.

Examples:
  holdfast session release $id '#3'`
}

// Run releases a checkpoint.
func (s *sessionReleaseCmd) Run(e *env) error {
	return s.Of.apply(e, (*client.Client).ReleaseCheckpoint, "is not held; to hold it: holdfast session hold")
}

// apply holds or releases the checkpoint by call, and prints the outcome with the command that undoes it.
func (h heldArgs) apply(e *env, call func(*client.Client, context.Context, holdfast.SessionID, holdfast.CheckpointID) (holdfast.Checkpoint, error), says string) error {
	c, id, err := e.onSession(h.ID)
	if err != nil {
		return err
	}
	at, err := checkpointOf(e.ctx, c, id, h.Checkpoint)
	if err != nil {
		return err
	}
	cp, err := call(c, e.ctx, id, at)
	if err != nil {
		return err
	}
	return e.say(map[string]any{"checkpoint": cp}, "checkpoint %s %s %s %s", line(string(cp.ID)), says, id, line(string(cp.ID)))
}
