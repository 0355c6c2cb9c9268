package double_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast/internal/double"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t testing.TB, addr string, cfg double.Config) (*double.Server, *http.Client) {
	t.Helper()
	l, err := double.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	s := double.Serve(l, cfg)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, l.Addr().Network(), l.Addr().String())
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = s.Close()
	})
	return s, &http.Client{Transport: tr}
}

func post(t testing.TB, c *http.Client, path, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://double"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-api-key", "sk-secret-canary")
	req.Header.Set("anthropic-version", "2023-06-01")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp, string(out) + "<" + err.Error() + ">"
	}
	return resp, string(out)
}

// ask is the body of a request with these messages.
func ask(t testing.TB, stream bool, messages ...any) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"model": "double-1", "max_tokens": 100, "stream": stream, "messages": messages,
		"tools": []any{map[string]any{"name": "Bash", "input_schema": map[string]any{"type": "object"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

type m map[string]any

func user(content any) m      { return m{"role": "user", "content": content} }
func assistant(content any) m { return m{"role": "assistant", "content": content} }

// events is the stream as "type" or "type:delta", so that order and content show.
func events(t *testing.T, stream string) []string {
	t.Helper()
	var out []string
	sc := bufio.NewScanner(strings.NewReader(stream))
	name := ""
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "event: "); ok {
			name = v
		}
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type  string
			Delta struct {
				Type, Text, Thinking, Signature string
				PartialJSON                     string `json:"partial_json"`
				StopReason                      string `json:"stop_reason"`
			}
			Block struct{ Type, Name string } `json:"content_block"`
			Error struct{ Type string }
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if e.Type != name {
			t.Errorf("event %q carries type %q", name, e.Type)
		}
		d := e.Delta
		said := d.Text + d.Thinking + d.Signature + d.PartialJSON + d.StopReason + e.Block.Type + e.Block.Name + e.Error.Type
		out = append(out, strings.TrimSuffix(e.Type+":"+said, ":"))
	}
	return out
}

func TestStreamHasTheEventsOfTheAPI(t *testing.T) {
	_, c := serve(t, "127.0.0.1:0", double.Config{})
	resp, out := post(t, c, "/v1/messages?beta=true", ask(t, true, user(
		`<script>[{"think": "hm", "say": "four", "chunks": 2, "tools": [{"tool": "bash", "input": {"command": "ls"}}, {"tool": "other"}]}]</script>`)))
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("content-type"), "text/event-stream") || resp.Header.Get("request-id") == "" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	want := []string{
		"message_start", "ping",
		"content_block_start:thinking", "content_block_delta:hm", "content_block_delta:" + double.Sign("hm"), "content_block_stop",
		"content_block_start:text", "content_block_delta:fo", "content_block_delta:ur", "content_block_stop",
		"content_block_start:tool_useBash", `content_block_delta:{"comman`, `content_block_delta:d": "ls"}`, "content_block_stop",
		"content_block_start:tool_useother", "content_block_delta:{", "content_block_delta:}", "content_block_stop",
		"message_delta:tool_use", "message_stop",
	}
	if d := cmp.Diff(want, events(t, out)); d != "" {
		t.Fatal(d)
	}
}

func TestWholeAnswerAndCount(t *testing.T) {
	_, c := serve(t, "unix:"+filepath.Join(t.TempDir(), "s"), double.Config{})
	script := `<script>[{"think": "hm", "say": "four", "usage": {"input_tokens": 7, "output_tokens": 8}}]</script>`
	resp, out := post(t, c, "/v1/messages", ask(t, false, user(script)))
	var got struct {
		Type       string
		Role       string
		Content    []map[string]string
		StopReason string `json:"stop_reason"`
		Usage      map[string]int
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, err, out)
	}
	want := []map[string]string{
		{"type": "thinking", "thinking": "hm", "signature": double.Sign("hm")},
		{"type": "text", "text": "four"},
	}
	if d := cmp.Diff(want, got.Content); d != "" || got.Type != "message" || got.Role != "assistant" || got.StopReason != "end_turn" {
		t.Fatal(d, out)
	}
	if got.Usage["input_tokens"] != 7 || got.Usage["output_tokens"] != 8 {
		t.Errorf("usage %v", got.Usage)
	}
	if _, out := post(t, c, "/v1/messages/count_tokens?beta=true", `{"model": "double-1", "messages": [{"role": "user", "content": "12345678"}]}`); out != `{"input_tokens":2}`+"\n" {
		t.Errorf("count: %s", out)
	}
	resp, err := c.Head("http://double/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("HEAD / is %d", resp.StatusCode)
	}
}

