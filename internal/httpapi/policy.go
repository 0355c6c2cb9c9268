package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

// maxExplain is the largest body, in bytes, of a request to explain a tool call: room for the
// longest command with every character escaped. It is small because read-only keys may send one.
const maxExplain = 512 << 10

type explainInput struct {
	SessionInput
	Body holdfast.ExplainPolicy
}

func (a *API) policyRoutes() {
	r := route(http.MethodPost, "/v1/sessions/{id}/policy/explain", "explain-policy", "policy", "Say how a tool call would be decided, and why; nobody is asked")
	r.MaxBodyBytes = maxExplain
	handleOne(a, r, a.explainPolicy)
}

func (a *API) explainPolicy(ctx context.Context, id holdfast.SessionID, in *explainInput) (*output[holdfast.PolicyExplanation], error) {
	return bodyOf(a.cfg.Sessions.Explain(ctx, id, in.Body))
}
