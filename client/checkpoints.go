package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

// Checkpoints returns one page of a session's checkpoints, newest first. cursor is the Next of the
// page before, empty for the first page; limit is at most 1000, 0 means 50.
func (c *Client) Checkpoints(ctx context.Context, id holdfast.SessionID, cursor string, limit int) (holdfast.CheckpointPage, error) {
	q := url.Values{}
	setTexts(q, map[string]string{"cursor": cursor})
	setInt(q, "limit", int64(limit))
	return ask[holdfast.CheckpointPage](ctx, c, call{method: http.MethodGet, path: sessionPath(id, "/checkpoints"), query: q})
}

// AllCheckpoints yields the checkpoints of all pages, newest first. It ends after the first error.
func (c *Client) AllCheckpoints(ctx context.Context, id holdfast.SessionID) iter.Seq2[holdfast.Checkpoint, error] {
	return pages("", func(cursor string) ([]holdfast.Checkpoint, string, error) {
		page, err := c.Checkpoints(ctx, id, cursor, 1000)
		return page.Checkpoints, page.Next, err
	})
}

// HoldCheckpoint holds a checkpoint of a session, so that the server's rules of retention never remove it. at is
// the id of the checkpoint, or of the turn at whose end it is. If that turn changed no file, the checkpoint before
// is held, which has the same files. It returns the checkpoint, now held; not_found for an unknown one, conflict for
// one without files. It may be repeated.
func (c *Client) HoldCheckpoint(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID) (holdfast.Checkpoint, error) {
	return c.holding(ctx, http.MethodPost, id, at)
}

// ReleaseCheckpoint ends the hold that HoldCheckpoint made and returns the checkpoint. It fails as HoldCheckpoint does.
func (c *Client) ReleaseCheckpoint(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID) (holdfast.Checkpoint, error) {
	return c.holding(ctx, http.MethodDelete, id, at)
}

func (c *Client) holding(ctx context.Context, method string, id holdfast.SessionID, at holdfast.CheckpointID) (holdfast.Checkpoint, error) {
	return askFor[holdfast.Checkpoint](ctx, c, call{method: method, path: sessionPath(id, "/checkpoints/"+url.PathEscape(string(at))+"/hold")}, "checkpoint")
}

// Rewind moves a session back to a checkpoint; conflict if a turn runs and req.Interrupt is false. The
// answer names the checkpoint of the session as it was before: a rewind to it undoes this one. After
// the error unavailable it is not known whether the session was moved; Rewind may be repeated.
func (c *Client) Rewind(ctx context.Context, id holdfast.SessionID, req holdfast.RewindSession) (holdfast.RewoundSession, error) {
	return ask[holdfast.RewoundSession](ctx, c, call{method: http.MethodPost, path: sessionPath(id, "/rewind"), body: req, within: copyLimit})
}

// Fork makes a new session that continues from a checkpoint of this one. With an idempotency key it
// may be repeated: each repetition returns the session that the first request made.
func (c *Client) Fork(ctx context.Context, id holdfast.SessionID, req holdfast.ForkSession, key string) (holdfast.Session, error) {
	return c.session(ctx, call{method: http.MethodPost, path: sessionPath(id, "/fork"), body: req, key: key, within: copyLimit})
}

// RestoreFiles writes a file of a checkpoint, or the files of a directory, into the session's files, completely or
// not at all. After the error unavailable it is not known whether they were written; RestoreFiles may be repeated.
// In a workspace that is not the session's alone, kept is a checkpoint with the files as they were before.
func (c *Client) RestoreFiles(ctx context.Context, id holdfast.SessionID, req holdfast.RestoreFiles) (sum holdfast.Copied, kept holdfast.CheckpointID, err error) {
	var out struct {
		Copied holdfast.Copied       `json:"copied"`
		Kept   holdfast.CheckpointID `json:"kept_checkpoint_id"`
	}
	err = c.do(ctx, call{method: http.MethodPost, path: sessionPath(id, "/restore"), body: req, within: copyLimit}, &out)
	return out.Copied, out.Kept, err
}
