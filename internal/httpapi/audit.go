package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
)

// lineType is the media type of a text with one JSON value on each line.
const lineType = "application/jsonl"

type auditInput struct {
	After string `query:"after" doc:"Only the records after this one, as CHAIN:N; absent is all of them."`
}

func (a *API) auditRoutes() {
	const tag = "audit"
	export := route(http.MethodGet, "/v1/audit", "export-audit", tag, "Export the audit log, as lines that holdfast audit verify checks")
	export.Responses = map[string]*huma.Response{"200": {
		Description: "A header, records, signed heads and a closing line, as docs/format/audit.md defines them. " +
			"An answer without the closing line is cut.",
		Content: map[string]*huma.MediaType{lineType: {Schema: &huma.Schema{Type: "string", Description: "A JSON object on each line."}}},
	}}
	handle(a, export, a.exportAudit)
	handle(a, route(http.MethodGet, "/v1/audit/head", "read-audit-head", tag,
		"The newest record of the server's audit chain, signed; kept elsewhere it shows later whether the chain was cut"),
		func(ctx context.Context, _ *struct{}) (*output[holdfast.AuditHead], error) {
			return bodyOf(a.cfg.Audit.Head(ctx))
		})
}

func (a *API) exportAudit(ctx context.Context, in *auditInput) (*raw, error) {
	write, err := a.cfg.Audit.Export(ctx, in.After)
	if err != nil {
		return nil, err
	}
	return answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", lineType)
		w.Header().Set("Cache-Control", "no-store")
		if r.Method == http.MethodHead {
			return
		}
		if err := write(r.Context(), w); err != nil && !holdfast.IsKind(err, holdfast.KindInternal) {
			// The status is sent already: only a broken connection shows that lines are
			// missing. The last line of the export itself reports a damaged log.
			panic(http.ErrAbortHandler)
		} else if err != nil {
			a.cfg.Log.ErrorContext(r.Context(), "the export of the audit log failed", "error", err)
		}
	}), nil
}
