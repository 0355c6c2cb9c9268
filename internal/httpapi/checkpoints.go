package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

type checkpointsInput struct {
	SessionInput
	Cursor string `query:"cursor" doc:"The next of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"The page size; 50 when absent."`
}

type holdInput struct {
	SessionInput
	Checkpoint string `path:"checkpoint" doc:"The checkpoint, or the turn at whose end it is."`
}

type heldOutput struct {
	Body struct {
		Checkpoint holdfast.Checkpoint `json:"checkpoint"`
	}
}

type rewindInput struct {
	SessionInput
	Body holdfast.RewindSession
}

type restoreInput struct {
	SessionInput
	Body holdfast.RestoreFiles
}

type forkInput struct {
	SessionInput
	Key  string `header:"Idempotency-Key" doc:"Makes a repeated request answer with the first one's session."`
	Body *holdfast.ForkSession
}

func (a *API) checkpointRoutes() {
	const tag, one = "sessions", "/v1/sessions/{id}"
	handleOne(a, route(http.MethodGet, one+"/checkpoints", "list-checkpoints", tag, "List the points that a session can return to, newest first"), a.listCheckpoints)

	hold := route(http.MethodPost, one+"/checkpoints/{checkpoint}/hold", "hold-checkpoint", tag, "Hold a checkpoint, so that the server never removes it by its rules")
	hold.Description = "A turn that changed no file has the files of the checkpoint before: that one is held. Deleting the session removes held checkpoints too."
	handleOne(a, hold, a.hold(true))
	handleOne(a, route(http.MethodDelete, one+"/checkpoints/{checkpoint}/hold", "release-checkpoint", tag, "Release a checkpoint that is held"), a.hold(false))

	rewind := route(http.MethodPost, one+"/rewind", "rewind-session", tag, "Move a session back to a checkpoint")
	rewind.Description = "The present is kept as a checkpoint first: a rewind to it undoes this one."
	handleOne(a, rewind, a.rewindSession)

	fork := route(http.MethodPost, one+"/fork", "fork-session", tag, "Make a new session that continues from a checkpoint of this one")
	fork.Description = "The new session has copies of the conversation and of the files; neither session sees what the other one does later."
	fork.DefaultStatus = http.StatusCreated
	handleOne(a, fork, a.forkSession)

	restore := route(http.MethodPost, one+"/restore", "restore-files", "files", "Put a file or directory of a checkpoint back into the files")
	restore.Description = "It is written through the session's box, whole or not at all. What a directory has besides stays."
	handleOne(a, restore, a.restoreFiles)
}

func (a *API) listCheckpoints(ctx context.Context, id holdfast.SessionID, in *checkpointsInput) (*output[holdfast.CheckpointPage], error) {
	page, err := a.cfg.Checkpoints.List(ctx, id, in.Cursor, in.Limit)
	page.Checkpoints = some(page.Checkpoints)
	return bodyOf(page, err)
}

// hold returns the handler that holds a checkpoint if held is true, and the one that releases it otherwise.
func (a *API) hold(held bool) func(context.Context, holdfast.SessionID, *holdInput) (*heldOutput, error) {
	return func(ctx context.Context, id holdfast.SessionID, in *holdInput) (*heldOutput, error) {
		at, err := holdfast.Parse[holdfast.CheckpointID](in.Checkpoint)
		if err != nil {
			return nil, err
		}
		out := &heldOutput{}
		out.Body.Checkpoint, err = a.cfg.Checkpoints.Hold(ctx, id, at, held)
		return out, err
	}
}

func (a *API) rewindSession(ctx context.Context, id holdfast.SessionID, in *rewindInput) (*output[holdfast.RewoundSession], error) {
	var err error
	if in.Body.To, err = holdfast.Parse[holdfast.CheckpointID](string(in.Body.To)); err != nil {
		return nil, err
	}
	return bodyOf(a.cfg.Checkpoints.Rewind(ctx, id, in.Body))
}

func (a *API) forkSession(ctx context.Context, id holdfast.SessionID, in *forkInput) (*createdOutput, error) {
	req := orZero(in.Body)
	var err error
	if req.At != "" {
		req.At, err = holdfast.Parse[holdfast.CheckpointID](string(req.At))
	}
	if err == nil && req.ID != "" {
		req.ID, err = holdfast.Parse[holdfast.SessionID](string(req.ID))
	}
	if err != nil {
		return nil, err
	}
	s, replayed, err := a.cfg.Checkpoints.Fork(ctx, id, req, in.Key)
	return created(s, replayed), err
}

func (a *API) restoreFiles(ctx context.Context, id holdfast.SessionID, in *restoreInput) (*copiedOutput, error) {
	var err error
	if in.Body.At, err = holdfast.Parse[holdfast.CheckpointID](string(in.Body.At)); err != nil {
		return nil, err
	}
	ctx, cancel := a.streams.Join(ctx)
	defer cancel()
	out := &copiedOutput{}
	out.Body.Copied, out.Body.Kept, err = a.cfg.Checkpoints.RestoreFiles(ctx, id, in.Body)
	return out, err
}

// compared returns the checkpoints that a diff request compares. ok is false if the session started from git and the
// request names neither a checkpoint nor the home: then the diff compares the present files with those of the import.
func (a *API) compared(ctx context.Context, id holdfast.SessionID, in *diffInput) (c holdfast.CompareCheckpoints, ok bool, err error) {
	c = holdfast.CompareCheckpoints{From: holdfast.CheckpointID(in.From), To: holdfast.CheckpointID(in.To), Format: holdfast.DiffFormat(in.Format), Home: in.Home}
	if c.From == "" && c.To == "" {
		s, err := a.cfg.Views.Session(ctx, id)
		if err != nil || s.Source != nil && s.Source.Start != "" && !c.Home {
			return c, false, err
		}
		c.From = holdfast.CheckpointStart
	}
	for _, cp := range []*holdfast.CheckpointID{&c.From, &c.To} {
		if *cp != "" && (*cp != holdfast.CheckpointStart || cp == &c.To) {
			if *cp, err = holdfast.Parse[holdfast.CheckpointID](string(*cp)); err != nil {
				return c, false, err
			}
		}
	}
	return c, true, nil
}

// kept implements filesOf for the files of a checkpoint.
type kept struct {
	of Checkpoints
	at holdfast.CheckpointID
}

func (k kept) ReadFile(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) error {
	return k.of.ReadFile(ctx, id, k.at, path, w)
}

func (k kept) ListFiles(ctx context.Context, id holdfast.SessionID, path string) (holdfast.FileList, error) {
	return k.of.ListFiles(ctx, id, k.at, path)
}
