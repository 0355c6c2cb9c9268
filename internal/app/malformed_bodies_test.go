package app_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// goodBodies are what each operation with a JSON body takes. Without such a body a
// bad one would be refused for what it lacks, and prove nothing.
var goodBodies = map[string]string{
	"create-session":    `{"title":"good"}`,
	"update-session":    `{"title":"good"}`,
	"delete-session":    `{"purge":true,"interrupt":true}`,
	"pause-session":     `{"interrupt":true}`,
	"resume-session":    `{"dry_run":true}`,
	"end-session":       `{"reason":"good"}`,
	"rewind-session":    `{"to":"TURN"}`,
	"fork-session":      `{"at":"TURN","title":"good"}`,
	"restore-files":     `{"path":".","at":"TURN"}`,
	"send-message":      `{"text":"x"}`,
	"exec":              `{"command":"true"}`,
	"explain-policy":    `{"tool":"Bash","input":{"command":"true"}}`,
	"answer-approval":   `{"decision":"allow"}`,
	"update-agent":      `{"description":"good"}`,
	"stop-containers":   `{"all":true}`,
	"prune-containers":  `{"dry_run":true}`,
	"collect-snapshots": `{"dry_run":true}`,
	"create-key":        `{"name":"good"}`,
	"create-workspace":  `{"title":"good"}`,
	"update-workspace":  `{"title":"good"}`,
	"set-secret":        `{"value":"Z29vZA=="}`,
}

// good is what an operation takes. TURN stands for a turn of the session.
func (v *victim) good(op operation) string {
	return strings.ReplaceAll(goodBodies[op.ID], "TURN", string(v.turn))
}

// TestGoodBodiesAreTaken: each operation that takes JSON has a good body, and it is
// one; also a body that is announced and empty, where none is declared, is none.
func TestGoodBodiesAreTaken(t *testing.T) {
	v := newVictim(t)
	ops := v.operations(t)
	// What ends a session comes last.
	slices.SortStableFunc(ops, func(a, b operation) int { return strings.Compare(v.order(a), v.order(b)) })
	n := 0
	for _, op := range ops {
		m := malformed{method: op.method, target: v.fill(t, op)}
		switch op.ID {
		case "search":
			m.target += "?q=x"
		case "revoke-rule":
			m.target += "?rule=Bash"
		}
		if op.RequestBody != nil {
			if _, ok := op.RequestBody.Content["application/json"]; !ok {
				continue
			}
			if m.body = v.good(op); m.body == "" {
				t.Errorf("%s takes JSON: give it a good body", op.name())
				continue
			}
		} else {
			m.header, m.body = []string{"Transfer-Encoding: chunked"}, "0\r\n\r\n"
			if op.ID == "terminal" || op.ID == "editor" {
				continue // they want an upgrade
			}
		}
		n++
		resp, body := ask(t, v.addr, m.bytes(v.token), m.method, false)
		if resp == nil || resp.StatusCode == 400 || resp.StatusCode >= 500 || resp.StatusCode == 404 && op.ID != "remove-file" && op.ID != "revoke-rule" {
			t.Errorf("%s %s: %+v %.300s", op.name(), m.body, resp, body)
		}
	}
	if n < 40 {
		t.Errorf("%d operations", n)
	}
}

func (v *victim) order(op operation) string {
	switch op.ID {
	case "answer-approval":
		return "a"
	case "end-session", "remove-file":
		return "y"
	case "delete-session", "delete-agent", "delete-workspace", "revoke-key":
		return "z"
	}
	return "b"
}

