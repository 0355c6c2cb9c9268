package app_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// malformed is one request that no server may take, and what it is answered.
type malformed struct {
	// addr is where it is asked; empty is the API.
	addr string
	// op is the operation as the OpenAPI document has it: "GET /v1/sessions/{id}".
	op, name string
	method   string
	target   string
	header   []string
	body     string
	// length, when set, is what the header says in the body's place.
	length string
	// cut: the body is shorter than it says, and nothing follows.
	cut    bool
	status int
}

// kinds of problems by their status; 405 has no kind of its own.
var kindOf = map[int]holdfast.Kind{
	400: holdfast.KindInvalid, 401: holdfast.KindUnauthenticated, 403: holdfast.KindDenied, 404: holdfast.KindNotFound,
	405: holdfast.KindInvalid, 413: holdfast.KindTooLarge,
}

// bytes is the request as it goes over the wire.
func (m malformed) bytes(token string) []byte {
	var b bytes.Buffer
	b.WriteString(m.method + " " + m.target + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n")
	names := map[string]bool{}
	for _, h := range m.header {
		name, _, _ := strings.Cut(h, ":")
		names[strings.ToLower(name)] = true
		b.WriteString(h + "\r\n")
	}
	if !names["authorization"] {
		b.WriteString("Authorization: Bearer " + token + "\r\n")
	}
	if m.body != "" && !names["content-type"] {
		b.WriteString("Content-Type: application/json\r\n")
	}
	length := m.length
	if length == "" && m.body != "" {
		length = strconv.Itoa(len(m.body))
	}
	if length != "" && !names["transfer-encoding"] {
		b.WriteString("Content-Length: " + length + "\r\n")
	}
	b.WriteString("\r\n" + m.body)
	return b.Bytes()
}

// ask sends a request and reads the answer whole. What the server does not read
// may cut the sending short; the answer counts.
func ask(t *testing.T, addr string, request []byte, method string, cut bool) (*http.Response, string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, werr := conn.Write(request)
	if tcp, ok := conn.(*net.TCPConn); ok && werr == nil && cut {
		_ = tcp.CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Errorf("%.200q: no answer: %v", request, err)
		return nil, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%.200q: half an answer: %v", request, err)
	}
	return resp, string(body)
}

// victim is a server with something of everything, for bad requests to hit.
type victim struct {
	c           *client.Client
	addr, token string
	workspace   string
	bomb        string
	session     holdfast.SessionID
	turn        holdfast.TurnID
	key         holdfast.KeyID
	approval    holdfast.ApprovalID
	metrics     string // the address of their own listener
}

func newVictim(t *testing.T) *victim {
	cfg := settings(t, "mem")
	cfg.AuthFailures = 0
	v := &victim{bomb: bomb(t)}
	cfg.MetricsListen = "127.0.0.1:0"
	log := &logbook{}
	v.c, v.addr, _ = serveLogged(t, cfg, log)
	_, v.metrics, _ = strings.Cut(log.String(), `msg="metrics are served" url=http://`)
	v.metrics, _, _ = strings.Cut(v.metrics, "/")
	token, err := os.ReadFile(filepath.Join(cfg.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	v.token = strings.TrimSpace(string(token))
	ses, err := v.c.CreateSession(t.Context(), holdfast.CreateSession{Title: "victim"}, "")
	if err != nil {
		t.Fatal(err)
	}
	v.session, v.workspace = ses.ID, filepath.Join(cfg.Data, "sessions", string(ses.ID), "workspace")
	turn(t, v.c, ses.ID, `<script>[{"tool":"Write","input":{"file_path":"a.txt","content":"hello\n"}},{"say":"done"}]</script>`)
	turns, err := v.c.Turns(t.Context(), ses.ID, 0, 10)
	if err != nil || len(turns) != 1 {
		t.Fatal(turns, err)
	}
	v.turn = turns[0].ID
	if _, err := v.c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "shared"}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.c.Checkpoints(t.Context(), ses.ID, "", 0); err != nil { // waits for the turn's snapshot
		t.Fatal(err)
	}
	if _, err := v.c.DeployAgent(t.Context(), "helper", tarOf(t, entry{name: "CLAUDE.md", data: "Be brief."})); err != nil {
		t.Fatal(err)
	}
	key, _, err := v.c.CreateKey(t.Context(), holdfast.CreateKey{Name: "victim"})
	if err != nil {
		t.Fatal(err)
	}
	v.key = key.ID
	if _, err := v.c.SetSecret(t.Context(), "helper", []byte("s3cret")); err != nil {
		t.Fatal(err)
	}
	asker, err := v.c.CreateSession(t.Context(), holdfast.CreateSession{Title: "asker", Mode: "default"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.c.Send(t.Context(), asker.ID, holdfast.SendMessage{Text: `<script>[{"tool":"Bash","input":{"command":"true"}}]</script>`}); err != nil {
		t.Fatal(err)
	}
	v.approval = v.awaitApproval(t, asker.ID)
	testkit.Eventually(t, "the session shows its question", func() bool {
		s, err := v.c.Session(t.Context(), asker.ID)
		return err == nil && s.PendingApprovals == 1
	})
	return v
}

// state is all that a bad request could have changed, as text.
func (v *victim) state(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	sessions, err := v.c.Sessions(ctx, holdfast.SessionFilter{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	agents, err := v.c.Agents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := v.c.Keys(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	err = filepath.WalkDir(v.workspace, func(path string, d fs.DirEntry, err error) error {
		files = append(files, path+" "+d.Type().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	boxes, err := v.c.Containers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := v.c.Secrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	approvals, err := v.c.Approvals(ctx, holdfast.ApprovalFilter{State: "all", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	head, err := v.c.AuditHead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		keys[i].LastUsedAt = nil
	}
	for i := range boxes {
		boxes[i].LastUsed = time.Time{}
	}
	out, err := json.Marshal([]any{sessions, agents, keys, files, boxes, secrets, approvals, head.Chain, head.N, head.Hash})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestMalformedRequests: more than 300 bad requests over every route. Each is
// answered with a problem document of the status that its case says, at once, and
// changes nothing.
func TestMalformedRequests(t *testing.T) {
	v := newVictim(t)
	cases := v.corpus(t)
	before := v.state(t)
	seen, perOp := map[string]bool{}, map[string]int{}
	for i, m := range cases {
		request, addr := m.bytes(v.token), cmp.Or(m.addr, v.addr)
		if seen[addr+string(request)] {
			t.Errorf("%s: %s is there twice", m.op, m.name)
		}
		seen[addr+string(request)] = true
		perOp[m.op]++
		resp, body := ask(t, addr, request, m.method, m.cut)
		if resp == nil {
			continue
		}
		var p holdfast.Problem
		err := json.Unmarshal([]byte(body), &p)
		switch {
		case resp.StatusCode != m.status:
			t.Errorf("%s: %s: status %d, want %d: %.300s", m.op, m.name, resp.StatusCode, m.status, body)
		case m.method == http.MethodHead:
		case resp.Header.Get("Content-Type") != "application/problem+json" || err != nil || p.Status != m.status || p.Kind != kindOf[m.status] || p.Detail == "" || len(p.Detail) > 2000:
			t.Errorf("%s: %s: no problem document: %v %v %.300s", m.op, m.name, resp.Header, err, body)
		case p.Hint == "" && m.status != 404 && m.status != 413:
			t.Errorf("%s: %s: no hint: %.300s", m.op, m.name, body)
		}
		// A whole look costs five requests: one after each operation, and after
		// what could have changed something.
		if i+1 < len(cases) && cases[i+1].op == m.op && (m.method == http.MethodGet || resp.StatusCode == m.status && i%4 != 0) {
			continue
		}
		if after := v.state(t); after != before {
			t.Errorf("%s: %s changed the state\nbefore %s\nafter  %s", m.op, m.name, before, after)
			before = after
		}
	}
	for _, op := range v.operations(t) {
		if perOp[op.name()] < 5 {
			t.Errorf("%s has %d malformed requests: give it cases", op.name(), perOp[op.name()])
		}
	}
	if len(cases) < 300 {
		t.Errorf("%d cases, 300 asked", len(cases))
	}
	t.Logf("%d malformed requests over %d operations", len(cases), len(perOp))
}

// TestNoHTTPAtAll: what is not a request never reaches the router; net/http answers
// 4xx by itself or hangs up.
func TestNoHTTPAtAll(t *testing.T) {
	v := newVictim(t)
	before := v.state(t)
	const auth = "Authorization: Bearer "
	for name, raw := range map[string]string{
		"nothing":           "\r\n\r\n",
		"no version":        "GET /v1/sessions\r\n\r\n",
		"bad version":       "GET /v1/sessions HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
		"no host":           "GET /v1/sessions HTTP/1.1\r\n" + auth + v.token + "\r\n\r\n",
		"two hosts":         "GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n" + auth + v.token + "\r\n\r\n",
		"space in a name":   "GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nX A: b\r\n\r\n",
		"nul in a value":    "GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: a\x00b\r\n\r\n",
		"bad escape":        "GET /v1/%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + auth + v.token + "\r\n\r\n",
		"control in target": "GET /v1/\x01 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"two lengths":       "POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n" + auth + v.token + "\r\nContent-Type: application/json\r\n\r\n{}",
		"negative length":   "POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -2\r\n\r\n{}",
		"unknown transfer":  "POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n{}",
		"large header":      "GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + strings.Repeat("a", 100<<10) + "\r\n\r\n",
		"long target":       "GET /v1/sessions?text=" + strings.Repeat("a", 100<<10) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"many headers":      "GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n" + strings.Repeat("X-A: b\r\n", 20_000) + "\r\n",
		"tls":               "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 64),
		"http/2":            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", v.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		_, _ = io.WriteString(conn, raw)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		answer, err := io.ReadAll(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: it hangs", name)
		}
		if status, _, _ := strings.Cut(strings.TrimPrefix(string(answer), "HTTP/1.1 "), " "); len(answer) > 0 && !strings.HasPrefix(status, "4") && status != "505" && status != "501" {
			t.Errorf("%s: %.200q", name, answer)
		}
		_ = conn.Close()
	}
	if after := v.state(t); after != before {
		t.Errorf("the state changed\nbefore %s\nafter  %s", before, after)
	}
}

// operation is one of the OpenAPI document.
type operation struct {
	method, path string
	ID           string `json:"operationId"`
	Parameters   []struct {
		Name, In string
		Schema   schema
	}
	RequestBody *struct {
		Required bool
		Content  map[string]struct{ Schema schema }
	}
	Security []map[string][]string
}

func (o operation) name() string { return o.method + " " + o.path }

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
	Required   []string
	Items      *schema
	Enum       []any
	Minimum    *float64
	// AdditionalProperties is false, or the schema of a map's values.
	AdditionalProperties json.RawMessage
	all                  map[string]schema
}

// kind is the first type that a schema names.
func (s schema) kind() string {
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		for _, v := range t {
			if v != "null" {
				return v.(string)
			}
		}
	}
	return ""
}

func (s schema) resolve(all map[string]schema) schema {
	for s.Ref != "" {
		s = all[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	s.all = all
	return s
}

// operations are those of the document that the server itself serves.
func (v *victim) operations(t *testing.T) []operation {
	t.Helper()
	_, body := ask(t, v.addr, []byte("GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"), "GET", false)
	var doc struct {
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	var out []operation
	for path, methods := range doc.Paths {
		for m, op := range methods {
			op.method, op.path = strings.ToUpper(m), path
			if op.RequestBody != nil {
				for ct, media := range op.RequestBody.Content {
					media.Schema = media.Schema.resolve(doc.Components.Schemas)
					op.RequestBody.Content[ct] = media
				}
			}
			out = append(out, op)
		}
	}
	slices.SortFunc(out, func(a, b operation) int { return strings.Compare(a.name(), b.name()) })
	if len(out) < 30 {
		t.Fatalf("%d operations", len(out))
	}
	return out
}
