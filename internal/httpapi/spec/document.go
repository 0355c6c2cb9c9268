package spec

import (
	"encoding/json"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// Replayed is the header that marks, with the value true, the answer to a request whose
// Idempotency-Key was used before.
const Replayed = "Idempotency-Replayed"

// Document is the finished description of the API: as OpenAPI 3.1 in JSON, and as an HTML page.
type Document struct{ JSON, Page []byte }

// Finish completes the document once all routes are registered, and renders it. key reports
// whether the route with a pattern honours an Idempotency-Key, and why not if it refuses one.
func Finish(doc *huma.OpenAPI, key func(pattern string) (honours bool, why string)) (Document, error) {
	tidy(doc)
	illustrate(doc)
	describeKeys(doc, key)
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return Document{}, err
	}
	return Document{JSON: append(text, '\n'), Page: page(doc)}, nil
}

// Describe fills in the parts of the document that are about the API as a whole. It must be called
// before the routes are registered.
func Describe(doc *huma.OpenAPI) {
	doc.Info.Description = "Holdfast keeps AI-agent sessions alive. Errors are problem documents (RFC 9457) with a kind and a hint."
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"owner": {Type: "http", Scheme: "bearer", Description: "An API key, or the token that serve writes to its data directory."},
	}
	for _, t := range [][2]string{
		{"sessions", "Durable conversations: create, pause, resume, end."},
		{"workspaces", "Trees of files in which several sessions work, and what new sessions in them get."},
		{"turns", "Messages and what follows from them."},
		{"events", "The log of a session, as pages and as streams."},
		{"files", "The files of a session. Paths are relative to the workspace; an absolute path starts with %2F."},
		{"box", "Commands and terminals in a session's box."},
		{"agents", "Deployed folders and their immutable versions."},
		{"containers", "The managed boxes."},
		{"snapshots", "The store of the files that checkpoints hold."},
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

// tidy makes the document valid OpenAPI, without the wildcards of the router, and adds the problem
// document to the answers of every operation.
func tidy(doc *huma.OpenAPI) {
	for _, p := range slices.Sorted(maps.Keys(doc.Paths)) {
		if plainPath := strings.ReplaceAll(p, "...}", "}"); plainPath != p {
			doc.Paths[plainPath] = doc.Paths[p]
			delete(doc.Paths, p)
		}
	}
	splitSchemas(doc)
	listValues(doc)
	allowValues(doc)
	var fallback *huma.Response
	for _, op := range Operations(doc) {
		if r := op.Responses["default"]; r != nil {
			fallback = r
		}
	}
	for _, op := range Operations(doc) {
		if op.Responses["default"] == nil {
			op.Responses["default"] = fallback
		}
		for _, name := range []string{"403", "422", "500"} {
			delete(op.Responses, name)
		}
	}
}

// Operations iterates over the operations of the document, with their patterns such as "GET /docs".
func Operations(doc *huma.OpenAPI) iter.Seq2[string, *huma.Operation] {
	return func(yield func(string, *huma.Operation) bool) {
		for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
			item := doc.Paths[path]
			for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
				if op != nil && !yield(op.Method+" "+path, op) {
					return
				}
			}
		}
	}
}

// describeKeys adds to the document why operations refuse an Idempotency-Key, and the headers of
// answers, with Idempotency-Replayed for operations that honour a key.
func describeKeys(doc *huma.OpenAPI, key func(string) (bool, string)) {
	text := &huma.Schema{Type: huma.TypeString}
	doc.Components.Headers = map[string]*huma.Header{
		problem.RequestID: {Description: "The request's id: the caller's own where it sent a fit one. The server's log has it too.", Schema: text},
		"Retry-After":     {Description: "On 429 and 503: after how many seconds to try again.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		Replayed: {
			Description: "true: an earlier request with this Idempotency-Key was done, and this is its answer. Absent otherwise.", Schema: text,
		},
	}
	for pattern, op := range Operations(doc) {
		honours, why := key(pattern)
		if why != "" {
			op.Description = strings.TrimSpace(op.Description + " An Idempotency-Key is refused: " + why + ".")
		}
		for _, r := range op.Responses {
			if r.Ref != "" {
				continue
			}
			addHeader(r, problem.RequestID)
			if honours {
				addHeader(r, Replayed)
			}
		}
	}
	for _, r := range doc.Components.Responses {
		addHeader(r, problem.RequestID)
		addHeader(r, "Retry-After")
	}
}

func addHeader(r *huma.Response, name string) {
	if r.Headers == nil {
		r.Headers = map[string]*huma.Header{}
	}
	r.Headers[name] = &huma.Header{Ref: "#/components/headers/" + name}
}

// JSON returns the description of a JSON answer of v's type, for a handler that writes it itself.
func JSON(api huma.API, text string, v any) *huma.Response {
	return &huma.Response{Description: text, Content: map[string]*huma.MediaType{
		"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")},
	}}
}

// Stream returns the description of an answer that is an event stream.
func Stream(text string) *huma.Response {
	return &huma.Response{Description: text, Content: map[string]*huma.MediaType{
		"text/event-stream": {Schema: &huma.Schema{
			Type:        "string",
			Description: "Frames of id: (the sequence number; absent for deltas), event: (the type) and data: (the event as JSON); a comment every 15 s.",
		}},
	}}
}

// Binary returns the media type of a body of raw bytes.
func Binary() *huma.MediaType {
	return &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
}

// FilePath returns the description of the parameter {path...} of the file routes.
func FilePath() []*huma.Param {
	return []*huma.Param{{
		Name: "path", In: "path", Required: true,
		Description: "The file's path, relative to the workspace; slashes stay, an absolute path starts with %2F.",
		Schema:      &huma.Schema{Type: "string"},
	}}
}
