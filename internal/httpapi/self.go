package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

type modelsOutput struct {
	Body struct {
		Models holdfast.Models `json:"models"`
	}
}

type serverOutput struct {
	Body struct {
		Server holdfast.Server `json:"server"`
	}
}

func (a *API) selfRoutes() {
	const tag = "server"
	handle(a, route(http.MethodGet, "/v1/server", "show-server", tag, "Describe the running server"),
		func(ctx context.Context, _ *struct{}) (*serverOutput, error) {
			out := &serverOutput{}
			var err error
			out.Body.Server, err = a.cfg.Self.Server(ctx)
			return out, err
		})
	handle(a, route(http.MethodGet, "/v1/models", "list-models", tag, "List the models, asked of their providers, and the default of sessions that name none"),
		func(ctx context.Context, _ *struct{}) (*modelsOutput, error) {
			out := &modelsOutput{}
			out.Body.Models = a.cfg.Self.Models(ctx)
			return out, nil
		})
}
