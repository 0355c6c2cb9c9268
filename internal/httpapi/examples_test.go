package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

// TestExamples: every JSON body and answer of every operation has one, valid
// against its schema, and problems have one of each kind.
func TestExamples(t *testing.T) {
	a := New(newFake().config())
	doc := a.huma.OpenAPI()
	check := func(what string, media *huma.MediaType, example any, mode huma.ValidateMode) {
		t.Helper()
		if example == nil {
			t.Errorf("%s has no example", what)
			return
		}
		raw, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		res := &huma.ValidateResult{}
		huma.Validate(doc.Components.Schemas, media.Schema, huma.NewPathBuffer([]byte{}, 0), mode, v, res)
		if len(res.Errors) > 0 {
			t.Errorf("%s: %v\n%s", what, res.Errors, raw)
		}
	}
	n := 0
	for pattern, op := range spec.Operations(doc) {
		if op.RequestBody != nil {
			if media := op.RequestBody.Content["application/json"]; media != nil {
				check(op.OperationID+" request", media, media.Example, huma.ModeWriteToServer)
			}
		}
		for status, r := range op.Responses {
			for ct, media := range r.Content {
				if ct == "application/json" || ct == "text/event-stream" {
					n++
					check(op.OperationID+" "+status, media, media.Example, huma.ModeReadFromServer)
				}
			}
		}
		if r := op.Responses["default"]; r == nil || r.Ref != "#/components/responses/Problem" {
			t.Errorf("%s does not share the problem", pattern)
		}
		for _, p := range op.Parameters {
			if p.Description == "" {
				t.Errorf("%s: parameter %s has no description", op.OperationID, p.Name)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d answers only", n)
	}
	shared := doc.Components.Responses["Problem"].Content[problem.MediaType]
	for _, kind := range holdfast.Words[holdfast.Kind]() {
		e := shared.Examples[string(kind)]
		if e == nil {
			t.Errorf("no problem is %s", kind)
			continue
		}
		check(string(kind), shared, e.Value, huma.ModeReadFromServer)
		if p := e.Value.(holdfast.Problem); p.Kind != kind || p.Hint == "" || p.Status != kind.HTTPStatus() {
			t.Errorf("%s: %+v", kind, p)
		}
	}
}

// TestEveryRouteIsDocumented: the table of rules names every route of the
// router, and the document has each of them.
func TestEveryRouteIsDocumented(t *testing.T) {
	doc := New(newFake().config()).huma.OpenAPI()
	described := map[string]bool{}
	for pattern := range spec.Operations(doc) {
		described[pattern] = true
	}
	for pattern := range rules {
		switch pattern {
		case "GET /openapi.json", "GET /docs", "GET /{$}":
			continue
		case "PUT /v1/sessions/{id}/files", "DELETE /v1/sessions/{id}/files":
			continue // refuse the workspace itself
		}
		if !described[strings.ReplaceAll(pattern, "...}", "}")] {
			t.Errorf("%s is not in the document", pattern)
		}
	}
}