// Reminders, system messages and tool results are nothing that the user said;
// each step answers once in a conversation that holds what came before.
func TestStepsFollowTheConversation(t *testing.T) {
	_, c := serve(t, "127.0.0.1:0", double.Config{})
	prompt := user([]any{
		m{"type": "text", "text": "<system-reminder>be good</system-reminder>"},
		m{"type": "text", "text": `<script>[{"tool": "Bash"}, {"say": "done"}]</script>`, "cache_control": m{"type": "ephemeral"}},
	})
	used := assistant([]any{
		m{"type": "thinking", "thinking": "hm", "signature": double.Sign("hm")},
		m{"type": "tool_use", "id": "t1", "name": "Bash", "input": m{}},
	})
	result := user([]any{m{"type": "tool_result", "tool_use_id": "t1", "content": []any{m{"type": "text", "text": "out"}}}})
	system := m{"role": "system", "content": "the directory changed"}
	last := func(out string) string {
		e := events(t, out)
		return e[len(e)-4] + " " + e[len(e)-2]
	}
	if _, out := post(t, c, "/v1/messages", ask(t, true, prompt)); last(out) != "content_block_delta:} message_delta:tool_use" {
		t.Errorf("first: %s", out)
	}
	if _, out := post(t, c, "/v1/messages", ask(t, true, prompt, used, system, result, system)); last(out) != "content_block_delta:done message_delta:end_turn" {
		t.Errorf("second: %s", out)
	}
	// An answer that was cut off is not a step, whatever the client kept of it.
	note := m{"type": "text", "text": "Your response above was cut off mid-stream. Resume directly from where it stops"}
	for _, cut := range [][]any{
		{prompt, used, user([]any{result["content"].([]any)[0], note})},
		{prompt, used, result, assistant("do"), user([]any{note})},
	} {
		if _, out := post(t, c, "/v1/messages", ask(t, true, cut...)); last(out) != "content_block_delta:done message_delta:end_turn" {
			t.Errorf("resumed: %s", out)
		}
	}
	_, out := post(t, c, "/v1/messages", ask(t, true, prompt, used, result, assistant("done"), system, user("bye")))
	if !strings.Contains(out, "You have sent 2 messages.") || !strings.Contains(out, "seen 1 tool results") {
		t.Errorf("third: %s", out)
	}
}

func TestFaults(t *testing.T) {
	_, c := serve(t, "127.0.0.1:0", double.Config{})
	script := func(s string) string { return ask(t, true, user("<script>["+s+`, {"say": "well"}]</script>`)) }
	for _, f := range []struct {
		step, typ, retry string
		status           int
	}{
		{`{"error": "overloaded"}`, "overloaded_error", "", 529},
		{`{"error": "rate_limit", "retry_after": 2}`, "rate_limit_error", "2", 429},
		{`{"error": "api"}`, "api_error", "", 500},
		{`{"error": "invalid"}`, "invalid_request_error", "", 400},
		{`{"error": "authentication"}`, "authentication_error", "", 401},
	} {
		resp, out := post(t, c, "/v1/messages", script(f.step))
		if resp.StatusCode != f.status || resp.Header.Get("retry-after") != f.retry || !strings.Contains(out, f.typ) {
			t.Errorf("%s: %d %v %s", f.step, resp.StatusCode, resp.Header, out)
		}
		if _, out := post(t, c, "/v1/messages", script(f.step)); !strings.Contains(out, "well") {
			t.Errorf("%s again: %s", f.step, out)
		}
	}
	_, out := post(t, c, "/v1/messages", script(`{"error": "overloaded", "late": true, "say": "half-gone"}`))
	if e := events(t, out); e[len(e)-1] != "error:overloaded_error" || e[len(e)-2] != "content_block_delta:half" {
		t.Errorf("late: %q", e)
	}
	if _, out := post(t, c, "/v1/messages", script(`{"cut": true, "say": "half-gone"}`)); !strings.Contains(out, "half") ||
		strings.Contains(out, "message_stop") || !strings.Contains(out, "<unexpected EOF>") {
		t.Errorf("cut: %q", out)
	}
	if _, out := post(t, c, "/v1/messages", script(`{"stall_ms": 1}`)); !strings.Contains(out, "<unexpected EOF>") {
		t.Errorf("stall: %q", out)
	}
}