// bodies are bad JSON, and JSON that is not what the schema says.
func (g *gen) bodies(t *testing.T) {
	t.Helper()
	if g.op.RequestBody == nil {
		g.noBody()
		return
	}
	media, ok := g.op.RequestBody.Content["application/json"]
	if !ok {
		return
	}
	good := g.good
	if good == "" {
		t.Errorf("%s takes JSON: give it a good body", g.op.name())
		return
	}
	body := func(name, text string) { g.add(malformed{name: name, body: text, status: 400}) }
	for name, text := range map[string]string{
		"word": "nope", "open": "{", "list": "[]", "list of it": "[" + good + "]", "text": `"{}"`, "number": "1", "more after it": good + " x", "twice": good + good,
		"nested": strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), "nested lists": strings.Repeat("[", 100_000), "null": "null",
		"not UTF-8": "{\"\xff\":1}", "byte order mark": "\ufeff" + good, "utf-16": "{\x00}\x00", "nul": good + "\x00", "single quotes": `{'a':1}`, "comma": strings.TrimSuffix(good, "}") + ",}",
		"comment": "/* */" + good, "unknown field": with(good, "bogus", "1"), "prototype": with(good, "__proto__", "{}"), "empty name": with(good, "", "1"),
		"half a surrogate": with(good, `\ud800`, "1"), "bare": "NaN", "hex": with(good, "a", "0x1"), "huge number": with(good, "bogus", "1e999999"), "leading zero": with(good, "a", "01"),
		"yaml": "text: x", "xml": "<a/>", "form": "text=x",
	} {
		body(name, text)
	}
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "application/octet-stream", "application/json5", "text/json, application/json"} {
		g.add(malformed{name: "content type " + ct, header: []string{"Content-Type: " + ct}, body: good, status: 400})
	}
	g.add(malformed{name: "gzip bomb", header: []string{"Content-Encoding: gzip", "Content-Type: application/json"}, body: g.v.bomb, status: 400})
	g.add(malformed{name: "said to be large", body: good, length: "99999999999", status: 413})
	g.add(malformed{name: "cut short", body: good[:1], length: "100", cut: true, status: 400})
	g.add(malformed{name: "bad chunks", header: []string{"Transfer-Encoding: chunked", "Content-Type: application/json"}, body: "zz\r\n{}\r\n", status: 400})
	g.add(malformed{name: "cut chunks", header: []string{"Transfer-Encoding: chunked", "Content-Type: application/json"}, body: "5\r\n{", cut: true, status: 400})
	if g.op.RequestBody.Required {
		g.add(malformed{name: "nothing", header: []string{"Content-Type: application/json"}, length: "0", status: 400})
	}
	for name, s := range media.Schema.Properties {
		g.property(name, s.resolve(media.Schema.all), func(field, value string) string { return with(good, strings.ReplaceAll(field, "^", name), value) })
		g.add(malformed{name: name + " in capitals", body: with(without(good, name), strings.ToUpper(name), `"x"`), status: 400})
		g.add(malformed{name: name + " twice", body: with(good, name, right(s.resolve(media.Schema.all))+`,"`+name+`":`+right(s.resolve(media.Schema.all))), status: 400})
	}
}

// noBody are bodies where none is taken.
func (g *gen) noBody() {
	for name, text := range map[string]string{
		"open": "{", "empty object": "{}", "not UTF-8": "\xff", "list": "[]", "field": `{"bogus":1}`, "field twice": `{"a":1,"a":2}`, "null": "null", "space": " ",
	} {
		g.add(malformed{name: "a body: " + name, body: text, status: 400})
	}
	g.add(malformed{name: "a body: no JSON", header: []string{"Content-Type: text/plain"}, body: "x", status: 400})
	g.add(malformed{name: "a body: chunks", header: []string{"Transfer-Encoding: chunked"}, body: "1\r\n{\r\n0\r\n\r\n", status: 400})
	g.add(malformed{name: "a body: bad chunks", header: []string{"Transfer-Encoding: chunked"}, body: "zz\r\n", status: 400})
	g.add(malformed{name: "a body: cut chunks", header: []string{"Transfer-Encoding: chunked"}, body: "5", cut: true, status: 400})
}

// with is a body with a field more, or with another value of a field; both as text,
// so that they may be what no encoder writes.
func with(body, name, value string) string {
	rest := strings.TrimPrefix(without(body, name), "{")
	if rest != "}" {
		rest = "," + rest
	}
	return `{"` + name + `":` + value + rest
}

// without is a body without a field. One that has it twice is left alone.
func without(body, name string) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		return body
	}
	if _, there := fields[name]; !there {
		return body
	}
	delete(fields, name)
	return encode(fields)
}

