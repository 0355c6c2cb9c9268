package httpapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

// canary is what no problem may repeat; its halves neither.
const canary = "sk-ant-api03-CANARY.eyJhbGciOi"

// TestProblemsRepeatNoSecret (I-22): a credential in the body of any route, in a
// field that is free text, in one that nobody knows, in a place of another type or
// instead of JSON, comes back in no answer and stands in no log.
func TestProblemsRepeatNoSecret(t *testing.T) {
	log := &logged{}
	_, srv := start(t, func(c *Config) {
		c.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	id := string(createOne(t, srv))
	doc := New(newFake().config()).huma.OpenAPI()
	n := 0
	send := func(method, path, body string) {
		t.Helper()
		n++
		resp, answer := do(t, srv, request{method, path, body, http.Header{"Content-Type": {"application/json"}}})
		wantProblem(t, resp, answer, 400, holdfast.KindInvalid)
		for _, part := range []string{canary[:8], canary[8:], "CANARY", "1234567890"} {
			if strings.Contains(string(answer), part) {
				t.Errorf("%s %s %s: %s", method, path, body, answer)
			}
		}
	}
	quoted := `"` + canary + `"`
	for pattern, op := range spec.Operations(doc) {
		media := jsonBody(op)
		if media == nil {
			continue
		}
		_, path, _ := strings.Cut(pattern, " ")
		to := strings.NewReplacer("{id}", id, "{name}", "anthropic").Replace(path)
		for _, body := range []string{
			canary, quoted, "[" + quoted + "]", `{"valeu":` + quoted + `}`, `{"valeu":[` + quoted + `]}`, `{"valeu":{"value":` + quoted + `}}`,
			`{"body":` + quoted + `}`, `{"valeu":1234567890}`, `{"valeu":` + quoted, `{"":` + quoted + `}`,
		} {
			send(op.Method, to, body)
		}
		for name, s := range resolve(doc, media.Schema).Properties {
			s = resolve(doc, s)
			for _, value := range []string{"[" + quoted + "]", `{"x":` + quoted + `}`, "1234567890", quoted + `,"bogus":1`, `[[` + quoted + `]]`} {
				right := s.Type == "" || s.Type == huma.TypeArray && strings.HasPrefix(value, `["`) || s.Type == huma.TypeObject && value[0] == '{'
				if right || (closed(s) || s.Items != nil && closed(resolve(doc, s.Items))) && !strings.ContainsAny(value, "{[") {
					continue // it is no mistake, or leaves no room for a secret
				}
				send(op.Method, to, `{"`+name+`":`+value+`}`)
			}
		}
	}
	for _, value := range []string{`"eyJhbGciOi.CANARY.sig"`, `"pass word!CANARY"`, "1234567890", `["CANARY"]`, `{"a":"CANARY"}`, "true", "null"} {
		send("PUT", "/v1/secrets/anthropic", `{"value":`+value+`}`)
	}
	send("POST", "/v1/sessions", `{"budget":{"turns":{"a":`+quoted+`}}}`)
	send("POST", "/v1/sessions", `{"budget.turns":`+quoted+`}`)
	send("POST", "/v1/sessions", `{"env":{"A":[`+quoted+`]}}`)
	send("POST", "/v1/sessions/"+id+"/exec", `{"command":"x","env":{"trust":1234567890}}`)
	send("GET", "/v1/sessions?token="+canary, "")
	send("GET", "/v1/sessions?token="+canary+"&limit=%zz", "")
	send("GET", "/v1/sessions?token="+canary+"%ff", "")
	send("GET", "/docs?token="+canary, "")
	if n < 150 {
		t.Errorf("%d requests", n)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if strings.Contains(log.buf.String(), "CANARY") {
		t.Errorf("the log: %s", log.buf.String())
	}
}

// closed reports whether a schema leaves no room for a secret.
func closed(s *huma.Schema) bool {
	return s.Extensions["enum"] != nil || slices.Contains([]string{huma.TypeBoolean, huma.TypeInteger, huma.TypeNumber}, s.Type)
}

func jsonBody(op *huma.Operation) *huma.MediaType {
	if op.RequestBody == nil {
		return nil
	}
	return op.RequestBody.Content["application/json"]
}

func resolve(doc *huma.OpenAPI, s *huma.Schema) *huma.Schema {
	for s != nil && s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	return s
}

// reach adds a schema and all schemas within it to seen.
func reach(doc *huma.OpenAPI, s *huma.Schema, seen map[*huma.Schema]bool) {
	if s = resolve(doc, s); s == nil || seen[s] {
		return
	}
	seen[s] = true
	for _, p := range s.Properties {
		reach(doc, p, seen)
	}
	reach(doc, s.Items, seen)
	values, _ := s.AdditionalProperties.(*huma.Schema)
	reach(doc, values, seen)
}

// TestRequestsAreStrictAtEveryDepth, in the document too; answers may grow.
func TestRequestsAreStrictAtEveryDepth(t *testing.T) {
	doc := New(newFake().config()).huma.OpenAPI()
	requests, answers := map[*huma.Schema]bool{}, map[*huma.Schema]bool{}
	for _, op := range spec.Operations(doc) {
		if media := jsonBody(op); media != nil {
			reach(doc, media.Schema, requests)
		}
		for _, r := range op.Responses {
			for _, media := range r.Content {
				reach(doc, media.Schema, answers)
			}
		}
	}
	objects := 0
	for s := range requests {
		if s.Nullable || answers[s] {
			t.Errorf("%+v: null %v, of answers %v", s, s.Nullable, answers[s])
		}
		for name, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s says nothing of itself: give it a doc tag", name)
			}
		}
		if len(s.Properties) > 0 {
			if objects++; s.AdditionalProperties != false {
				t.Errorf("%v takes any field", s.Properties)
			}
		}
	}
	for s := range answers {
		if s.AdditionalProperties == false {
			t.Errorf("an answer with %v cannot grow", s.Properties)
		}
	}
	if budget := doc.Components.Schemas.Map()["BudgetRequest"]; objects < 14 || !requests[budget] {
		t.Errorf("%d objects in requests, %+v", objects, budget)
	}
}

// TestClosedSetsAreListed in the document: where a schema has a field of such a
// name, its values stand there, and they are the vocabulary's.
func TestClosedSetsAreListed(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Ref   string `json:"$ref"`
					Enum  []string
					Items struct{ Enum []string }
				}
			}
		}
	}
	if err := json.Unmarshal(New(newFake().config()).Spec(), &doc); err != nil {
		t.Fatal(err)
	}
	open := []string{"FileInfo.mode", "AgentFile.mode", "Health.status", "Problem.status"}
	n := 0
	for name, s := range doc.Components.Schemas {
		for field, p := range s.Properties {
			switch field {
			case "mode", "trust", "max_trust", "decision", "scope", "scopes", "status", "state", "tier", "files", "class", "role":
			default:
				continue
			}
			if slices.Contains(open, name+"."+field) || field == "files" && name != "Receipt" {
				continue
			}
			n++
			if len(p.Enum)+len(p.Items.Enum) < 2 {
				t.Errorf("%s.%s lists no values", name, field)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d closed fields", n)
	}
	var modes []string
	for _, mode := range holdfast.Words[holdfast.Mode]() {
		modes = append(modes, string(mode))
	}
	if got := doc.Components.Schemas["CreateSession"].Properties["mode"].Enum; !slices.Equal(got, modes) {
		t.Errorf("modes: %v", got)
	}
}
