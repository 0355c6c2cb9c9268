package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
)

// route returns the huma description of an operation. id is its name in the OpenAPI document.
func route(method, path, id, tag, summary string) huma.Operation {
	return huma.Operation{
		OperationID:     id,
		Method:          method,
		Path:            path,
		Summary:         summary,
		Tags:            []string{tag},
		Security:        []map[string][]string{{"owner": {}}},
		MaxBodyBytes:    body.Small,
		BodyReadTimeout: -1, // body.Patient limits the sender
	}
}

// SessionInput is the session id in the path of a request. It is exported because huma ignores
// unexported embedded types.
type SessionInput struct {
	ID string `path:"id" doc:"The session's id, a UUID." example:"01890a5d-ac96-774b-bcce-b302099a8057"`
}

func (in SessionInput) session() (holdfast.SessionID, error) { return holdfast.ParseSessionID(in.ID) }

// plain gives a handler the HTTP request and the response writer, for uploads and streams, which
// huma has no types for. It is embedded in an input type.
type plain struct {
	r *http.Request
	w http.ResponseWriter
}

// Resolve stores the request and the writer. huma calls it once it has read the parameters.
func (p *plain) Resolve(ctx huma.Context) []error {
	p.r, p.w = humago.Unwrap(ctx)
	return nil
}

// raw is an answer that a function writes directly to the response, without huma.
type raw struct {
	Body func(huma.Context)
}

func answer(write func(w http.ResponseWriter, r *http.Request)) *raw {
	return &raw{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		write(w, r)
	}}
}
