package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// sample selects a share of the bombs: one of so many.
type sample struct{ of, n int }

func every(of int) *sample { return &sample{of: of, n: -1} }

// skips reports whether the next bomb is outside of the sample.
func (s *sample) skips() bool {
	s.n++
	return s.n%s.of != 0
}

// TestBombsSampled sends a sample of the bombs of each test of bombs; make check sends
// them all.
func TestBombsSampled(t *testing.T) {
	testkit.Long(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *sample)
		of   int
	}{
		{"fields of the API", bombFields, 41},
		{"chunks of a model", bombChunks, 13},
		{"scripts", bombScripts, 13},
		{"messages of an agent", bombMessages, 10},
		{"standard input", bombStandardInput, 11},
		{"hooks", bombHooks, 7},
		{"folders of agents", bombFolders, 83},
		{"answers of an agent", bombAnswers, 9},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, every(c.of)) })
	}
}

// openers may make some reader go one level deeper, of shells, JSON, YAML, markdown,
// patterns and markup.
var openers = []string{
	"(", "[", "{", "$(", "${", "`", "<", "<!--", `"`, `\`, "!", "#", "- ", "*", "> ", "| ", "& ", "; ", "if ", "case ", "[[ ", "((", "$((",
	"**/", "a/", "../", "{\"a\":", "[[", "{a: ", "&a ", "*a ", "? ", "---\n", "<<a\n", "'", "~", "<script>[", "{\"tool\":", "$[", "x=(", "\\u0000", "{{", "<a>", "![", "::",
}

const (
	// bombSize is 10 MB, and underLimit the most that a body of settings may hold.
	bombSize   = 10_000_000
	underLimit = 900_000
	// peakLimit bounds the server's memory, in MB. The collector lets the heap grow to three times what
	// is live: a message of 10 MB and its copies took 240 to 330 MB.
	peakLimit = 400
)

func bombOf(opener string, size int) string { return strings.Repeat(opener, size/len(opener)) }

// peak is the most memory that the server has used so far, in MB.
func (p *process) peak() int {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatalf("the server is gone: %v\n%s", err, tail(p.log.String()))
	}
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.Atoi(strings.Fields(kb)[0])
			return n / 1024
		}
	}
	p.t.Fatal("the server is gone")
	return 0
}

func tail(s string) string { return s[max(0, len(s)-3000):] }

// survived checks that the server lives, and its memory.
func (p *process) survived(what string) {
	p.t.Helper()
	select {
	case <-p.done:
		p.t.Fatalf("%s: the server ended\n%s", what, tail(p.log.String()))
	default:
	}
	if _, err := p.Health(p.t.Context()); err != nil {
		p.t.Fatalf("%s: %v\n%s", what, err, tail(p.log.String()))
	}
	if mb := p.peak(); mb > peakLimit {
		p.t.Fatalf("%s: the server took %d MB", what, mb)
	}
}

// idle waits until no turn runs: each accepted message is a turn.
func (p *process) idle() {
	p.t.Helper()
	testkit.Eventually(p.t, "no turn runs", func() bool {
		h, err := p.Health(p.t.Context())
		if err != nil {
			p.t.Fatalf("%v\n%s", err, tail(p.log.String()))
		}
		return h.RunningTurns == 0
	})
}

// field is a place for text in a request: it makes a request with a given text there.
type field struct {
	name string
	// body: the text is a part of the body. raw: it is JSON there.
	body, raw bool
	send      func(text string) *http.Request
}

// document is the part of docs/openapi.json that leads to the fields.
type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	ID         string `json:"operationId"`
	Parameters []struct {
		Name   string `json:"name"`
		In     string `json:"in"`
		Schema schema `json:"schema"`
	} `json:"parameters"`
	Body struct {
		Content map[string]struct {
			Schema schema `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
}

type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	More       any               `json:"additionalProperties"`
	Required   []string          `json:"required"`
	Enum       []any             `json:"enum"`
}

// is reports whether a schema may be of a type; one without a type may be of any.
func (s schema) is(typ string) bool {
	switch t := s.Type.(type) {
	case string:
		return t == typ
	case []any:
		return slices.Contains(t, any(typ))
	}
	return true
}

