package httpapi

import (
	"bytes"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// describeAPI fills in what the document says about the API as a whole.
func describeAPI(doc *huma.OpenAPI) {
	doc.Info.Description = "Holdfast keeps AI-agent sessions alive. Errors are problem documents (RFC 9457) with a kind and a hint."
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"owner": {Type: "http", Scheme: "bearer", Description: "An API key, or the token that serve writes to its data directory."},
	}
	for _, t := range [][2]string{
		{"sessions", "Durable conversations: create, pause, resume, end."},
		{"turns", "Messages and what follows from them."},
		{"events", "The log of a session, as pages and as streams."},
		{"files", "The files of a session. Paths are relative to the workspace; an absolute path starts with %2F."},
		{"box", "Commands and terminals in a session's box."},
		{"agents", "Deployed folders and their immutable versions."},
		{"containers", "The managed boxes."},
		{"keys", "API keys: what they may do, and how far they are trusted."},
		{"approvals", "Questions to persons: may this tool call run."},
		{"policy", "Why a tool call is decided so."},
		{"audit", "The hash-chained record of what was decided."},
		{"server", "The running server: its driver, models, runtimes, limits and disk."},
		{"secrets", "The server's own credentials, such as keys of model providers. Values come in and are never told."},
		{"health", "Probes, which need no token, and metrics."},
	} {
		doc.Tags = append(doc.Tags, &huma.Tag{Name: t[0], Description: t[1]})
	}
}

// tidySpec makes the document say what OpenAPI has words for: no router
// wildcards, and the problem document on every operation.
func tidySpec(doc *huma.OpenAPI) {
	for _, p := range slices.Sorted(maps.Keys(doc.Paths)) {
		if plainPath := strings.ReplaceAll(p, "...}", "}"); plainPath != p {
			doc.Paths[plainPath] = doc.Paths[p]
			delete(doc.Paths, p)
		}
	}
	splitSchemas(doc)
	listValues(doc)
	allowTold(doc)
	var fallback *huma.Response
	for _, item := range doc.Paths {
		for _, op := range operations(item) {
			if r := op.Responses["default"]; r != nil {
				fallback = r
			}
		}
	}
	for _, item := range doc.Paths {
		for _, op := range operations(item) {
			if op.Responses["default"] == nil {
				op.Responses["default"] = fallback
			}
			for _, name := range []string{"403", "422", "500"} {
				delete(op.Responses, name)
			}
		}
	}
}

// operations are the operations of a path, in the order of the methods.
func operations(item *huma.PathItem) []*huma.Operation {
	var out []*huma.Operation
	for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
		if op != nil {
			out = append(out, op)
		}
	}
	return out
}

// jsonResponse describes an answer that a handler writes itself.
func jsonResponse(api huma.API, text string, v any) *huma.Response {
	return &huma.Response{Description: text, Content: map[string]*huma.MediaType{
		"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")},
	}}
}

// streamResponse describes an event stream.
func streamResponse(text string) *huma.Response {
	return &huma.Response{Description: text, Content: map[string]*huma.MediaType{
		"text/event-stream": {Schema: &huma.Schema{
			Type:        "string",
			Description: "Frames of id: (the sequence number; absent for deltas), event: (the type) and data: (the event as JSON); a comment every 15 s.",
		}},
	}}
}

func binary() *huma.MediaType {
	return &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
}

func pathParam() []*huma.Param {
	return []*huma.Param{{
		Name: "path", In: "path", Required: true,
		Description: "The file's path, relative to the workspace; slashes stay, an absolute path starts with %2F.",
		Schema:      &huma.Schema{Type: "string"},
	}}
}

// docRoutes serve the document and a page made of it. They hold nothing that
// needs a token.
func (a *API) docRoutes() {
	a.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(a.spec) // the client may be gone
	})
	a.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.Redirect(w, r, "/docs", http.StatusSeeOther)
			return
		}
		newProblem(noRoute(r, listsRoutes)).write(w)
	})
	a.mux.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		_, _ = w.Write(a.docs) // the client may be gone
	})
}

// writeJSON answers with a JSON document.
func (a *API) writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		a.writeProblem(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the client may be gone
}

// writeProblem answers with an error outside of huma's own handling.
func (a *API) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := newProblem(err)
	a.failed(w, r, p)
	p.write(w)
}

type docOp struct {
	Method, Path, Summary, Description string
	// Curl is a command line that calls it, Answer what it may say.
	Curl, Answer string
	Params       []docParam
	Body         []docField
	Answers      []docAnswer
}

type (
	docParam  struct{ Name, In, Description string }
	docField  struct{ Name, Type, Description string }
	docAnswer struct{ Status, Text string }
	docTag    struct {
		Name, Description string
		Ops               []docOp
	}
)

// docsPage renders the document as one page without scripts.
func docsPage(doc *huma.OpenAPI) []byte {
	var tags []docTag
	for _, t := range doc.Tags {
		tag := docTag{Name: t.Name, Description: t.Description}
		for _, p := range slices.Sorted(maps.Keys(doc.Paths)) {
			for _, op := range operations(doc.Paths[p]) {
				if slices.Contains(op.Tags, t.Name) {
					tag.Ops = append(tag.Ops, describeOp(doc, p, op))
				}
			}
		}
		tags = append(tags, tag)
	}
	var buf bytes.Buffer
	if err := docsTemplate().Execute(&buf, map[string]any{"Info": doc.Info, "Tags": tags}); err != nil {
		return []byte("the page does not render: " + template.HTMLEscapeString(err.Error()))
	}
	return buf.Bytes()
}

