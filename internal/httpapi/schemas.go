package httpapi

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
)

// splitSchemas makes requests strict at every depth: no further fields, no null.
// Answers may grow, since a client that is strict about them would break at the
// first field that a release adds; a schema that both use becomes two.
func splitSchemas(doc *huma.OpenAPI) {
	answers, requests := map[*huma.Schema]bool{}, map[*huma.Schema]bool{}
	for _, op := range allOperations(doc) {
		for _, r := range op.Responses {
			for _, media := range r.Content {
				reach(doc, media.Schema, answers)
			}
		}
	}
	for _, op := range allOperations(doc) {
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

// reach notes a schema and all those within it.
func reach(doc *huma.OpenAPI, s *huma.Schema, seen map[*huma.Schema]bool) {
	if s = resolve(doc, s); s == nil || seen[s] {
		return
	}
	seen[s] = true
	for _, one := range within(s) {
		reach(doc, one, seen)
	}
}

// harden makes a schema of requests strict, with all those within it. One that
// answers use too is left to them, and copied.
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

// copied is the reference to the requests' own copy of a schema.
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

// within are the schemas directly in a schema.
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

func allOperations(doc *huma.OpenAPI) []*huma.Operation {
	var out []*huma.Operation
	for _, item := range doc.Paths {
		out = append(out, operations(item)...)
	}
	return out
}

func jsonBody(op *huma.Operation) *huma.MediaType {
	if op.RequestBody == nil {
		return nil
	}
	return op.RequestBody.Content["application/json"]
}

// told are the places of a request whose values a problem may repeat: those whose
// schema leaves no room for a secret, being a number, a boolean or one of a list.
// What is free text, unknown, or no JSON at all is never repeated (I-22).
type told map[string]bool

// toldKey is where an operation's metadata has its told.
const toldKey = "told"

var index = regexp.MustCompile(`\[\d+\]`)

func (t told) may(place string) bool { return t[index.ReplaceAllString(place, "[]")] }

func toldOf(op *huma.Operation) told {
	t, _ := op.Metadata[toldKey].(told)
	return t
}

// allowTold works out what of each operation's requests may be told.
func allowTold(doc *huma.OpenAPI) {
	for _, op := range allOperations(doc) {
		t := told{}
		for _, p := range op.Parameters {
			t.add(doc, p.In+"."+p.Name, p.Schema)
		}
		if media := jsonBody(op); media != nil {
			t.add(doc, "body", media.Schema)
		}
		op.Metadata = map[string]any{toldKey: t}
	}
}

func (t told) add(doc *huma.OpenAPI, place string, s *huma.Schema) {
	s = resolve(doc, s)
	switch {
	case s.Extensions[enumKey] != nil || s.Type == huma.TypeBoolean || s.Type == huma.TypeInteger || s.Type == huma.TypeNumber:
		t[place] = true
	case s.Items != nil:
		t.add(doc, place+"[]", s.Items)
	}
	for name, p := range s.Properties {
		t.add(doc, place+"."+name, p)
	}
}

// listValues gives each closed set its values in the document. They are for the
// reader: the vocabulary's own parsers refuse others, with a hint, and take the
// legacy words.
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

// enumKey is the keyword of a closed set. As an extension of a schema huma writes
// it and does not check it.
const enumKey = "enum"

// closedTypes are the vocabulary's closed sets.
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
	closed(out, holdfast.Words[holdfast.Role]())
	return out
}

func closed[T ~string](out map[reflect.Type][]string, list []T) {
	out[reflect.TypeFor[T]()] = words(list)
}

// closedTexts are the fields of requests that are text until they are parsed.
func closedTexts() map[string][]string {
	trusts, modes := words(holdfast.Words[holdfast.Trust]()), words(holdfast.Words[holdfast.Mode]())
	return map[string][]string{
		"CreateSession.trust": trusts, "CreateSession.mode": modes, "UpdateSession.trust": trusts, "UpdateSession.mode": modes,
		"UpdateAgent.mode": append(slices.Clone(modes), ""), "SendMessage.mode": words(holdfast.Words[holdfast.SendMode]()), "SendMessage.trust": trusts,
		"CreateKey.max_trust": trusts, "CreateKey.scopes": words(holdfast.Words[holdfast.Scope]()), "AnswerApproval.decision": holdfast.ApprovalDecisions(),
	}
}

func words[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}
