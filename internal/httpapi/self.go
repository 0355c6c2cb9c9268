package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

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
	huma.Register(a.huma, route(http.MethodGet, "/v1/server", "show-server", tag, "Describe the running server"),
		func(ctx context.Context, _ *struct{}) (*serverOutput, error) {
			out := &serverOutput{}
			var err error
			if out.Body.Server, err = a.cfg.Self.Server(ctx); err != nil {
				return nil, a.fail(err)
			}
			return out, nil
		})
	huma.Register(a.huma, route(http.MethodGet, "/v1/models", "list-models", tag, "List the models, asked of their providers, and the default of sessions that name none"),
		func(ctx context.Context, _ *struct{}) (*modelsOutput, error) {
			out := &modelsOutput{}
			out.Body.Models = a.cfg.Self.Models(ctx)
			return out, nil
		})
}
