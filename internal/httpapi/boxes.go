package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
)

type boxesOutput struct {
	Body struct {
		Containers []holdfast.Container `json:"containers"`
	}
}

type stopInput struct {
	Body holdfast.StopContainers
}

func (a *API) boxRoutes() {
	const tag = "containers"
	handle(a, route(http.MethodGet, "/v1/containers", "list-containers", tag, "List the managed boxes"),
		func(ctx context.Context, _ *struct{}) (*boxesOutput, error) {
			return boxesOf(a.cfg.Self.Containers.Containers(ctx))
		})
	handle(a, route(http.MethodPost, "/v1/containers/stop", "stop-containers", tag, "Stop boxes; answers what was stopped"),
		func(ctx context.Context, in *stopInput) (*boxesOutput, error) {
			if in.Body.All == (len(in.Body.IDs) > 0) {
				return nil, holdfast.Errorf(holdfast.KindInvalid, "containers.stop", "exactly one of the fields ids and all must be set").
					WithHint("holdfast containers list shows the ids")
			}
			return boxesOf(a.cfg.Self.Containers.StopContainers(ctx, in.Body))
		})
	prune := route(http.MethodPost, "/v1/containers/prune", "prune-containers", tag, "Remove what no session needs: boxes of ended sessions, stopped boxes, leftovers")
	prune.Description = "A running or idle box of a live session stays. Sessions, files and logs stay. With dry_run nothing is removed."
	handle(a, prune, func(ctx context.Context, in *dryInput) (*output[holdfast.PrunedContainers], error) {
		return bodyOf(a.cfg.Self.Containers.PruneContainers(ctx, orZero(in.Body).DryRun))
	})
}

func boxesOf(list []holdfast.Container, err error) (*boxesOutput, error) {
	out := &boxesOutput{}
	out.Body.Containers = some(list)
	return out, err
}

// shown returns the part of the server's health that the caller may see: everything with a valid
// token; without one, as probes call, only the status ok.
func shown(ctx context.Context, h holdfast.Health) holdfast.Health {
	if guard.CallerOf(ctx).Stranger() {
		return holdfast.Health{Status: "ok"}
	}
	return h
}

// notReady returns the error that says why the server is not ready for work, or nil if it is ready.
// A caller without a valid token does not get the details.
func (a *API) notReady(ctx context.Context, h holdfast.Health) error {
	stranger := guard.CallerOf(ctx).Stranger()
	switch {
	case a.cfg.Self.Held != nil && stranger:
		return holdfast.Errorf(holdfast.KindUnavailable, "readyz", "the server is not ready: it answers only requests that change nothing").WithHint("send the request with an API key to see the reason")
	case a.cfg.Self.Held != nil:
		return holdfast.Errorf(holdfast.KindUnavailable, "readyz", "the server is not ready, it answers only requests that change nothing: %w", a.cfg.Self.Held).WithHint("%s", holdfast.HintOf(a.cfg.Self.Held))
	case h.Status == "draining" && stranger:
		return holdfast.Errorf(holdfast.KindUnavailable, "readyz", "the server is not ready: it is draining before it stops").WithHint("try again in a moment")
	case h.Status == "draining":
		return holdfast.Errorf(holdfast.KindUnavailable, "readyz", "the server is not ready, it is draining: %d running turns may finish before it stops", h.RunningTurns).
			WithHint("try again in a moment")
	case h.ReadOnly != "" && stranger:
		return holdfast.Errorf(holdfast.KindUnavailable, "readyz", "the server is not ready: its database cannot be written").WithHint("send the request with an API key to see the reason")
	case h.ReadOnly != "":
		return holdfast.Errorf(holdfast.KindUnavailable, "readyz", "the server is not ready, its database cannot be written: %s", h.ReadOnly).
			WithHint("free space on the disk of the database, and writes resume by themselves; if the disk has space, restart the server")
	}
	return nil
}

// healthRoutes registers the routes of probes, which need no token, and of the metrics, which do.
func (a *API) healthRoutes() {
	const tag = "health"
	alive := route(http.MethodGet, "/healthz", "healthz", tag, "Whether the server runs")
	alive.Security = []map[string][]string{}
	alive.Description = "Without a valid key only the status is told, and it is ok as long as the server answers."
	handle(a, alive, func(ctx context.Context, _ *struct{}) (*output[holdfast.Health], error) {
		return bodyOf(shown(ctx, a.cfg.Self.Health(ctx)), nil)
	})
	ready := route(http.MethodGet, "/readyz", "readyz", tag, "Whether the server takes work")
	ready.Security = []map[string][]string{}
	ready.Description = "Without a valid key only the status is told."
	handle(a, ready, func(ctx context.Context, _ *struct{}) (*output[holdfast.Health], error) {
		if err := a.streams.Stopped(); err != nil {
			return nil, err
		}
		h := a.cfg.Self.Health(ctx)
		if err := a.notReady(ctx, h); err != nil {
			return nil, err
		}
		return bodyOf(shown(ctx, h), nil)
	})
	metrics := route(http.MethodGet, "/metrics", "metrics", tag, "Numbers about the server, as Prometheus reads them")
	metrics.Description = "The setting metrics_listen serves them without a token, on a listener of its own."
	metrics.Responses = map[string]*huma.Response{"200": {
		Description: "The text exposition format.",
		Content: map[string]*huma.MediaType{"text/plain": {
			Schema: &huma.Schema{Type: huma.TypeString}, Example: "# HELP holdfast_ready Whether the server takes work, as /readyz says.\n# TYPE holdfast_ready gauge\nholdfast_ready 1\n",
		}},
	}}
	handle(a, metrics, func(context.Context, *struct{}) (*raw, error) {
		return answer(a.cfg.Self.Metrics.ServeHTTP), nil
	})
}