// texts calls visit for each place for text in a schema, with a JSON value that has
// text there. With raw the text is the JSON itself.
func (d *document) texts(s schema, path string, visit func(name string, value func(text string) any)) {
	if s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	base := map[string]any{}
	for _, name := range s.Required {
		base[name] = d.sample(s.Properties[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		d.texts(s.Properties[name], path+"."+name, func(at string, value func(string) any) {
			visit(at, func(text string) any {
				out := maps.Clone(base)
				out[name] = value(text)
				return out
			})
		})
	}
	if s.Items != nil {
		d.texts(*s.Items, path+"[]", func(at string, value func(string) any) {
			visit(at, func(text string) any { return []any{value(text)} })
		})
	}
	if s.More != nil && s.More != false {
		visit(path+".key", func(text string) any { return map[string]any{text: "x"} })
		visit(path+".value", func(text string) any { return map[string]any{"X": text} })
	}
	if s.Type == nil && s.Properties == nil || len(s.Properties) == 0 && s.is("object") && s.Items == nil {
		visit(path+" (raw)", func(text string) any { return raw(text) })
		visit(path+".command", func(text string) any {
			return map[string]any{"command": text, "file_path": text, "path": text, "url": text}
		})
	}
	if s.is("string") {
		visit(path, func(text string) any { return text })
	}
}

// raw is text in the place of JSON.
type raw string

// sample returns a valid value for a required field.
func (d *document) sample(s schema) any {
	if s.Ref != "" {
		s = d.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type == "integer" || s.Type == "number":
		return 1
	case s.Type == "boolean":
		return true
	case s.Items != nil:
		return []any{}
	case s.Type == "object":
		return map[string]any{}
	}
	return "Bash"
}

// body encodes a value; raw text is inserted unchanged.
func body(v any) []byte {
	const mark = "\x01raw\x01"
	text := ""
	var swap func(v any) any
	swap = func(v any) any {
		switch v := v.(type) {
		case raw:
			text = string(v)
			return mark
		case map[string]any:
			for k := range v {
				v[k] = swap(v[k])
			}
		case []any:
			for i := range v {
				v[i] = swap(v[i])
			}
		}
		return v
	}
	b, _ := json.Marshal(swap(v))
	if text != "" {
		quoted, _ := json.Marshal(mark)
		b = bytes.Replace(b, quoted, []byte(text), 1)
	}
	return b
}

// fields are all places for text of the API.
func (p *process) fields(id holdfast.SessionID) []field {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "openapi.json"))
	var d document
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(p.data, "token"))
	if err != nil {
		p.t.Fatal(err)
	}
	request := func(method, path, kind string, content []byte) *http.Request {
		r, err := http.NewRequestWithContext(p.t.Context(), method, p.url, bytes.NewReader(content))
		if err != nil {
			p.t.Fatal(err)
		}
		// Unchanged: the client must not parse it.
		r.URL.Opaque, r.URL.RawQuery, _ = strings.Cut(path, "?")
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		return r
	}
	var out []field
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			op := d.Paths[path][method]
			if op.ID == "" {
				continue
			}
			method, at := strings.ToUpper(method), strings.ReplaceAll(path, "{id}", string(id))
			plain := strings.NewReplacer("{name}", "n", "{path}", "f", "{turn}", "t").Replace(at)
			for _, q := range op.Parameters {
				out = append(out, field{op.ID + " " + q.In + " " + q.Name, false, false, func(text string) *http.Request {
					text = escapeText(text)
					switch q.In {
					case "path":
						return request(method, strings.NewReplacer("{name}", "n", "{turn}", "t", "{"+q.Name+"}", text, "{path}", text).Replace(strings.ReplaceAll(path, "{id}", "{id}")), "", nil)
					case "header":
						r := request(method, plain, "application/json", []byte("{}"))
						r.Header.Set(q.Name, text)
						return r
					}
					return request(method, plain+"?"+q.Name+"="+text, "", nil)
				}})
			}
			for kind, c := range op.Body.Content {
				if kind != "application/json" {
					out = append(out, field{op.ID + " body", true, false, func(text string) *http.Request { return request(method, plain, kind, []byte(text)) }})
					continue
				}
				d.texts(c.Schema, "", func(name string, value func(string) any) {
					out = append(out, field{op.ID + " body" + name, true, strings.HasSuffix(name, "(raw)"), func(text string) *http.Request { return request(method, plain, kind, body(value(text))) }})
				})
			}
		}
	}
	return out
}

