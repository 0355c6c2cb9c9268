package app_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// corpus makes the bad requests of every operation of the OpenAPI document: what
// is declared there says what is wrong. A new route has cases by that; a new
// parameter of a path needs a value in fill.
func (v *victim) corpus(t *testing.T) []malformed {
	var out []malformed
	// Two pages are not operations of the document.
	ops := append(v.operations(t), operation{method: "GET", path: "/docs"}, operation{method: "GET", path: "/openapi.json"})
	methods := map[string][]string{}
	for _, op := range ops {
		methods[op.path] = append(methods[op.path], op.method)
	}
	for _, op := range ops {
		g := gen{v: v, op: op, target: v.fill(t, op), good: v.good(op)}
		g.asked()
		g.paths()
		g.queries()
		g.headers()
		g.bodies(t)
		if methods[op.path][0] == op.method {
			g.methods(methods[op.path])
		}
		out = append(out, g.out...)
	}
	return append(append(out, v.special(t)...), v.metricsCases()...)
}

// metricsCases are for the listener of the metrics, which has no other route.
func (v *victim) metricsCases() []malformed {
	op := "GET /metrics of its own"
	out := []malformed{
		{op: op, name: "another path", method: "GET", target: "/v1/sessions", status: 404},
		{op: op, name: "another page", method: "GET", target: "/healthz", status: 404},
		{op: op, name: "no page", method: "GET", target: "/", status: 404},
		{op: op, name: "slashes", method: "GET", target: "//metrics", status: 400},
		{op: op, name: "query", method: "GET", target: "/metrics?bogus=1", status: 400},
		{op: op, name: "body", method: "GET", target: "/metrics", body: "{", status: 400},
		{op: op, name: "method", method: "POST", target: "/metrics", status: 405},
	}
	for i := range out {
		out[i].addr = v.metrics
	}
	return out
}

// values of the parameters of paths.
func (v *victim) fill(t *testing.T, op operation) string {
	t.Helper()
	id := string(v.session)
	switch {
	case strings.HasPrefix(op.path, "/v1/keys/"):
		id = string(v.key)
	case strings.HasPrefix(op.path, "/v1/approvals/"):
		id = string(v.approval)
	}
	out := strings.NewReplacer("{id}", id, "{turn}", string(v.turn), "{checkpoint}", string(v.turn), "{name}", "helper", "{workspace}", "shared", "{path}", "a.txt").Replace(op.path)
	if strings.Contains(out, "{") {
		t.Fatalf("%s has a parameter that is unknown here: give it a value", op.name())
	}
	return out
}

// gen makes the cases of one operation.
type gen struct {
	v      *victim
	op     operation
	target string
	good   string // its good body, where it takes JSON
	out    []malformed
}

func (g *gen) add(m malformed) {
	if m.op = g.op.name(); m.method == "" {
		m.method = g.op.method
	}
	if m.target == "" {
		m.target = g.target
	}
	g.out = append(g.out, m)
}

// asked are requests without a right to ask.
func (g *gen) asked() {
	g.add(malformed{name: "foreign host", target: "http://evil.example" + g.target, status: 403})
	g.add(malformed{name: "foreign origin", header: []string{"Origin: https://evil.example"}, status: 403})
	g.add(malformed{name: "path with dots", target: "/healthz/.." + g.target, status: 400})
	g.add(malformed{name: "path with slashes", target: "/" + g.target, status: 400})
	g.add(malformed{name: "encoded body", header: []string{"Content-Encoding: zstd"}, status: 400})
	if len(g.op.Security) > 0 {
		g.add(malformed{name: "no token", header: []string{"Authorization:"}, status: 401})
		g.add(malformed{name: "another token", header: []string{"Authorization: Bearer hfk_0000000000000000_AAAA"}, status: 401})
		g.add(malformed{name: "basic", header: []string{"Authorization: Basic b3duZXI6"}, status: 401})
	}
}

