package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
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
		BodyReadTimeout: -1, // no limit by huma: body.Patient cuts off slow senders
	}
}

// SessionInput is the session id in the path of a request. It is exported because huma ignores
// unexported embedded types.
type SessionInput struct {
	ID string `path:"id" doc:"The session's id, a UUID." example:"01890a5d-ac96-774b-bcce-b302099a8057"`
}

func (in SessionInput) named() (holdfast.SessionID, error) {
	return holdfast.Parse[holdfast.SessionID](in.ID)
}

// handle registers an operation. An error of do becomes a problem document, and its output is ignored then.
func handle[I, O any](a *API, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := do(ctx, in)
		if err != nil {
			return nil, problem.Of(err)
		}
		return out, nil
	})
}

// handleOne registers an operation on one object, such as a session or a key, whose name is in the path of the
// request. do gets the parsed name.
func handleOne[I, O, N any, P interface {
	*I
	named() (N, error)
}](a *API, op huma.Operation, do func(context.Context, N, P) (*O, error)) {
	handle(a, op, func(ctx context.Context, in *I) (*O, error) {
		name, err := P(in).named()
		if err != nil {
			return nil, err
		}
		return do(ctx, name, in)
	})
}

// output is an answer whose whole body is a T.
type output[T any] struct{ Body T }

// bodyOf returns the answer with a body.
func bodyOf[T any](body T, err error) (*output[T], error) { return &output[T]{body}, err }

// some returns list, or an empty list in place of nil, which JSON would show as null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

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
