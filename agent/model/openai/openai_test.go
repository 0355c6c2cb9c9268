package openai_test

import (
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
	"github.com/holdfast-run/holdfast/agent/model/modeltest"
	"github.com/holdfast-run/holdfast/agent/model/openai"
	"github.com/holdfast-run/holdfast/internal/double"
)

const key = "sk-canary-0123456789"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, url string, silence time.Duration) *openai.Model {
	t.Helper()
	m, err := openai.New(openai.Config{Key: key, URL: url + "/v1", Silence: silence, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func serve(t *testing.T, quirks ...double.Quirk) *double.Server {
	t.Helper()
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := double.Serve(l, double.Config{Quirks: quirks})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	for name, quirks := range map[string][]double.Quirk{
		"plain":   nil,
		"bare":    {double.NoUsage, double.NoIDs, double.NoDone},
		"whole":   {double.WholeArguments, double.NoIndex},
		"objects": {double.ObjectArguments, double.NoIDs},
		"index 0": {double.SameIndex},
		"ollama":  {double.SameIndex, double.WholeArguments},
	} {
		t.Run(name, func(t *testing.T) {
			opt := modeltest.Options{NoSignatures: true, NoUsage: name == "bare"}
			modeltest.Run(t, opt, func(t *testing.T) model.Provider { return open(t, serve(t, quirks...).URL(), 0) })
		})
	}
}

// A server that does not stream, and one that says nothing of usage.
func TestWholeMessagesAndEstimates(t *testing.T) {
	a := modeltest.Ask(t.Context(), open(t, serve(t, double.NoStream).URL(), 0), modeltest.Request(`<script>[{"say":"hi","tools":[{"tool":"Bash","input":{"a":1}}],"usage":{"input_tokens":3,"output_tokens":4}}]</script>`))
	if a.Err != nil || len(a.Blocks) != 2 || string(a.Blocks[1].Input) != `{"a":1}` || a.Done[0].StopReason != "tool_use" || a.Done[0].Usage.InputTokens != 3 {
		t.Errorf("%+v", a)
	}
	req := modeltest.Request("how long is this?")
	a = modeltest.Ask(t.Context(), open(t, serve(t, double.NoUsage).URL(), 0), req)
	if a.Err != nil || a.Done[0].Usage.InputTokens != req.Bytes()/4 || a.Done[0].Usage.OutputTokens == 0 {
		t.Errorf("%+v", a)
	}
}

func canned(t *testing.T, status int, header map[string]string, body string) *openai.Model {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/event-stream")
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return open(t, s.URL, 0)
}

func TestFailures(t *testing.T) {
	const hi = `data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}` + "\n\n"
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		class  string
		retry  bool
		after  float64
	}{
		"quota":           {429, nil, `{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}`, "rate_limit", false, 0},
		"rate limit":      {429, map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "9h"}, `{"error":{"message":"slow","code":"rate_limit_exceeded"}}`, "rate_limit", true, 360},
		"milliseconds":    {503, map[string]string{"retry-after-ms": "1500"}, `x`, "api", true, 1.5},
		"bad key":         {401, nil, `{"error":{"message":"Incorrect API key provided: ` + key + `","code":"invalid_api_key"}}`, "authentication", false, 0},
		"text error":      {400, nil, `{"error":"model 'x' not found, try pulling it first"}`, "invalid", false, 0},
		"empty":           {200, nil, ``, "cut", true, 0},
		"cut":             {200, nil, hi, "cut", true, 0},
		"not json":        {200, nil, hi + "data: {\"choices\":\n\n", "cut", true, 0},
		"error in stream": {200, nil, hi + `data: {"error":{"message":"boom","type":"server_error","code":500}}` + "\n\n", "api", true, 0},
		"word in stream":  {200, nil, hi + `data: {"error":"out of memory"}` + "\n\n", "api", true, 0},
		"status in frame": {200, nil, hi + `data: {"error":{"message":"too long","code":400}}` + "\n\n", "invalid", false, 0},
		"web page":        {200, nil, "<html>" + key, "cut", true, 0},
		"odd json":        {200, map[string]string{"content-type": "application/json"}, `[]`, "cut", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := modeltest.Ask(t.Context(), canned(t, c.status, c.header, c.body), modeltest.Request("x"))
			f, ok := a.Err.(*model.Failure)
			if !ok || len(a.Done) > 0 || f.Class != c.class || f.Retryable != c.retry || f.RetryAfterSeconds != c.after {
				t.Errorf("%+v", a)
			}
			if strings.Contains(fmt.Sprintf("%+v", f), key) {
				t.Errorf("%+v shows the key", f)
			}
		})
	}
}