// Every refusal is the API's envelope, whatever comes in.
func TestRefusals(t *testing.T) {
	s, c := serve(t, "127.0.0.1:0", double.Config{})
	four := make([]any, 5)
	for i := range four {
		four[i] = m{"type": "text", "text": "x", "cache_control": m{"type": "ephemeral"}}
	}
	use := m{"type": "tool_use", "id": "t1", "name": "Bash", "input": m{}}
	result := m{"type": "tool_result", "tool_use_id": "t1"}
	for _, b := range []struct{ path, body, says string }{
		{"/v1/messages", `{`, "not valid JSON"},
		{"/v1/messages", ``, "not valid JSON"},
		{"/v1/messages", `[]`, "not valid JSON"},
		{"/v1/messages", "\xff\xfe", "not valid JSON"},
		{"/v1/messages", `{"messages": 3}`, "not valid JSON"},
		{"/v1/messages", `{}`, "model: Field required"},
		{"/v1/messages", `{"model": "x"}`, "max_tokens: Field required"},
		{"/v1/messages", `{"model": "x", "max_tokens": 0}`, "greater than"},
		{"/v1/messages", `{"model": "x", "max_tokens": 1}`, "at least one message"},
		{"/v1/messages", ask(t, true, m{"role": "robot", "content": "x"}), "robot"},
		{"/v1/messages", ask(t, true, user(7)), "string or a list"},
		{"/v1/messages", ask(t, true, user([]any{m{"text": "x"}})), "type: Field required"},
		{"/v1/messages", ask(t, true, user([]any{m{"type": "text", "text": ""}})), "non-empty"},
		{"/v1/messages", ask(t, true, user(""), user("x")), "non-empty"},
		{"/v1/messages", ask(t, true, user(four)), "maximum of 4 blocks"},
		{"/v1/messages", ask(t, true, user("x"), assistant([]any{m{"type": "thinking", "thinking": "hm", "signature": "forged"}})), "Invalid `signature`"},
		{"/v1/messages", ask(t, true, user("x"), assistant([]any{use})), "without `tool_result`"},
		{"/v1/messages", ask(t, true, user("x"), assistant([]any{use}), user("y"), assistant("z")), "without `tool_result`"},
		{"/v1/messages", ask(t, true, user([]any{result})), "unexpected `tool_use_id`"},
		{"/v1/messages", ask(t, true, user("x"), assistant([]any{use}), user([]any{result}), user([]any{result})), "unexpected `tool_use_id`"},
		{"/v1/messages", ask(t, true, user("<script>[{}")), "no end"},
		{"/v1/complete", `{}`, "Not Found"},
		{"/v1/messages/../x", `{}`, "Not Found"},
	} {
		resp, out := post(t, c, b.path, b.body)
		var e struct {
			Type      string
			Error     struct{ Type, Message string }
			RequestID string `json:"request_id"`
		}
		if json.Unmarshal([]byte(out), &e) != nil || e.Type != "error" || e.Error.Type == "" || e.RequestID == "" ||
			resp.StatusCode/100 != 4 || !strings.Contains(e.Error.Message, b.says) {
			t.Errorf("%.80s: %d %s, want %q", b.body, resp.StatusCode, out, b.says)
		}
	}
	for _, h := range []http.Header{{}, {"X-Api-Key": {"k"}}} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/messages", strings.NewReader(ask(t, true, user("x"))))
		req.Header = h
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if want := 401 - len(h); resp.StatusCode != want {
			t.Errorf("with %d headers: %d, want %d", len(h), resp.StatusCode, want)
		}
	}
}

