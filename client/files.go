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
)

func filePath(id holdfast.SessionID, name string) string { return boxPath(id, "/files", name) }

// boxPath is the route of a path in a box. An absolute path keeps its slash by escaping
// it, since a router takes // for a mistake.
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
		if seg == ".." { // for the box to judge, not for a router to resolve
			seg = "%2E%2E"
		} else {
			seg = url.PathEscape(seg)
		}
		b.WriteString(seg)
	}
	return sessionPath(id, route+"/"+b.String())
}

// ListFiles lists a directory; relative paths are relative to the workspace,
// and the empty one is the workspace itself.
func (c *Client) ListFiles(ctx context.Context, id holdfast.SessionID, name string) (holdfast.FileList, error) {
	p := filePath(id, name)
	if !strings.HasSuffix(p, "/files") {
		p += "/"
	}
	var out holdfast.FileList
	err := c.do(ctx, call{method: http.MethodGet, path: p, slow: true}, &out)
	return out, err
}

// ReadFile opens a file's bytes; the caller closes. invalid for a directory.
func (c *Client) ReadFile(ctx context.Context, id holdfast.SessionID, name string) (io.ReadCloser, error) {
	r := call{method: http.MethodGet, path: filePath(id, name), slow: true}
	resp, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	if resp.Header.Get("Content-Disposition") == "" {
		drop(resp.Body)
		return nil, holdfast.Errorf(holdfast.KindInvalid, "files", "%s is a directory", holdfast.Quote(name)).
			WithHint("holdfast files ls %s %s", id, name)
	}
	return &opened{resp.Body, ctx, r}, nil
}

// WriteFile creates or replaces a file, with its parent directories. Mode 0 is
// 0644; a file that exists keeps its own.
func (c *Client) WriteFile(ctx context.Context, id holdfast.SessionID, name string, data io.Reader, mode uint32) (holdfast.FileInfo, error) {
	q := url.Values{}
	if mode != 0 {
		q.Set("mode", fmt.Sprintf("%04o", mode))
	}
	var out struct {
		File holdfast.FileInfo `json:"file"`
	}
	err := c.do(ctx, call{
		method: http.MethodPut, path: filePath(id, name), query: q, body: data, slow: true,
		head: map[string]string{"Content-Type": "application/octet-stream"},
	}, &out)
	return out.File, err
}

// RemoveFile removes a file, or with recursive a directory and all in it.
func (c *Client) RemoveFile(ctx context.Context, id holdfast.SessionID, name string, recursive bool) error {
	q := url.Values{}
	if recursive {
		q.Set("recursive", "true")
	}
	return c.do(ctx, call{method: http.MethodDelete, path: filePath(id, name), query: q, slow: true}, nil)
}
