package spec

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// splitSchemas makes the schemas of requests strict at every depth: they allow no unknown fields
// and no null. Schemas of answers allow unknown fields, because a strict client would fail at the
// first field that a release adds. A schema that requests and answers share is split into two.
func splitSchemas(doc *huma.OpenAPI) {
	answers, requests := map[*huma.Schema]bool{}, map[*huma.Schema]bool{}
	for _, op := range Operations(doc) {
		for _, r := range op.Responses {
			for _, media := range r.Content {
				reach(doc, media.Schema, answers)
			}
		}
	}
	for _, op := range Operations(doc) {
		if media := jsonBody(op); media != nil {
			harden(doc, media.Schema, answers, requests)
		}
	}
	for _, s := range doc.Components.Schemas.Map() {
		if s.AdditionalProperties == false && !requests[s] {
			s.AdditionalProperties = nil
		}
	}
}

// reach adds a schema and all schemas within it to seen.
func reach(doc *huma.OpenAPI, s *huma.Schema, seen map[*huma.Schema]bool) {
	if s = resolve(doc, s); s == nil || seen[s] {
		return
	}
	seen[s] = true
	for _, one := range within(s) {
		reach(doc, one, seen)
	}
}

// harden makes a schema of requests strict, with all schemas within it. If answers use a schema
// too, harden makes a strict copy and refers the request to that.
func harden(doc *huma.OpenAPI, s *huma.Schema, answers, done map[*huma.Schema]bool) {
	if s.Ref != "" {
		if answers[resolve(doc, s)] {
			s.Ref = copied(doc, s.Ref)
		}
		s = resolve(doc, s)
	}
	if done[s] {
		return
	}
	done[s] = true
	s.Nullable = false
	if len(s.Properties) > 0 {
		s.AdditionalProperties = false
	}
	for _, one := range within(s) {
		harden(doc, one, answers, done)
	}
}

// copied returns a reference to the copy of a schema for requests only, which it makes if needed.
func copied(doc *huma.OpenAPI, ref string) string {
	all, from := doc.Components.Schemas.Map(), doc.Components.Schemas.SchemaFromRef(ref)
	ref += "Request"
	name := ref[strings.LastIndexByte(ref, '/')+1:]
	if all[name] == nil {
		s := *from
		s.Properties = map[string]*huma.Schema{}
		for field, p := range from.Properties {
			one := *p
			s.Properties[field] = &one
		}
		all[name] = &s
	}
	return ref
}

// within returns the schemas of the direct parts of a schema: its fields, items and extra values.
func within(s *huma.Schema) []*huma.Schema {
	out := slices.Collect(maps.Values(s.Properties))
	if s.Items != nil {
		out = append(out, s.Items)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		out = append(out, values)
	}
	return out
}

func resolve(doc *huma.OpenAPI, s *huma.Schema) *huma.Schema {
	for s != nil && s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	return s
}

func jsonBody(op *huma.Operation) *huma.MediaType {
	if op.RequestBody == nil {
		return nil
	}
	return op.RequestBody.Content["application/json"]
}

// allowValues allows problem documents to repeat the values of requests where the schema accepts
// only a number, a boolean or one of a list.
func allowValues(doc *huma.OpenAPI) {
	for _, op := range Operations(doc) {
		places := problem.Places{}
		for _, p := range op.Parameters {
			addPlaces(places, doc, p.In+"."+p.Name, p.Schema)
		}
		if media := jsonBody(op); media != nil {
			addPlaces(places, doc, "body", media.Schema)
		}
		problem.Allow(op, places)
	}
}

func addPlaces(to problem.Places, doc *huma.OpenAPI, place string, s *huma.Schema) {
	s = resolve(doc, s)
	switch {
	case s.Extensions[enumKey] != nil || s.Type == huma.TypeBoolean || s.Type == huma.TypeInteger || s.Type == huma.TypeNumber:
		to[place] = true
	case s.Items != nil:
		addPlaces(to, doc, place+"[]", s.Items)
	}
	for name, p := range s.Properties {
		addPlaces(to, doc, place+"."+name, p)
	}
}

// listValues adds to the document the allowed values of fields with a closed set of them. It is for
// readers only: requests are checked by the parsers of the vocabulary, which refuse other
// values with a hint and still accept old words.
func listValues(doc *huma.OpenAPI) {
	all := doc.Components.Schemas
	types := closedTypes()
	for name, s := range all.Map() {
		t := all.TypeFromRef("#/components/schemas/" + name)
		if t == nil {
			t = all.TypeFromRef("#/components/schemas/" + strings.TrimSuffix(name, "Request"))
		}
		if t == nil || t.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[field]
			if p == nil {
				continue
			}
			typ := f.Type
			for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			values := types[typ]
			if values == nil {
				values = closedTexts()[name+"."+field]
			}
			if values == nil {
				continue
			}
			if p.Items != nil {
				p = p.Items
			}
			p.Extensions = map[string]any{enumKey: values}
		}
	}
}

// enumKey is the schema keyword with the allowed values of a field. It is set as an extension,
// which huma writes into the document but does not check requests against.
const enumKey = "enum"

// closedTypes returns the allowed values of each vocabulary type that has a fixed list of them.
func closedTypes() map[reflect.Type][]string {
	out := map[reflect.Type][]string{}
	closed(out, holdfast.Words[holdfast.Status]())
	closed(out, holdfast.Words[holdfast.TurnStatus]())
	closed(out, holdfast.Words[holdfast.Trust]())
	closed(out, holdfast.Words[holdfast.Mode]())
	closed(out, holdfast.Words[holdfast.Scope]())
	closed(out, holdfast.Words[holdfast.ApprovalState]())
	closed(out, holdfast.Words[holdfast.ApprovalScope]())
	closed(out, holdfast.Words[holdfast.Tier]())
	closed(out, holdfast.Words[holdfast.FilesState]())
	closed(out, holdfast.Words[holdfast.ExitClass]())
	closed(out, holdfast.Words[holdfast.BoxState]())
	closed(out, holdfast.Words[holdfast.AgentHealth]())
	closed(out, holdfast.Words[holdfast.CheckpointReason]())
	closed(out, holdfast.Words[holdfast.Role]())
	return out
}

func closed[T ~string](out map[reflect.Type][]string, list []T) {
	out[reflect.TypeFor[T]()] = words(list)
}

// closedTexts returns, by "Type.field", the allowed values of request fields whose Go type is
// string because they are parsed later.
func closedTexts() map[string][]string {
	trusts, modes := words(holdfast.Words[holdfast.Trust]()), words(holdfast.Words[holdfast.Mode]())
	return map[string][]string{
		"CreateSession.trust": trusts, "CreateSession.mode": modes, "UpdateSession.trust": trusts, "UpdateSession.mode": modes,
		"UpdateAgent.mode": append(slices.Clone(modes), ""), "SendMessage.mode": words(holdfast.Words[holdfast.SendMode]()), "SendMessage.trust": trusts,
		"CreateKey.max_trust": trusts, "CreateKey.scopes": words(holdfast.Words[holdfast.Scope]()), "AnswerApproval.decision": {"allow", "deny"},
	}
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}