// The record holds the body as it came, no key, and says whether a request goes
// on where another ended, whatever marker moved.
func TestRecord(t *testing.T) {
	var file bytes.Buffer
	_, c := serve(t, "127.0.0.1:0", double.Config{Record: double.Recorder(&file)})
	// As clients write it: the type first, then the text, the marker at either end.
	text := func(s, before, after string) m {
		return user([]json.RawMessage{json.RawMessage(`{` + before + `"type":"text","text":"` + s + `"` + after + `}`)})
	}
	const mark = `"cache_control":{"type":"ephemeral"}`
	bodies := []string{
		ask(t, true, text("one", "", ","+mark)),
		ask(t, true, user("one"), assistant("ok"), text("two", mark+",", "")),
		ask(t, true, user("One"), assistant("ok"), user("two")),
		`no json`,
	}
	for _, b := range bodies {
		post(t, c, "/v1/messages?beta=true", b)
	}
	if strings.Contains(file.String(), "canary") {
		t.Fatal("the record holds the key")
	}
	var got []double.Request
	for lines := json.NewDecoder(&file); lines.More(); {
		var one double.Request
		if err := lines.Decode(&one); err != nil {
			t.Fatal(err)
		}
		got = append(got, one)
	}
	if len(got) != len(bodies) {
		t.Fatal(len(got))
	}
	if string(got[0].Body) != bodies[0] || string(got[3].Body) != `"no json"` {
		t.Errorf("bodies %s and %s", got[0].Body, got[3].Body)
	}
	if d := cmp.Diff([]string{"user", "assistant", "user"}, got[1].Roles); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"messages.2.content.0"}, got[1].CacheControl); d != "" {
		t.Error(d)
	}
	if got[1].Header["x-api-key"] != "***" || got[1].Query != "beta=true" {
		t.Errorf("%v, %q", got[1].Header, got[1].Query)
	}
	if !got[1].Extends(&got[0]) || got[2].Extends(&got[0]) || got[0].Extends(&got[1]) || got[0].Extends(&got[3]) {
		t.Error("the prefixes do not tell what goes on where")
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(ask(f, true, user("x")))
	f.Add(ask(f, false, user([]any{m{"type": "text", "text": `<script>[{"cut": true}]</script>`}})))
	f.Add(ask(f, true, user("x"), assistant([]any{m{"type": "tool_use", "id": "a", "name": "b"}}), user([]any{m{"type": "tool_result", "tool_use_id": "a", "content": "c"}})))
	f.Add(`{"model":"x","max_tokens":1,"messages":[{"role":"system","content":null}]}`)
	f.Add("{")
	s, c := serve(f, "127.0.0.1:0", double.Config{Record: func(double.Request) error { return nil }})
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "_ms") {
			t.Skip("it may wait for an hour")
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/messages", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"X-Api-Key": {"k"}, "Anthropic-Version": {"1"}}
		resp, err := c.Do(req)
		if err != nil {
			if strings.Contains(body, "cut") {
				return
			}
			t.Fatalf("%q: %v", body, err)
		}
		defer resp.Body.Close()
		out, _ := io.ReadAll(resp.Body) // a cut stream is one of the answers
		if resp.StatusCode != 200 && !bytes.Contains(out, []byte(`"type":"error"`)) {
			t.Fatalf("%q: %d %s", body, resp.StatusCode, out)
		}
	})
}