func TestEndsThatServersSend(t *testing.T) {
	for name, body := range map[string]string{
		"crlf and comments": ": ping\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n",
		"no done":           "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n",
		"done, no reason":   "data:{\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]",
		"two choices":       "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"no\"}},{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		"nulls":             "data: {\"choices\":[{\"delta\":{\"content\":\"hi\",\"tool_calls\":null,\"reasoning_content\":null},\"finish_reason\":null}],\"usage\":null,\"error\":null}\n\ndata: [DONE]\n\n",
	} {
		a := modeltest.Ask(t.Context(), canned(t, 200, nil, body), modeltest.Request("x"))
		if a.Err != nil || len(a.Done) != 1 || a.Done[0].StopReason != "end_turn" || a.Deltas[model.ChunkText] != "hi" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	a := modeltest.Ask(t.Context(), canned(t, 200, nil, `data: {"choices":[{"delta":{"content":"h"},"finish_reason":"length"}]}`+"\n\n"), modeltest.Request("x"))
	if a.Err != nil || a.Done[0].StopReason != "max_tokens" {
		t.Errorf("%+v", a)
	}
}

func TestStallIsGivenUp(t *testing.T) {
	a := modeltest.Ask(t.Context(), open(t, serve(t).URL(), 100*time.Millisecond), modeltest.Request(`<script>[{"say":"abc","stall_ms":600000,"chunks":2}]</script>`))
	if f, ok := a.Err.(*model.Failure); !ok || f.Class != "stall" || !f.Retryable {
		t.Errorf("%+v", a)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []openai.Config{{}, {Key: "a\nb", Now: time.Now}, {URL: "x", Now: time.Now}, {URL: "http://h?x=1", Now: time.Now}} {
		if _, err := openai.New(c); err == nil || !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Error(err)
		}
	}
}

// FH-8.
func TestModels(t *testing.T) {
	s := serve(t)
	if names, err := open(t, s.URL(), 0).Models(t.Context()); err != nil || !slices.Equal(names, []string{"claude-sonnet-5-5", "double"}) {
		t.Errorf("%q %v", names, err)
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests to a model", n)
	}
	for name, c := range map[string]struct {
		status      int
		body, class string
		says        string
	}{
		"web page":     {200, "<html>" + key, "invalid", "the provider's answer is not a list of models"},
		"bad key":      {401, `{"error":{"message":"no such key ` + key + `","code":"invalid_api_key"}}`, "authentication", "no such key ***"},
		"no such path": {404, "404 page not found", "invalid", "not found (404)"},
		"cut":          {200, `{"data":[{"id":"x"`, "invalid", "not a list"},
	} {
		_, err := canned(t, c.status, nil, c.body).Models(t.Context())
		var f *model.Failure
		if !errors.As(err, &f) || f.Class != c.class || !strings.Contains(f.Message, c.says) || strings.Contains(fmt.Sprintf("%+v", f), key) {
			t.Errorf("%s: %+v", name, err)
		}
	}
	odd := `{"data":[{"id":"a"},{"id":"a"},{"id":""},{"id":"b\u001b[2J"},{"id":"c d"},{"id":"` + strings.Repeat("x", 200) + `"},{"id":"org/m:7b"}]}`
	if names, err := canned(t, 200, nil, odd).Models(t.Context()); err != nil || !slices.Equal(names, []string{"a", "org/m:7b"}) {
		t.Errorf("%q %v", names, err)
	}
	_, err := open(t, "http://127.0.0.1:1", 0).Models(t.Context())
	var f *model.Failure
	if !errors.As(err, &f) || f.Message != "cannot reach 127.0.0.1:1: connection refused" || !strings.Contains(f.Hint, "is it running at 127.0.0.1:1?") {
		t.Errorf("%+v", err)
	}
}
