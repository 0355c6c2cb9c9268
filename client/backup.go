package client

import (
	"context"
	"io"
	"net/http"
	"time"
)

// backupLimit is how long the server may take to prepare a backup before its first byte: it takes the
// snapshots that are due, and copies its database.
const backupLimit = time.Hour

// Backup returns a backup of everything that the server has stored, but its keys; the caller has to close
// it. It is a tar archive compressed by zstd, and whole only if it was read to its end without an error. It
// needs a key with the scope admin.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	return c.content(ctx, call{method: http.MethodPost, path: "/v1/backup", within: backupLimit})
}
