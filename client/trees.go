package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-run/holdfast"
)

// copyLimit is how long the server may take to answer a request that copies, imports, compares, restores, rewinds
// or forks files, or that collects snapshots. For an archive the time counts after the server has received all of it.
const copyLimit = 10 * time.Minute

const tarType = "application/x-tar"

func treePath(id holdfast.SessionID, name string) string { return boxPath(id, "/tree", name) }

// ReadTree returns a tar archive of a file, or of a directory with everything in it; the caller
// has to close it. The first entry of a directory's archive is "./".
func (c *Client) ReadTree(ctx context.Context, id holdfast.SessionID, name string) (io.ReadCloser, error) {
	return c.content(ctx, call{method: http.MethodGet, path: treePath(id, name), slow: true})
}

// WriteTree extracts a tar archive into a session's files, completely or not at all. After the
// error unavailable it is not known whether it was extracted; WriteTree may be repeated.
func (c *Client) WriteTree(ctx context.Context, id holdfast.SessionID, to holdfast.CopyTo, tar io.Reader) (holdfast.Copied, error) {
	q := url.Values{}
	setTexts(q, map[string]string{"as": to.Name})
	setTrue(q, "into", to.Into)
	setTrue(q, "file", to.File)
	return askFor[holdfast.Copied](ctx, c, call{
		method: http.MethodPut, path: treePath(id, to.Path), query: q, body: tar, within: copyLimit,
		head: map[string]string{"Content-Type": tarType},
	}, "copied")
}

// Import uploads the first files of a session that was created with a Source. It may be
// repeated until it succeeds.
func (c *Client) Import(ctx context.Context, id holdfast.SessionID, tar io.Reader) (holdfast.Imported, error) {
	return ask[holdfast.Imported](ctx, c, call{
		method: http.MethodPut, path: sessionPath(id, "/import"), body: tar, within: copyLimit,
		head: map[string]string{"Content-Type": tarType},
	})
}

// Diff writes the changes in a session's files since their import to w. The notes say what could
// not be compared. Do not trust the diff: git makes it in the box, which the agent controls. If the
// session did not start from git, Diff compares its first checkpoint with the newest one.
func (c *Client) Diff(ctx context.Context, id holdfast.SessionID, format holdfast.DiffFormat, w io.Writer) (notes string, err error) {
	return c.DiffCheckpoints(ctx, id, holdfast.CompareCheckpoints{Format: format}, w)
}

// DiffCheckpoints writes the difference between the files of two checkpoints to w. The notes say which
// were compared, and what is left out. If From and To are empty, it does what Diff does.
func (c *Client) DiffCheckpoints(ctx context.Context, id holdfast.SessionID, of holdfast.CompareCheckpoints, w io.Writer) (notes string, err error) {
	q := url.Values{}
	setTexts(q, map[string]string{"format": string(of.Format), "from": string(of.From), "to": string(of.To)})
	setTrue(q, "home", of.Home)
	resp, err := c.file(ctx, call{method: http.MethodGet, path: sessionPath(id, "/diff"), query: q, within: copyLimit})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		if known := (*holdfast.Error)(nil); errors.As(err, &known) {
			return "", err
		}
		return "", holdfast.Errorf(holdfast.KindInternal, "client", "the diff cannot be written: %w", err)
	}
	if notes, err = url.PathUnescape(resp.Trailer.Get("Holdfast-Notes")); err != nil {
		return "", foreign(holdfast.KindInternal, "the notes on the diff from the server cannot be read: %v", err)
	}
	return notes, nil
}