// escapeText makes text fit into a URL and a header.
func escapeText(text string) string {
	return strings.NewReplacer(" ", "%20", "\n", "%0A", "#", "%23", "&", "%26", "\"", "%22", "<", "%3C", ">", "%3E", "`", "%60", "\\", "%5C", "{", "%7B", "}", "%7D", "|", "%7C", "^", "%5E", "[", "%5B", "]", "%5D", "?", "%3F").Replace(text)
}

// TestBombsInEveryFieldOfTheAPI sends 10 MB of openers, and the most that bodies of
// settings may hold, into every text of every route of docs/openapi.json: each field
// gets at least three openers of each size, each opener meets many fields. The server
// lives and stays below 300 MB.
func TestBombsInEveryFieldOfTheAPI(t *testing.T) {
	testkit.Long(t)
	bombFields(t, every(1))
}

func bombFields(t *testing.T, some *sample) {
	t.Helper()
	p := launchOn(t, testkit.BaseDir(t), "mem", holdfast.Untrusted,
		"--set", "permissions.deny=Bash(curl *),Read(**/a/**/b/**/c)", "--set", "permissions.allow=Bash(git *)")
	s, err := p.CreateSession(t.Context(), holdfast.CreateSession{Mode: "auto"}, "")
	if err != nil {
		t.Fatal(err)
	}
	fields := p.fields(s.ID)
	httpClient := &http.Client{Timeout: 5 * time.Second}
	var mu sync.Mutex
	sent, status := 0, map[int]int{}
	try := func(f field, text string) {
		resp, err := httpClient.Do(f.send(text))
		mu.Lock()
		defer mu.Unlock()
		sent++
		if err != nil {
			return // as when the server closes before it has read all
		}
		status[resp.StatusCode]++
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		}
		_ = resp.Body.Close()
	}
	// Of too long a head the server reads only the allowed part but then lingers: many at
	// once. Bodies come one by one, so that the peak is that of one.
	var heads sync.WaitGroup
	places := make(chan struct{}, 16)
	for i, f := range fields {
		for k, size := range []int{bombSize, bombSize, bombSize, underLimit, underLimit, underLimit} {
			opener := openers[(i*6+k*7)%len(openers)]
			if some.skips() {
				continue
			}
			if f.body {
				try(f, bombOf(opener, size))
				p.idle()
				continue
			}
			places <- struct{}{}
			heads.Go(func() {
				defer func() { <-places }()
				try(f, bombOf(opener, size))
			})
		}
		if f.raw && some.of == 1 {
			for _, size := range []int{bombSize, underLimit} {
				try(f, wideOf(size))
				p.idle()
			}
		}
		if f.body && some.of == 1 {
			p.survived(f.name)
		}
	}
	heads.Wait()
	p.survived("parameters")
	t.Logf("%d fields, %d openers, %d requests, answers %v, peak %d MB", len(fields), len(openers), sent, status, p.peak())
	if len(fields) < 60 || sent < 6*len(fields)/some.of || status[http.StatusRequestEntityTooLarge] == 0 {
		t.Errorf("%d fields, %d requests, %v", len(fields), sent, status)
	}
}

// TestLargeMessagesAtOnce sends messages of the largest size, every character of them
// escaped, many at a time.
func TestLargeMessagesAtOnce(t *testing.T) {
	testkit.Long(t)
	p := launchOn(t, testkit.BaseDir(t), "mem", holdfast.Untrusted)
	text := bombOf(`"`, bombSize)
	var all sync.WaitGroup
	for range 6 {
		s, err := p.CreateSession(t.Context(), holdfast.CreateSession{}, "")
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if _, err := p.Send(t.Context(), s.ID, holdfast.SendMessage{Text: text}); err != nil && !holdfast.IsKind(err, holdfast.KindBusy) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	p.idle()
	p.survived("large messages at once")
	t.Logf("peak %d MB", p.peak())
}
