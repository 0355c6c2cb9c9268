package httpapi

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
)

// keyHeader names a request, so that it is done once however often it is sent.
const keyHeader = "Idempotency-Key"

// replayedHeader, with the value true, marks the answer to a request whose key was
// used before.
const replayedHeader = "Idempotency-Replayed"

// keyless says of each POST and PATCH without such a key why it has none. To take
// the header and not honour it would be a lie, so it is refused; a route that is
// in neither table refuses it too, and a test names it.
//
//nolint:gochecknoglobals // a table
var keyless = map[string]string{
	"POST /v1/agents":                       "the same content is the same version id; deploy again",
	"POST /v1/keys":                         "a secret is told once; revoke a key whose answer was lost, and make another",
	"POST /v1/secret-key/rotate":            "send it again: the secrets are wrapped once more, which harms nobody",
	"POST /v1/containers/stop":              "send it again: what is stopped stays stopped",
	"POST /v1/containers/prune":             "send it again: what is removed stays removed",
	"PATCH /v1/agents/{name}":               "send it again: what is set stays set",
	"PATCH /v1/sessions/{id}":               "send it again, or send the revision it is for",
	"POST /v1/sessions/{id}/pause":          "send it again, or look at the session",
	"POST /v1/sessions/{id}/resume":         "send it again, or look at the session",
	"POST /v1/sessions/{id}/end":            "send it again, or look at the session",
	"POST /v1/sessions/{id}/interrupt":      "send it again, or look at the session",
	"POST /v1/sessions/{id}/policy/explain": "it changes nothing; send it again",
	"POST /v1/sessions/{id}/exec":           "the outcome of a command is not kept; a message to the agent may carry a key",
	"POST /v1/approvals/{id}":               "a question takes one answer; send it again, or look at the question",
}

// keyed are the routes that honour the header.
//
//nolint:gochecknoglobals // a table
var keyed = map[string]bool{
	"POST /v1/sessions":            true,
	"POST /v1/sessions/{id}/turns": true,
}

// key checks an Idempotency-Key.
func key(s string) error {
	ok := len(s) <= 200
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] > ' ' && s[i] < 0x7f
	}
	if !ok {
		return holdfast.Errorf(holdfast.KindInvalid, "request", "Idempotency-Key %s is not a key", holdfast.Quote(s)).
			WithHint("use up to 200 printable characters without spaces, such as a UUID")
	}
	return nil
}

// checkKey refuses the header where it would not be honoured, before anything
// was done.
func checkKey(r *http.Request, pattern string) error {
	acts := r.Method == http.MethodPost || r.Method == http.MethodPatch
	values := r.Header.Values(keyHeader)
	if !acts || pattern == "" || len(values) == 0 {
		return nil
	}
	if keyed[pattern] {
		if len(values) > 1 {
			return holdfast.Errorf(holdfast.KindInvalid, "request", "%d Idempotency-Key headers, the second %s", len(values), holdfast.Quote(values[1])).
				WithHint("send one")
		}
		return nil
	}
	hint := "leave the header out"
	if why := keyless[pattern]; why != "" {
		hint += ": " + why
	}
	return holdfast.Errorf(holdfast.KindInvalid, "request", "Idempotency-Key %s: %s takes no key", holdfast.Quote(values[0]), pattern).WithHint("%s", hint)
}

// describeKeys says in the document which operations take no key, and why.
func describeKeys(doc *huma.OpenAPI) {
	for path, item := range doc.Paths {
		for _, op := range operations(item) {
			if why := keyless[op.Method+" "+path]; why != "" {
				op.Description = strings.TrimSpace(op.Description + " An Idempotency-Key is refused: " + why + ".")
			}
		}
	}
}

// describeHeaders says in the document which headers answers carry.
func describeHeaders(doc *huma.OpenAPI) {
	text := &huma.Schema{Type: huma.TypeString}
	doc.Components.Headers = map[string]*huma.Header{
		requestHeader: {Description: "The request's id: the caller's own where it sent a fit one. The server's log has it too.", Schema: text},
		"Retry-After": {Description: "On 429 and 503: after how many seconds to try again.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		replayedHeader: {
			Description: "true: an earlier request with this Idempotency-Key was done, and this is its answer. Absent otherwise.", Schema: text,
		},
	}
	for path, item := range doc.Paths {
		for _, op := range operations(item) {
			for _, r := range op.Responses {
				if r.Ref != "" {
					continue
				}
				carries(r, requestHeader)
				if keyed[op.Method+" "+path] {
					carries(r, replayedHeader)
				}
			}
		}
	}
	for _, r := range doc.Components.Responses {
		carries(r, requestHeader)
		carries(r, "Retry-After")
	}
}

func carries(r *huma.Response, name string) {
	if r.Headers == nil {
		r.Headers = map[string]*huma.Header{}
	}
	r.Headers[name] = &huma.Header{Ref: "#/components/headers/" + name}
}
