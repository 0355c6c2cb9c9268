package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

// backupType is the media type of a backup.
const backupType = "application/zstd"

func (a *API) backupRoutes() {
	backup := route(http.MethodPost, "/v1/backup", "write-backup", "server", "Write a backup of everything that the server has stored")
	backup.Description = "The server goes on working. The answer is a tar archive compressed by zstd; one that breaks off is no backup. It holds neither the server's keys nor its token."
	backup.Responses = map[string]*huma.Response{"200": {Description: "The backup.", Content: map[string]*huma.MediaType{backupType: spec.Binary()}}}
	handle(a, backup, func(context.Context, *struct{}) (*raw, error) {
		return a.download(backupType, func(ctx context.Context, out *download) error { return a.cfg.Backups.Write(ctx, out) }), nil
	})
}
