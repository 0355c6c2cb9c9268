package spec

import (
	"bytes"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

type docOp struct {
	Method, Path, Summary, Description string
	// Curl is a curl command line that calls the operation; Answer is an example of its JSON answer.
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

// page renders the document as one HTML page without scripts.
func page(doc *huma.OpenAPI) []byte {
	var tags []docTag
	for _, t := range doc.Tags {
		tag := docTag{Name: t.Name, Description: t.Description}
		for pattern, op := range Operations(doc) {
			if _, path, _ := strings.Cut(pattern, " "); slices.Contains(op.Tags, t.Name) {
				tag.Ops = append(tag.Ops, describeOp(doc, path, op))
			}
		}
		tags = append(tags, tag)
	}
	var buf bytes.Buffer
	if err := docsTemplate().Execute(&buf, map[string]any{"Info": doc.Info, "Tags": tags}); err != nil {
		return []byte("the page of the API does not render: " + template.HTMLEscapeString(err.Error()))
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

// curl returns a curl command line that calls an operation. Its body is the operation's example, or a file @FILE if the body
// is not JSON.
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
	if s = resolve(doc, s); s == nil {
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