func describeOp(doc *huma.OpenAPI, path string, op *huma.Operation) docOp {
	out := docOp{Method: op.Method, Path: path, Summary: op.Summary, Description: op.Description}
	for _, p := range op.Parameters {
		out.Params = append(out.Params, docParam{p.Name, p.In, p.Description})
	}
	if op.RequestBody != nil {
		if media := op.RequestBody.Content["application/json"]; media != nil {
			out.Body = fields(doc, media.Schema)
		} else {
			out.Body = []docField{{"(body)", "", op.RequestBody.Description}}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		r := op.Responses[status]
		if r.Ref != "" {
			r = doc.Components.Responses[r.Ref[strings.LastIndexByte(r.Ref, '/')+1:]]
		}
		out.Answers = append(out.Answers, docAnswer{status, r.Description})
		if media := r.Content["application/json"]; media != nil && media.Example != nil {
			out.Answer = indented(media.Example)
		}
	}
	out.Curl = curl(path, op)
	return out
}

// curl is a command line for an operation, with the example's values.
func curl(path string, op *huma.Operation) string {
	path = strings.NewReplacer("{id}", "$ID", "{turn}", "$TURN", "{name}", "reviewer", "{path}", "hello.txt").Replace(path)
	var query []string
	for _, p := range op.Parameters {
		if p.In == "query" && p.Required {
			query = append(query, p.Name+"=...")
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	parts := []string{"curl"}
	if op.Method != http.MethodGet {
		parts = append(parts, "-X "+op.Method)
	}
	if len(op.Security) > 0 {
		parts = append(parts, `-H "Authorization: Bearer $HOLDFAST_TOKEN"`)
	}
	if op.RequestBody != nil {
		if media := op.RequestBody.Content["application/json"]; media != nil {
			body, err := json.Marshal(media.Example)
			if err == nil {
				parts = append(parts, `-H "Content-Type: application/json"`, "-d '"+string(body)+"'")
			}
		} else {
			parts = append(parts, "--data-binary @FILE")
		}
	}
	return strings.Join(append(parts, `"$HOLDFAST_URL`+path+`"`), " ")
}

func indented(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return ""
	}
	return string(b)
}

func fields(doc *huma.OpenAPI, s *huma.Schema) []docField {
	for s != nil && s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	if s == nil {
		return nil
	}
	var out []docField
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		typ := p.Type
		if p.Ref != "" {
			typ = p.Ref[strings.LastIndexByte(p.Ref, '/')+1:]
		}
		if p.Items != nil {
			p = p.Items
		}
		if values, ok := p.Extensions[enumKey].([]string); ok {
			typ += " of " + strings.TrimSuffix(strings.Join(values, ", "), ", ")
		}
		if slices.Contains(s.Required, name) {
			typ += ", required"
		}
		out = append(out, docField{name, typ, s.Properties[name].Description})
	}
	return out
}

func docsTemplate() *template.Template {
	return template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Info.Title}} API</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
code{font:13px ui-monospace,monospace}h2{border-bottom:1px solid #ccc;margin-top:2.5rem;text-transform:capitalize}
details{border:1px solid #ddd;border-radius:4px;margin:.4rem 0;padding:.3rem .7rem}summary{cursor:pointer}
.m{display:inline-block;width:4.5rem;font-weight:600}table{border-collapse:collapse;margin:.4rem 0}
pre{font:12px/1.4 ui-monospace,monospace;background:#8881;padding:.5rem .7rem;white-space:pre-wrap;overflow-wrap:anywhere}
td{padding:.1rem 1rem .1rem 0;vertical-align:top}.s{color:#555}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}details{border-color:#444}.s{color:#aaa}}
</style></head><body>
<h1>{{.Info.Title}} API {{.Info.Version}}</h1><p>{{.Info.Description}} The machine-readable form: <a href="/openapi.json">/openapi.json</a>.</p>
{{range .Tags}}<h2>{{.Name}}</h2><p class="s">{{.Description}}</p>
{{range .Ops}}<details><summary><code><span class="m">{{.Method}}</span>{{.Path}}</code> <span class="s">{{.Summary}}</span></summary>
{{with .Description}}<p>{{.}}</p>{{end}}
{{with .Params}}<table>{{range .}}<tr><td><code>{{.Name}}</code></td><td class="s">{{.In}}</td><td>{{.Description}}</td></tr>{{end}}</table>{{end}}
{{with .Body}}<p>Body:</p><table>{{range .}}<tr><td><code>{{.Name}}</code></td><td class="s">{{.Type}}</td><td>{{.Description}}</td></tr>{{end}}</table>{{end}}
<pre>{{.Curl}}</pre>
<table>{{range .Answers}}<tr><td><code>{{.Status}}</code></td><td>{{.Text}}</td></tr>{{end}}</table>
{{with .Answer}}<pre>{{.}}</pre>{{end}}
</details>
{{end}}{{end}}</body></html>
`))
}