// right is a value that a schema takes.
func right(s schema) string {
	if len(s.Enum) > 0 {
		return encode(s.Enum[0])
	}
	if v, ok := map[string]string{"string": `"x"`, "integer": "1", "number": "1", "boolean": "true", "array": "[]"}[s.kind()]; ok {
		return v
	}
	return "{}"
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// wrongOf are values that no field of a type can have.
var wrongOf = map[string][]string{
	"string":  {"5", "true", "{}", "[]", `["a"]`, `"a\u0000b"`, `"\udc00"`, "null"},
	"integer": {`"x"`, "1.5", "1e30", "{}", "[]", "true", "99999999999999999999", "null"},
	"number":  {`"x"`, "{}", "[]", "true", "1e999", "null"},
	"boolean": {`"yes"`, "1", "{}", "[]", `"true"`, "null"},
	"array":   {`"x"`, "5", "{}", "true", "null"},
	"object":  {`"x"`, "5", "[]", "true", "null"},
}

// property gives a place every value that its schema excludes, and so on with the
// places within it. body is the whole body with a value at the place.
func (g *gen) property(at string, s schema, body func(field, value string) string) {
	bad := func(value string) { g.add(malformed{name: at + " is " + value, body: body("^", value), status: 400}) }
	for _, w := range wrongOf[s.kind()] {
		bad(w)
	}
	if len(s.Enum) > 0 {
		bad(`"no such ` + at + `"`)
		bad(`"` + strings.ToUpper(fmt.Sprint(s.Enum[0])) + `"`)
	}
	if s.Minimum != nil {
		bad(fmt.Sprint(*s.Minimum - 1))
	}
	within := func(format string) func(field, value string) string {
		return func(field, value string) string { return body("^", fmt.Sprintf(format, value)) }
	}
	if s.Items != nil {
		g.property(at+"[]", s.Items.resolve(s.all), within("[%s]"))
	}
	var values schema
	if json.Unmarshal(s.AdditionalProperties, &values) == nil && values.kind() != "" {
		g.property(at+".A", values.resolve(s.all), within(`{"A":%s}`))
		bad(`{"A":"1","A":"2"}`)
	}
	if len(s.Properties) > 0 {
		bad(`{"bogus":1}`)
		bad(`{"":1}`)
	}
	for name, p := range s.Properties {
		bad(`{"` + strings.ToUpper(name) + `":1}`)
		bad(`{"` + name + `":1,"` + name + `":1}`)
		g.property(at+"."+name, p.resolve(s.all), within(`{"`+name+`":%s}`))
	}
}

// TestCorpusReachesNestedPlaces: the generator goes through references, lists and
// maps; a nested place that it does not reach would never be asked about.
func TestCorpusReachesNestedPlaces(t *testing.T) {
	v := newVictim(t)
	names := map[string]bool{}
	for _, m := range v.corpus(t) {
		names[m.op+" "+m.name] = true
	}
	for _, want := range []string{
		`POST /v1/sessions budget is {"bogus":1}`, `POST /v1/sessions budget is {"turns":1,"turns":1}`, `POST /v1/sessions budget.turns is -1`,
		`PATCH /v1/sessions/{id} turn_budget.usd is "x"`, `POST /v1/sessions env.A is null`, `POST /v1/sessions tags[] is {}`, `POST /v1/keys scopes[] is "READ"`,
		`PUT /v1/secrets/{name} unknown field`, `POST /v1/secret-key/rotate a body: open`, `GET /docs unknown parameter`, `GET /metrics of its own query`,
	} {
		if !names[want] {
			t.Errorf("there is no case %s", want)
		}
	}
}

// awaitApproval is the question that a session asks.
func (v *victim) awaitApproval(t *testing.T, id holdfast.SessionID) holdfast.ApprovalID {
	t.Helper()
	for ev, err := range v.c.Follow(t.Context(), id, 0, holdfast.EventApprovalAsked) {
		var a holdfast.Approval
		if err == nil {
			err = ev.Decode(&a)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a.ID
	}
	t.Fatal("nothing was asked")
	return ""
}