// paths puts hostile values into each parameter that is an id or a name.
func (g *gen) paths() {
	for _, p := range g.op.Parameters {
		if p.In != "path" || p.Name == "path" {
			continue
		}
		value := g.value(p.Name)
		for name, bad := range map[string]string{
			"a letter": "_", "traversal": "..%2f..%2fetc%2fpasswd", "nul": "%00", "nul inside": value[:4] + "%00" + value[5:], "newline": value + "%0a",
			"not UTF-8": "%ff%fe", "overlong": "%c0%ae%c0%ae", "too long": strings.Repeat("a", 5000), "longer": value + "!", "space": "%20",
			"bidi": "%E2%80%AE" + value, "quotes": "%27%20OR%201=1--", "template": "%7B%7Bid%7D%7D", "escape": "%1b%5b31m", "double encoded": "%252e%252e",
			"wildcard": "%2A", "braces": "%7B" + value + "%7D",
		} {
			g.add(malformed{name: p.Name + ": " + name, target: strings.Replace(g.target, value, bad, 1), status: 400})
		}
	}
}

func (g *gen) value(param string) string {
	switch {
	case param == "turn", param == "checkpoint":
		return string(g.v.turn)
	case param == "name":
		return "helper"
	case param == "workspace":
		return "shared"
	case strings.HasPrefix(g.op.path, "/v1/keys/"):
		return string(g.v.key)
	case strings.HasPrefix(g.op.path, "/v1/approvals/"):
		return string(g.v.approval)
	}
	return string(g.v.session)
}

// queries are parameters that are unknown, of a wrong type or out of range.
func (g *gen) queries() {
	for name, q := range map[string]string{
		"unknown parameter": "bogus=1", "bad escape": "x=%zz", "semicolons": "a=1;b=2", "not UTF-8": "bogus=%ff", "wrong case": "LIMIT=1", "array": "limit[]=1",
	} {
		g.add(malformed{name: name, target: g.target + "?" + q, status: 400})
	}
	for _, p := range g.op.Parameters {
		if p.In != "query" {
			continue
		}
		var bad []string
		switch p.Schema.kind() {
		case "integer":
			bad = []string{"x", "-1", "1.5", "1e3", "99999999999999999999", "0x10", "%20", "1_000", "NaN", "%D9%A1"}
		case "number":
			bad = []string{"x", "NaN", "Inf", "1e999"}
		case "boolean":
			bad = []string{"maybe", "2", "yes", "nil", "%00"}
		case "string":
			words := badWords[p.Name]
			if g.op.ID == "list-sessions" && p.Name == "name" { // a title, or a part of one
				words = []string{strings.Repeat("x", 501)}
			}
			bad = append(words, "%00", "a%00b", "%ff", "%ed%a0%80")
		}
		for _, b := range bad {
			q := p.Name + "=" + b
			if g.op.ID == "deploy-agent" && p.Name != "name" {
				q += "&name=helper"
			}
			g.add(malformed{name: "query " + p.Name + "=" + b, target: g.target + "?" + q, status: 400})
		}
	}
}

// badWords are values that a string parameter cannot have.
var badWords = map[string][]string{
	"status": {"bogus", "ACTIVE", "active,paused,bogus"},
	"agent":  {"UPPER", "..", "a/b"},
	"name":   {"UPPER", "..", "-a", "a/b", ""},
	"cursor": {"x", "AAAA", "-1", "%7B%7D", "%2e%2e", strings.Repeat("A", 3000)},
	"after":  {"x", "-1", "1e3", "01", "%2B1", "1.0", "99999999999999999999"},
	"type":   {"bogus", "turn.complete", ",", "turn.completed,bogus"},
	"mode":   {"999", "4755", "rwx", "-1", "0o644", "07777777777777"},
}

// headers are bad values of the headers that an operation reads.
func (g *gen) headers() {
	bad := map[string][]string{
		"Idempotency-Key": {"a b", strings.Repeat("k", 201), "\xff\xfe", "a\tb", "ключ"},
		"Last-Event-ID":   {"x", "-1", "1e3", "01", "+1", "99999999999999999999", "1,2", "1.0"},
	}
	for _, p := range g.op.Parameters {
		if p.In != "header" {
			continue
		}
		for _, b := range bad[p.Name] {
			m := malformed{name: p.Name + ": " + b, header: []string{p.Name + ": " + b}, status: 400}
			if g.op.RequestBody != nil {
				m.body = g.good
			}
			g.add(m)
		}
	}
}

