package spec

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// budget is part of requests and of answers.
type budget struct {
	Turns int `json:"turns" doc:"How many."`
}

type output struct {
	Body struct {
		Budget budget        `json:"budget"`
		Mode   holdfast.Mode `json:"mode"`
	}
}

type input struct {
	Path string `path:"path" doc:"The path."`
	Body struct {
		Budget *budget `json:"budget,omitempty" doc:"The limit."`
	}
}

// TestFinish: requests become strict and answers stay open, wildcards go, and each
// operation says what becomes of its key.
func TestFinish(t *testing.T) {
	problem.UseForHuma()
	conf := huma.DefaultConfig("Test", "1")
	conf.CreateHooks = nil
	api := humago.New(http.NewServeMux(), conf)
	op := func(method, id string) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: "/v1/{path...}", Tags: []string{"sessions"}, Summary: id}
	}
	serve := func(context.Context, *input) (*output, error) { return nil, nil }
	huma.Register(api, op(http.MethodPost, "one"), serve)
	huma.Register(api, op(http.MethodPatch, "two"), serve)
	Describe(api.OpenAPI())
	done, err := Finish(api.OpenAPI(), func(pattern string) (bool, string) {
		return pattern == "POST /v1/{path}", map[string]string{"PATCH /v1/{path}": "send it again"}[pattern]
	})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Description string
			Responses   map[string]struct {
				Ref     string `json:"$ref"`
				Headers map[string]any
			}
		}
		Components struct {
			Schemas map[string]struct {
				AdditionalProperties any `json:"additionalProperties"`
			}
		}
	}
	if err := json.Unmarshal(done.JSON, &doc); err != nil {
		t.Fatal(err)
	}
	one, two := doc.Paths["/v1/{path}"]["post"], doc.Paths["/v1/{path}"]["patch"]
	if two.Description != "An Idempotency-Key is refused: send it again." || one.Description != "" {
		t.Errorf("the keys: %q and %q", one.Description, two.Description)
	}
	if one.Responses["200"].Headers[Replayed] == nil || two.Responses["200"].Headers[Replayed] != nil || two.Responses["200"].Headers[problem.RequestID] == nil {
		t.Errorf("the headers: %v and %v", one.Responses, two.Responses)
	}
	if one.Responses["default"].Ref != "#/components/responses/Problem" || len(two.Responses) != 2 {
		t.Errorf("the problems: %v and %v", one.Responses, two.Responses)
	}
	if all := doc.Components.Schemas; all["BudgetRequest"].AdditionalProperties != false || all["Budget"].AdditionalProperties != nil {
		t.Errorf("the schemas: %v", all)
	}
	var patterns []string
	for pattern := range Operations(api.OpenAPI()) {
		patterns = append(patterns, pattern)
	}
	if !slices.Equal(patterns, []string{"POST /v1/{path}", "PATCH /v1/{path}"}) {
		t.Errorf("%q", patterns)
	}
	for _, want := range []string{">POST</span>/v1/{path}<", ">PATCH</span>/v1/{path}<", "Errors are problem documents"} {
		if !strings.Contains(string(done.Page), want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
}
