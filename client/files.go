package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/shellword"
)

func filePath(id holdfast.SessionID, name string) string { return boxPath(id, "/files", name) }

// boxPath returns the URL path for a file path in a box. The slash of an absolute path is
// escaped, because HTTP routers clean up // in URLs.
func boxPath(id holdfast.SessionID, route, name string) string {
	if name = path.Clean(name); name == "." {
		return sessionPath(id, route)
	}
	var b strings.Builder
	rest, absolute := strings.CutPrefix(name, "/")
	if absolute {
		b.WriteString("%2F")
	}
	for i, seg := range strings.Split(rest, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		if seg == ".." { // escape "..", so that no HTTP router resolves it: the box decides whether the path is allowed
			seg = "%2E%2E"
		} else {
			seg = url.PathEscape(seg)
		}
		b.WriteString(seg)
	}
	return sessionPath(id, route+"/"+b.String())
}

// ListFiles lists a directory. A relative path is relative to the workspace; the empty path
// means the workspace itself.
func (c *Client) ListFiles(ctx context.Context, id holdfast.SessionID, name string) (holdfast.FileList, error) {
	return c.ListFilesAt(ctx, id, "", name)
}

// ListFilesAt does what ListFiles does, for the files of a checkpoint or of the end of a turn; an empty at
// means the present files.
func (c *Client) ListFilesAt(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, name string) (holdfast.FileList, error) {
	p := filePath(id, name)
	if !strings.HasSuffix(p, "/files") {
		p += "/"
	}
	return ask[holdfast.FileList](ctx, c, call{method: http.MethodGet, path: p, query: atQuery(at), slow: true})
}

func atQuery(at holdfast.CheckpointID) url.Values {
	q := url.Values{}
	setTexts(q, map[string]string{"at": string(at)})
	return q
}

// ReadFile returns the content of a file; the caller has to close it. It fails with invalid if
// the path is a directory.
func (c *Client) ReadFile(ctx context.Context, id holdfast.SessionID, name string) (io.ReadCloser, error) {
	return c.ReadFileAt(ctx, id, "", name)
}

// ReadFileAt does what ReadFile does, for a file of a checkpoint or of the end of a turn; an empty at means
// the present file.
func (c *Client) ReadFileAt(ctx context.Context, id holdfast.SessionID, at holdfast.CheckpointID, name string) (io.ReadCloser, error) {
	resp, err := c.file(ctx, call{method: http.MethodGet, path: filePath(id, name), query: atQuery(at), slow: true})
	if err != nil {
		return nil, err
	}
	if resp.Header.Get("Content-Disposition") == "" {
		drop(resp.Body)
		return nil, holdfast.Errorf(holdfast.KindInvalid, "files", "%s in the session is a directory, not a file that can be read", holdfast.Quote(name)).
			WithHint("holdfast files ls %s %s", id, shellword.Quote(name))
	}
	return resp.Body, nil
}

// WriteFile creates or replaces a file, and creates its parent directories. Mode 0 means 0666 without the bits of the
// box's umask (usually 022); an existing file keeps its mode.
func (c *Client) WriteFile(ctx context.Context, id holdfast.SessionID, name string, data io.Reader, mode uint32) (holdfast.FileInfo, error) {
	q := url.Values{}
	if mode != 0 {
		q.Set("mode", fmt.Sprintf("%04o", mode))
	}
	return askFor[holdfast.FileInfo](ctx, c, call{
		method: http.MethodPut, path: filePath(id, name), query: q, body: data, slow: true,
		head: map[string]string{"Content-Type": "application/octet-stream"},
	}, "file")
}

// RemoveFile removes a file, or with recursive a directory and everything in it.
func (c *Client) RemoveFile(ctx context.Context, id holdfast.SessionID, name string, recursive bool) error {
	q := url.Values{}
	setTrue(q, "recursive", recursive)
	return c.do(ctx, call{method: http.MethodDelete, path: filePath(id, name), query: q, slow: true}, nil)
}