// methods are those that a path does not have.
func (g *gen) methods(have []string) {
	for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"} {
		if !slices.Contains(have, m) {
			status := 405
			if strings.HasSuffix(g.op.path, "/files") && (m == "PUT" || m == "DELETE") {
				status = 400 // it names no file
			}
			g.add(malformed{name: "method " + m, method: m, status: status})
		}
	}
	if !slices.Contains(have, "GET") {
		g.add(malformed{name: "method HEAD", method: "HEAD", status: 405})
	}
}

// bomb is small and unpacks to 64 MiB.
func bomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// entry is one of a tar.
type entry struct {
	name, data, link string
	kind             byte
	mode             int64
}

func tarOf(t *testing.T, entries ...entry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.data))}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// policies are the cases of agents' choices and of questions about the policy.
func (v *victim) policies(post func(op, target, name, body string, status int)) {
	one, long := "/v1/sessions/"+string(v.session), strings.Repeat("x", 2000)
	for name, body := range map[string]string{
		"mode": `{"mode":"yolo"}`, "model": `{"model":"nobody"}`, "description": `{"description":"` + long + `"}`, "control": `{"description":"a\u001b"}`, "number": `{"mode":1}`,
	} {
		post("PATCH /v1/agents/{name}", "/v1/agents/helper", "value of "+name, body, 400)
	}
	for name, body := range map[string]string{"tool": `{"tool":"","input":{}}`, "long tool": `{"tool":"` + long + `","input":{}}`, "input": `{"tool":"Bash","input":"ls"}`, "no input": `{"tool":"Bash"}`, "null": `{"tool":"Bash","input":null}`} {
		post("POST /v1/sessions/{id}/policy/explain", one+"/policy/explain", "value of "+name, body, 400)
	}
	post("PATCH /v1/agents/{name}", "/v1/agents/nobody", "unknown agent", `{"mode":"plan"}`, 404)
}

