package httpapi

import (
	"context"
	"io"
	"slices"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// fakeCheckpoints behaves like the engine's side of checkpoints where the API can see it: each turn of a
// session has one, and a rewind moves nothing.
type fakeCheckpoints struct{ f *fakeEngine }

// find returns the checkpoint of a session with this id, the newest one for an empty id.
func (c fakeCheckpoints) find(ctx context.Context, id holdfast.SessionID, cp holdfast.CheckpointID) (holdfast.Checkpoint, error) {
	page, err := c.all(ctx, id)
	if err != nil {
		return holdfast.Checkpoint{}, err
	}
	for _, one := range page {
		if cp == "" || one.ID == cp {
			return one, nil
		}
	}
	return holdfast.Checkpoint{}, journal.NoCheckpoint(id, cp)
}

func (c fakeCheckpoints) all(ctx context.Context, id holdfast.SessionID) ([]holdfast.Checkpoint, error) {
	if _, err := c.f.Session(ctx, id); err != nil {
		return nil, err
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	var out []holdfast.Checkpoint
	for _, t := range slices.Backward(c.f.turns[id]) {
		out = append(out, holdfast.Checkpoint{
			Held: c.f.held[holdfast.CheckpointID(t.ID)],
			ID:   holdfast.CheckpointID(t.ID), Session: id, Reason: holdfast.CheckpointTurn, Seq: t.MessageSeq, Turn: t.ID, Number: t.Number, Files: 2, Bytes: 6,
		})
	}
	return out, nil
}

func (c fakeCheckpoints) List(ctx context.Context, id holdfast.SessionID, cursor string, limit int) (holdfast.CheckpointPage, error) {
	all, err := c.all(ctx, id)
	if serr := c.f.see([]any{cursor, limit}); err == nil {
		err = serr
	}
	if err != nil {
		return holdfast.CheckpointPage{}, err
	}
	at := 0
	if cursor != "" {
		if at, err = strconv.Atoi(cursor); err != nil || at < 0 || at > len(all) {
			return holdfast.CheckpointPage{}, holdfast.Errorf(holdfast.KindInvalid, "checkpoint", "%s is not a cursor", holdfast.Quote(cursor)).
				WithHint("pass the next of the page before")
		}
	}
	if limit == 0 {
		limit = 50
	}
	page := holdfast.CheckpointPage{Checkpoints: all[at:min(at+limit, len(all))]}
	if at+limit < len(all) {
		page.Next = strconv.Itoa(at + limit)
	}
	return page, nil
}

func (c fakeCheckpoints) Hold(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, held bool) (holdfast.Checkpoint, error) {
	if _, err := c.find(ctx, id, at); err != nil {
		return holdfast.Checkpoint{}, err
	}
	c.f.mu.Lock()
	c.f.held[at] = held
	c.f.mu.Unlock()
	cp, err := c.find(ctx, id, at)
	if serr := c.f.see([]any{at, held}); err == nil { // the newest request is the hold again
		err = serr
	}
	return cp, err
}

func (c fakeCheckpoints) Rewind(ctx context.Context, id holdfast.SessionID, req holdfast.RewindSession) (holdfast.RewoundSession, error) {
	cp, err := c.find(ctx, id, req.To)
	if err != nil {
		return holdfast.RewoundSession{}, err
	}
	s, err := c.f.Session(ctx, id)
	if serr := c.f.see(req); err == nil { // the newest request is the rewind again
		err = serr
	}
	return holdfast.RewoundSession{Session: s, Rewound: holdfast.Rewound{Checkpoint: cp.ID, Seq: cp.Seq, Kept: questionTurn, Files: holdfast.FilesRestored}}, err
}

func (c fakeCheckpoints) Fork(ctx context.Context, id holdfast.SessionID, req holdfast.ForkSession, key string) (holdfast.Session, bool, error) {
	if _, err := c.find(ctx, id, req.At); err != nil {
		return holdfast.Session{}, false, err
	}
	s, replayed, err := c.f.Create(ctx, holdfast.CreateSession{ID: string(req.ID), Title: req.Title}, key)
	if serr := c.f.see(req); err == nil { // the newest request is the fork again
		err = serr
	}
	return s, replayed, err
}

func (c fakeCheckpoints) Diff(_ context.Context, _ holdfast.SessionID, of holdfast.CompareCheckpoints, w io.Writer) (string, error) {
	if err := c.f.see(of); err != nil {
		return "", err
	}
	_, err := io.WriteString(w, "+stored\n")
	return "compared one\nand two", err
}

func (c fakeCheckpoints) ReadFile(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, path string, w io.Writer) error {
	if _, err := c.find(ctx, id, at); err != nil {
		return err
	}
	if err := c.f.see([]any{at, path}); err != nil {
		return err
	}
	switch path {
	case "dir":
		return holdfast.Errorf(holdfast.KindInvalid, "checkpoint.files", "%q is a directory", path)
	case "secret":
		return holdfast.Errorf(holdfast.KindDenied, "checkpoint.files", "%q is hidden", path)
	}
	_, err := io.WriteString(w, "stored "+path)
	return err
}

func (c fakeCheckpoints) ListFiles(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, path string) (holdfast.FileList, error) {
	if _, err := c.find(ctx, id, at); err != nil {
		return holdfast.FileList{}, err
	}
	return holdfast.FileList{Entries: []holdfast.FileInfo{{Path: "in " + path, Type: "file"}}}, c.f.see([]any{at, path})
}

func (c fakeCheckpoints) RestoreFiles(ctx context.Context, id holdfast.SessionID, req holdfast.RestoreFiles) (holdfast.Copied, holdfast.CheckpointID, error) {
	if _, err := c.find(ctx, id, req.At); err != nil {
		return holdfast.Copied{}, "", err
	}
	return holdfast.Copied{Files: 1}, req.At, c.f.see(req)
}
