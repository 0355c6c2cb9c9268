package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/anthropic"
	"github.com/holdfast-run/holdfast/agent/model/modeltest"
	"github.com/holdfast-run/holdfast/internal/double"
)

const key = "sk-ant-canary-0123456789"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string, silence time.Duration) *anthropic.Model {
	t.Helper()
	m, err := anthropic.New(anthropic.Config{Key: key, URL: url, Silence: silence, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func serve(t *testing.T) *double.Server {
	t.Helper()
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	modeltest.Run(t, modeltest.Options{}, func(t *testing.T) model.Provider { return open(t, serve(t).URL(), 0) })
}

// canned answers every request alike.
func canned(t *testing.T, status int, header map[string]string, body string) *anthropic.Model {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		if status == http.StatusOK {
			w.Header().Set("content-type", "text/event-stream")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return open(t, s.URL, 0)
}

func failure(t *testing.T, a modeltest.Answer) *model.Failure {
	t.Helper()
	f, ok := a.Err.(*model.Failure)
	if !ok || len(a.Done) > 0 {
		t.Fatalf("%+v", a)
	}
	return f
}

func TestStatuses(t *testing.T) {
	reset := time.Now().Add(2 * time.Hour)
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   model.Failure
		after  [2]float64
	}{
		"no such model": {404, nil, `{"error":{"type":"not_found_error","message":"model: x"}}`, model.Failure{Class: "invalid"}, [2]float64{}},
		"forbidden":     {403, nil, `{"error":{"type":"permission_error","message":"no"}}`, model.Failure{Class: "permission"}, [2]float64{}},
		"web page":      {502, nil, `<html>` + key, model.Failure{Class: "api", Retryable: true}, [2]float64{}},
		"told not to":   {529, map[string]string{"x-should-retry": "false"}, `{}`, model.Failure{Class: "overloaded"}, [2]float64{}},
		"told to":       {400, map[string]string{"x-should-retry": "true"}, `{}`, model.Failure{Class: "invalid", Retryable: true}, [2]float64{}},
		"key echoed":    {401, nil, `{"error":{"type":"authentication_error","message":"bad key ` + key + `"}}`, model.Failure{Class: "authentication"}, [2]float64{}},
		"long wait":     {429, map[string]string{"retry-after": "7200"}, `{}`, model.Failure{Class: "rate_limit", Retryable: true}, [2]float64{7200, 7200}},
		"date":          {429, map[string]string{"retry-after": reset.UTC().Format(http.TimeFormat)}, `{}`, model.Failure{Class: "rate_limit", Retryable: true}, [2]float64{7100, 7200}},
		"limit's reset": {429, map[string]string{"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": reset.Format(time.RFC3339), "anthropic-ratelimit-requests-remaining": "9", "anthropic-ratelimit-requests-reset": "2099-01-01T00:00:00Z"}, `{}`, model.Failure{Class: "rate_limit", Retryable: true}, [2]float64{7100, 7200}},
		"unified":       {429, map[string]string{"anthropic-ratelimit-unified-reset": fmt.Sprint(reset.Unix())}, `{}`, model.Failure{Class: "rate_limit", Retryable: true}, [2]float64{7100, 7200}},
		"redirect":      {307, map[string]string{"location": "http://127.0.0.1:1/"}, ``, model.Failure{Class: "invalid"}, [2]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := failure(t, modeltest.Ask(t.Context(), canned(t, c.status, c.header, c.body), modeltest.Request("x")))
			if f.Class != c.want.Class || f.Retryable != c.want.Retryable || f.RetryAfterSeconds < c.after[0] || f.RetryAfterSeconds > c.after[1] {
				t.Errorf("%+v", f)
			}
			if strings.Contains(fmt.Sprintf("%+v", f), key) || strings.Contains(f.Message, "html") {
				t.Errorf("%+v shows what it must not", f)
			}
		})
	}
}

const start = `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":11,"cache_read_input_tokens":5,"cache_creation_input_tokens":6,"output_tokens":1}}}

`

const textStart = `event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}

`

func TestBrokenStreams(t *testing.T) {
	for name, c := range map[string]struct {
		body, class string
		retry       bool
	}{
		"empty":          {"", "cut", true},
		"ends early":     {start + textStart, "cut", true},
		"no stop reason": {start + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", "cut", true},
		"not json":       {start + "event: content_block_start\ndata: {\"type\":\n\n", "cut", true},
		"delta of none":  {start + "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n", "cut", true},
		"overloaded":     {start + textStart + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n", "overloaded", true},
		"invalid":        {start + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}\n\n", "invalid", false},
		"web page":       {"<html>hello</html>", "cut", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := failure(t, modeltest.Ask(t.Context(), canned(t, 200, nil, c.body), modeltest.Request("x")))
			if f.Class != c.class || f.Retryable != c.retry {
				t.Errorf("%+v", f)
			}
			if want := (holdfast.Usage{InputTokens: 11, OutputTokens: 1, CacheReadTokens: 5, CacheWriteTokens: 6}); strings.HasPrefix(c.body, start) && f.Usage != want {
				t.Errorf("usage %+v", f.Usage)
			}
		})
	}
}

func TestStallIsGivenUp(t *testing.T) {
	f := failure(t, modeltest.Ask(t.Context(), open(t, serve(t).URL(), 100*time.Millisecond), modeltest.Request(`<script>[{"say":"abc","stall_ms":600000,"chunks":2}]</script>`)))
	if f.Class != "stall" || !f.Retryable {
		t.Errorf("%+v", f)
	}
	// Nothing is listening.
	f = failure(t, modeltest.Ask(t.Context(), open(t, "http://127.0.0.1:1", 0), modeltest.Request("x")))
	if f.Class != "cut" || !f.Retryable || strings.Contains(f.Message, "http://") {
		t.Errorf("%+v", f)
	}
}

// What one request begins with, the next begins with, and redacted thinking and
// foreign ids find a form that is the same each time.
func TestRequestsAreStable(t *testing.T) {
	s := serve(t)
	m := open(t, s.URL(), 0)
	req := modeltest.Request("one")
	history := []model.Message{
		{Role: model.Assistant, Blocks: []model.Block{
			{Type: model.Thinking, Text: "foreign"},
			{Type: model.Text, Text: "a"},
			{Type: model.ToolUse, ID: "functions.Bash:0", Name: "Bash", Input: json.RawMessage(`{"z":1,"a":"<&>"}`)},
		}},
		{Role: model.User, Blocks: []model.Block{{Type: model.ToolResult, ID: "functions.Bash:0", IsError: true}, {Type: model.Text, Text: "two"}}},
		{Role: model.Assistant, Blocks: []model.Block{{Type: model.Text, Text: "b"}}},
		{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: "three"}}},
	}
	for n := 0; n <= len(history); n += 2 {
		req.Messages = append(req.Messages[:1:1], history[:n]...)
		if a := modeltest.Ask(t.Context(), m, req); a.Err != nil {
			t.Fatal(n, a.Err)
		}
	}
	got := s.Requests()
	for i := range got {
		if n := len(got[i].CacheControl); n == 0 || n > 3 {
			t.Errorf("%d cache markers: %v", n, got[i].CacheControl)
		}
		if i > 0 && !got[i].Extends(&got[i-1]) {
			t.Errorf("request %d does not begin with the one before:\n%s\n%s", i, got[i-1].Body, got[i].Body)
		}
	}
	if body := string(got[1].Body); !strings.Contains(body, `{"z":1,"a":`) || !strings.Contains(body, `{"type":"object","properties":{"b":{},"a":{}}}`) || strings.Contains(body, "foreign") {
		t.Error(body)
	}
}

// TestThinkingStaysWithinTheBound: budgets are reserved by what a request says that
// its answer may have, so no answer gets more, however much is to be thought.
func TestThinkingStaysWithinTheBound(t *testing.T) {
	s := serve(t)
	m, err := anthropic.New(anthropic.Config{Key: key, URL: s.URL(), Thinking: anthropic.Thinking{Tokens: 8000}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	for i, c := range []struct {
		most int
		want string
	}{
		{9024, `{"max_tokens":9024,"thinking":{"budget_tokens":8000,"type":"enabled"}}`},
		{4096, `{"max_tokens":4096,"thinking":{"budget_tokens":3072,"type":"enabled"}}`},
		{2047, `{"max_tokens":2047}`},
	} {
		req := modeltest.Request("x")
		req.MaxTokens = c.most
		if a := modeltest.Ask(t.Context(), m, req); a.Err != nil {
			t.Fatal(a.Err)
		}
		var got struct {
			MaxTokens int            `json:"max_tokens"`
			Thinking  map[string]any `json:"thinking,omitempty"`
		}
		if err := json.Unmarshal(s.Requests()[i].Body, &got); err != nil {
			t.Fatal(err)
		}
		if b, _ := json.Marshal(got); string(b) != c.want {
			t.Errorf("%s, want %s", b, c.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []anthropic.Config{
		{Now: time.Now},
		{Key: "a\nb", Now: time.Now},
		{Key: key, URL: "ftp://x", Now: time.Now},
		{Key: key, URL: "http://user:pw@x", Now: time.Now},
	} {
		if _, err := anthropic.New(c); !holdfast.IsKind(err, holdfast.KindInvalid) || strings.Contains(err.Error(), key) {
			t.Error(err)
		}
	}
}

func TestModels(t *testing.T) {
	s := serve(t)
	if names, err := open(t, s.URL(), 0).Models(t.Context()); err != nil || !slices.Equal(names, []string{"claude-sonnet-5-5", "double"}) {
		t.Errorf("%q %v", names, err)
	}
	for status, body := range map[int]string{401: `{"error":{"type":"authentication_error","message":"bad key ` + key + `"}}`, 200: "<html>" + key, 502: "<html>"} {
		_, err := canned(t, status, nil, body).Models(t.Context())
		var f *model.Failure
		if !errors.As(err, &f) || strings.Contains(fmt.Sprintf("%+v", f), key) || strings.Contains(f.Message, "html") {
			t.Errorf("%d: %+v", status, err)
		}
	}
}