// special are the cases that no schema describes: files, tars, terminals, values.
func (v *victim) special(t *testing.T) []malformed {
	one := "/v1/sessions/" + string(v.session)
	var out []malformed
	file := func(name, path string, status int) {
		for _, m := range []string{"GET", "PUT", "DELETE"} {
			c := malformed{op: m + " /v1/sessions/{id}/files/{path}", name: name, method: m, target: one + "/files/" + path, status: status}
			if m == "PUT" {
				c.body, c.header = "x", []string{"Content-Type: application/octet-stream"}
			}
			out = append(out, c)
		}
	}
	file("nul", "a%00b", 400)
	file("only nul", "%00", 400)
	file("long name", strings.Repeat("n", 300), 400)
	file("long path", strings.Repeat("d%2f", 3000)+"f", 400)
	file("below a file", "a.txt%2fb", 404)
	// Any path of the box is the session's own; what is outside is not there.
	out = append(out, malformed{op: "GET /v1/sessions/{id}/files/{path}", name: "out of the box", method: "GET", target: one + "/files/..%2f..%2f..%2f..%2fetc%2fpasswd", status: 404})
	file("slashes", "/etc/passwd", 400)
	out = append(out, v.tars(t)...)
	for _, path := range []string{"/terminal", "/editor"} {
		upgrade := func(name string, header ...string) {
			out = append(out, malformed{op: "GET /v1/sessions/{id}" + path, name: name, method: "GET", target: one + path, header: header, status: 400})
		}
		upgrade("no upgrade")
		upgrade("another upgrade", "Connection: Upgrade", "Upgrade: h2c", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
		upgrade("old version", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 8", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
		upgrade("no key", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
		upgrade("bad key", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!!!")
	}
	post := func(op, target, name, body string, status int) {
		out = append(out, malformed{op: op, name: name, method: op[:strings.IndexByte(op, ' ')], target: target, body: body, status: status})
	}
	long := strings.Repeat("x", 2000)
	for name, body := range map[string]string{
		"id": `{"id":"x"}`, "agent": `{"agent":"../x"}`, "trust": `{"trust":"root"}`, "runtime": `{"runtime":"../native"}`, "model": `{"model":"x\u001b"}`,
		"mode": `{"mode":"yolo"}`, "title": `{"title":"` + long + `"}`, "tags": `{"tags":[` + strings.Repeat(`"t",`, 60) + `"t"]}`, "empty tag": `{"tags":[""]}`, "long tag": `{"tags":["` + long + `"]}`,
		"env name": `{"env":{"A=B":"x"}}`, "empty env name": `{"env":{"":"x"}}`, "env nul": `{"env":{"A":"a\u0000b"}}`, "env number": `{"env":{"A":1}}`,
		"env huge": `{"env":{"A":"` + strings.Repeat("x", 40<<10) + `"}}`, "env twice": `{"env":{"A":"1","A":"2"}}`,
	} {
		post("POST /v1/sessions", "/v1/sessions", "value of "+name, body, 400)
	}
	post("POST /v1/sessions", "/v1/sessions", "reserved env", `{"env":{"HOLDFAST_TOKEN":"x"}}`, 403)
	post("POST /v1/sessions", "/v1/sessions", "unknown agent", `{"agent":"nobody"}`, 404)
	post("POST /v1/sessions", "/v1/sessions", "too large", `{"title":"`+strings.Repeat("x", 1<<20)+`"}`, 413)
	for name, body := range map[string]string{"mode": `{"mode":"yolo"}`, "trust": `{"trust":"root"}`, "model": `{"model":"nobody"}`, "title": `{"title":"` + long + `"}`, "tags": `{"tags":[""]}`} {
		post("PATCH /v1/sessions/{id}", one, "value of "+name, body, 400)
	}
	v.checkpoints(post)
	v.policies(post)
	for name, body := range map[string]string{"empty": `{"text":""}`, "blank": `{"text":" \n"}`, "mode": `{"text":"x","mode":"yolo"}`, "trust": `{"text":"x","trust":"root"}`} {
		post("POST /v1/sessions/{id}/turns", one+"/turns", "text "+name, body, 400)
	}
	post("POST /v1/sessions/{id}/turns", one+"/turns", "too long", `{"text":"`+strings.Repeat("x", holdfast.MaxText+1)+`"}`, 413)
	for name, body := range map[string]string{
		"nothing": `{}`, "both": `{"command":"true","argv":["true"]}`, "empty argv": `{"argv":[]}`, "nul": `{"argv":["a\u0000b"]}`,
		"timeout": `{"command":"true","timeout_ms":-1}`, "long timeout": `{"command":"true","timeout_ms":99999999}`, "stdin": `{"command":"cat","stdin":"!"}`,
		"env name": `{"command":"true","env":{"A=B":"x"}}`, "env nul": `{"command":"true","env":{"A":"\u0000"}}`,
	} {
		post("POST /v1/sessions/{id}/exec", one+"/exec", "value of "+name, body, 400)
	}
	for name, body := range map[string]string{"nothing": `{}`, "both": `{"all":true,"ids":["x"]}`, "id": `{"ids":["../x"]}`, "empty id": `{"ids":[""]}`} {
		post("POST /v1/containers/stop", "/v1/containers/stop", "value of "+name, body, 400)
	}
	for name, body := range map[string]string{"scope": `{"scopes":["root"]}`, "trust": `{"max_trust":"root"}`, "name": `{"name":"` + long + `"}`} {
		post("POST /v1/keys", "/v1/keys", "value of "+name, body, 400)
	}
	post("DELETE /v1/keys/{id}", "/v1/keys/0000000000000000", "unknown", "", 404)
	const nobody = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, suffix := range []string{"", "/turns", "/events", "/transcript", "/usage", "/files", "/files/a", "/turns/" + nobody} {
		out = append(out, malformed{op: "GET /v1/sessions/{id}" + strings.TrimSuffix(suffix, "/"+nobody), name: "of nobody", method: http.MethodGet, target: "/v1/sessions/" + nobody + suffix, status: 404})
	}
	return out
}

// tars are uploads that are not agents.
func (v *victim) tars(t *testing.T) []malformed {
	agent := entry{name: "CLAUDE.md", data: "x"}
	read := func(r io.Reader) string {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	whole := read(tarOf(t, agent, entry{name: "big", data: strings.Repeat("x", 4000)}))
	var out []malformed
	for name, body := range map[string]string{
		"nothing": "", "no tar": strings.Repeat("nope", 500), "gzip": v.bomb, "cut": whole[:2000], "empty tar": read(tarOf(t)),
		"no instructions":      read(tarOf(t, entry{name: "README", data: "x"})),
		"instructions are dir": read(tarOf(t, entry{name: "CLAUDE.md/", kind: tar.TypeDir, mode: 0o755})),
		"parent":               read(tarOf(t, agent, entry{name: "../evil", data: "x"})),
		"parent inside":        read(tarOf(t, agent, entry{name: "a/../../evil", data: "x"})),
		"absolute":             read(tarOf(t, agent, entry{name: "/etc/evil", data: "x"})),
		"link":                 read(tarOf(t, agent, entry{name: "l", kind: tar.TypeSymlink, link: "/etc/passwd"})),
		"hard link":            read(tarOf(t, agent, entry{name: "l", kind: tar.TypeLink, link: "CLAUDE.md"})),
		"device":               read(tarOf(t, agent, entry{name: "d", kind: tar.TypeChar})),
		"fifo":                 read(tarOf(t, agent, entry{name: "d", kind: tar.TypeFifo})),
		"twice":                read(tarOf(t, agent, agent)),
		"file as directory":    read(tarOf(t, agent, entry{name: "CLAUDE.md/x", data: "x"})),
		"long name":            read(tarOf(t, agent, entry{name: strings.Repeat("n", 300), data: "x"})),
		"control":              read(tarOf(t, agent, entry{name: "a\x1b[31m", data: "x"})),
		"not UTF-8":            read(tarOf(t, agent, entry{name: "a\xff", data: "x"})),
		"unknown setting":      read(tarOf(t, agent, entry{name: "holdfast.yaml", data: "modle: x"})),
		"unknown rule":         read(tarOf(t, agent, entry{name: ".claude/settings.json", data: `{"permissions":{"deny":["Nope"]}}`})),
		"hook on the host":     read(tarOf(t, agent, entry{name: "holdfast.yaml", data: "hooks: {preToolUse: [{hooks: [{type: command, command: id, where: host}]}]}"})),
		"deep settings":        read(tarOf(t, agent, entry{name: "holdfast.yaml", data: strings.Repeat("[", 50_000)})),
	} {
		out = append(out, malformed{
			op: "POST /v1/agents", name: "tar: " + name, method: "POST", target: "/v1/agents?name=helper",
			header: []string{"Content-Type: application/x-tar"}, body: body, length: fmt.Sprint(len(body)), status: 400,
		})
	}
	return append(out,
		malformed{op: "POST /v1/agents", name: "said to be large", method: "POST", target: "/v1/agents?name=helper", header: []string{"Content-Type: application/x-tar"}, body: "x", length: "99999999999", status: 413},
		malformed{op: "PUT /v1/sessions/{id}/files/{path}", name: "said to be large", method: "PUT", target: "/v1/sessions/" + string(v.session) + "/files/b", body: "x", length: "99999999999", status: 413},
		malformed{op: "PUT /v1/sessions/{id}/files/{path}", name: "cut short", method: "PUT", target: "/v1/sessions/" + string(v.session) + "/files/b", body: "x", length: "100", cut: true, status: 400},
		malformed{op: "PUT /v1/sessions/{id}/files/{path}", name: "of a directory", method: "PUT", target: "/v1/sessions/" + string(v.session) + "/files/b/", body: "x", status: 400},
	)
}

// checkpoints are the values of requests about checkpoints that no schema describes.
func (v *victim) checkpoints(post func(op, target, name, body string, status int)) {
	one := "/v1/sessions/" + string(v.session)
	for name, body := range map[string]string{"to": `{"to":"3"}`, "empty to": `{"to":""}`, "path to": `{"to":"../x"}`} {
		post("POST /v1/sessions/{id}/rewind", one+"/rewind", "value of "+name, body, 400)
	}
	for name, at := range map[string]string{"number": "3", "start": "start", "escape": "%2e%2e"} {
		post("POST /v1/sessions/{id}/checkpoints/{checkpoint}/hold", one+"/checkpoints/"+at+"/hold", "value of "+name, "", 400)
	}
	for name, body := range map[string]string{"at": `{"at":"3"}`, "id": `{"id":"../x"}`} {
		post("POST /v1/sessions/{id}/fork", one+"/fork", "value of "+name, body, 400)
	}
	for name, body := range map[string]string{"at": `{"path":"a","at":"start"}`, "no at": `{"path":"a"}`, "no path": `{"at":"` + string(v.turn) + `"}`, "outside": `{"path":"../a","at":"` + string(v.turn) + `"}`, "absolute": `{"path":"/a","at":"` + string(v.turn) + `"}`} {
		post("POST /v1/sessions/{id}/restore", one+"/restore", "value of "+name, body, 400)
	}
}
