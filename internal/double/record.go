package double

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"time"
)

// Request is the record of one request.
type Request struct {
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Query  string    `json:"query,omitempty"`
	// Header holds the recorded headers by lower-case name. An API key is recorded as "***".
	Header map[string]string `json:"header"`
	// Roles are the roles of the messages in order.
	Roles []string `json:"roles,omitempty"`
	// CacheControl lists the places with a cache marker, such as "system.1" or
	// "messages.4.content.0".
	CacheControl []string `json:"cache_control,omitempty"`
	// Prefix holds hashes of the request's beginnings, without the cache markers: of the tools, then
	// of the tools and the system text, then with one more message each.
	Prefix []string `json:"prefix,omitempty"`
	// Sizes are the sizes in bytes of the parts that Prefix has hashes of.
	Sizes []int `json:"sizes,omitempty"`
	// Body is the body as it was sent; a body that is not JSON is stored as a JSON string.
	Body json.RawMessage `json:"body,omitempty"`
}

// Extends reports whether r begins with the whole of an earlier request: it has the same tools, system
// text and messages, apart from spaces and cache markers (see unmarked), and possibly more messages.
func (r *Request) Extends(earlier *Request) bool {
	n := len(earlier.Prefix)
	return n > 0 && len(r.Prefix) >= n && r.Prefix[n-1] == earlier.Prefix[n-1]
}

// Uncached returns how many bytes of r's tools, system text and messages come after the longest
// prefix that it shares with an earlier request: the part that is not in a provider's cache.
func (r *Request) Uncached(earlier []Request) int {
	shared := 0
	for i := range earlier {
		n := 0
		for n < len(r.Prefix) && n < len(earlier[i].Prefix) && r.Prefix[n] == earlier[i].Prefix[n] {
			n++
		}
		shared = max(shared, n)
	}
	bytes := 0
	for _, n := range r.Sizes[shared:] {
		bytes += n
	}
	return bytes
}

// Recorder returns a function that writes each request as a line of JSON, in one write.
func Recorder(w io.Writer) func(Request) error {
	return func(r Request) error {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = w.Write(append(line, '\n'))
		return err
	}
}

// headers are the names of the headers that are recorded. Values of secret ones are replaced by "***".
var headers = []string{
	"anthropic-beta", "anthropic-version", "authorization", "content-type", "idempotency-key", "user-agent", "x-api-key",
	"x-app", "x-claude-code-session-id", "x-stainless-retry-count",
}

func (s *Server) describe(r *http.Request, raw []byte) Request {
	out := Request{
		Time: time.Now().UTC(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: map[string]string{},
		Body: raw,
	}
	for _, name := range headers {
		v := r.Header.Get(name)
		if v != "" && (name == "x-api-key" || name == "authorization") {
			v = "***"
		}
		if v != "" {
			out.Header[name] = v
		}
	}
	switch {
	case len(raw) == 0:
		out.Body = nil
		return out
	case !json.Valid(raw):
		out.Body, _ = json.Marshal(string(raw)) // a string can always be encoded
		return out
	}
	var parts struct {
		Tools    json.RawMessage   `json:"tools"`
		System   json.RawMessage   `json:"system"`
		Messages []json.RawMessage `json:"messages"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return out
	}
	for _, m := range parts.Messages {
		var role struct {
			Role string `json:"role"`
		}
		_ = json.Unmarshal(m, &role) // a message without a role is recorded with an empty one
		out.Roles = append(out.Roles, role.Role)
	}
	out.CacheControl = markers(raw)
	out.Prefix, out.Sizes = prefixes(append([]json.RawMessage{parts.Tools, parts.System}, parts.Messages...))
	return out
}

// prefixes returns for each part the hash of all parts up to it, and its size.
func prefixes(parts []json.RawMessage) (sums []string, sizes []int) {
	h := sha256.New()
	sums, sizes = make([]string, len(parts)), make([]int, len(parts))
	for i, p := range parts {
		b := unmarked(p)
		fmt.Fprintf(h, "%d:", len(b))
		h.Write(b)
		sums[i], sizes[i] = hex.EncodeToString(h.Sum(nil)[:8]), len(b)
	}
	return sums, sizes
}

// marker matches a cache_control member in compact JSON. Inside a string, its quotes would be
// escaped.
var marker = regexp.MustCompile(`,"cache_control":\{[^{}]*\}|"cache_control":\{[^{}]*\},?`)

// unmarked returns JSON without spaces and cache markers. It gives a message whose content is a string the
// form with one text block, because clients switch between these two forms when they move a marker.
func unmarked(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	out := marker.ReplaceAll(b.Bytes(), nil)
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(out, &m) != nil || len(m.Content) == 0 || m.Content[0] != '"' {
		return out
	}
	const key = `"content":`
	blocks := slices.Concat([]byte(key+`[{"type":"text","text":`), m.Content, []byte(`}]`))
	return bytes.Replace(out, append([]byte(key), m.Content...), blocks, 1)
}

func at(list string, i int) string { return fmt.Sprintf("%s.%d", list, i) }

// markers returns the places with cache_control, in the order in which the provider renders the
// request: tools, system, messages.
func markers(raw []byte) []string {
	var v map[string]any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	var out []string
	for _, part := range []string{"tools", "system", "messages"} {
		out = append(out, marked(part, v[part])...)
	}
	return out
}

func marked(where string, v any) []string {
	var out []string
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			out = append(out, marked(at(where, i), e)...)
		}
	case map[string]any:
		if v["cache_control"] != nil {
			out = append(out, where)
		}
		if v["content"] != nil {
			out = append(out, marked(where+".content", v["content"])...)
		}
	}
	return out
}
