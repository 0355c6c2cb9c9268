package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
)

// route describes an operation. Its id is the name of the operation in the document.
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

// SessionInput is the input of the routes below a session. It is exported because
// huma does not look into unexported embedded types.
type SessionInput struct {
	ID string `path:"id" doc:"The session's id, a UUID." example:"01890a5d-ac96-774b-bcce-b302099a8057"`
}

func (in SessionInput) session() (holdfast.SessionID, error) { return holdfast.ParseSessionID(in.ID) }

// plain gives a handler the request and the writer, for uploads and for answers that go
// on, which huma has no types for. It is embedded in an input type.
type plain struct {
	r *http.Request
	w http.ResponseWriter
}

// Resolve is called by huma once the parameters are read.
func (p *plain) Resolve(ctx huma.Context) []error {
	p.r, p.w = humago.Unwrap(ctx)
	return nil
}

// raw is an answer that its handler writes without huma.
type raw struct {
	Body func(huma.Context)
}

func answer(write func(w http.ResponseWriter, r *http.Request)) *raw {
	return &raw{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		write(w, r)
	}}
}
