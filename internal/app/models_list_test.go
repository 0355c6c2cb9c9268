package app_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/double"
)

// listing is a provider that lists models and keeps the keys that it is shown.
type listing struct {
	url  string
	mu   sync.Mutex
	keys []string
}

func newListing(t *testing.T, names ...string) *listing {
	t.Helper()
	l := new(listing)
	model := double.New(double.Config{Models: names})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.keys = append(l.keys, r.Header.Get("X-Api-Key")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		l.mu.Unlock()
		model.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	l.url = s.URL
	return l
}

// shown are the keys that it saw, each once.
func (l *listing) shown() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := slices.Clone(l.keys)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// auto is a server on the double whose model depends on the environment alone.
func auto(t *testing.T, environ ...string) (config.Config, func(*app.Options)) {
	t.Helper()
	cfg := settings(t, "mem")
	cfg.DefaultModel = "auto"
	return cfg, func(o *app.Options) { o.Environ = environ }
}

// TestWaysIntoAModel: each of the ways to bring a model gives a session that has it, the
// server names it, and it answers.
//
// FH-1, FH-3, FH-5, FH-7, FH-9.
func TestWaysIntoAModel(t *testing.T) {
	ollama, gateway := newListing(t, "llama3.2", "qwen3"), newListing(t, "claude-sonnet-5-5")
	for name, k := range map[string]struct {
		environ []string
		tune    func(*config.Config)
		want    string
		keys    []string
		at      *listing
	}{
		"OllamaBySetting":  {nil, func(c *config.Config) { c.Models.OpenAI.URL = ollama.url + "/v1" }, "openai/llama3.2", []string{""}, ollama},
		"OllamaByVariable": {[]string{"OPENAI_BASE_URL=" + ollama.url + "/v1"}, nil, "openai/llama3.2", []string{""}, ollama},
		"Gateway":          {[]string{"ANTHROPIC_BASE_URL=" + gateway.url, "ANTHROPIC_API_KEY=sk-gateway"}, nil, "anthropic/claude-sonnet-5-5", []string{"sk-gateway"}, gateway},
		"BothKeys":         {[]string{"ANTHROPIC_BASE_URL=" + gateway.url, "ANTHROPIC_API_KEY=sk-gateway", "OPENAI_BASE_URL=" + ollama.url + "/v1", "OPENAI_API_KEY=sk-o"}, nil, "anthropic/claude-sonnet-5-5", nil, nil},
		"SettingWins":      {[]string{"OPENAI_BASE_URL=http://127.0.0.1:1/v1"}, func(c *config.Config) { c.Models.OpenAI.URL = ollama.url + "/v1" }, "openai/llama3.2", []string{""}, ollama},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, tune := auto(t, k.environ...)
			if k.tune != nil {
				k.tune(&cfg)
			}
			for _, l := range []*listing{ollama, gateway} {
				l.mu.Lock()
				l.keys = nil
				l.mu.Unlock()
			}
			told := make(chan holdfast.Models, 1)
			c, _, _ := serveWith(t, cfg, func(o *app.Options) {
				tune(o)
				o.Models = func(m holdfast.Models) { told <- m }
			})
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
			if err != nil || ses.Model != k.want {
				t.Fatalf("%q, %v", ses.Model, err)
			}
			if end := turn(t, c, ses.ID, "hello"); !strings.HasPrefix(end.Result, "You have sent 1 message") {
				t.Errorf("it says %q", end.Result)
			}
			if m := <-told; m.Default != k.want || m.Double || m.Error != "" {
				t.Errorf("the server says %+v", m)
			}
			if k.at != nil && !slices.Equal(k.at.shown(), k.keys) {
				t.Errorf("the provider was shown %q", k.at.shown())
			}
		})
	}
}

// TestNoModelIsSaid: where no model is known that is said in words at create, and the
// double does not take its place; where nothing is configured the double does, and says so.
//
// FH-4, FH-55.
func TestNoModelIsSaid(t *testing.T) {
	for environ, says := range map[string]string{
		"OPENAI_BASE_URL=http://127.0.0.1:1/v1":                       "the model provider openai at 127.0.0.1:1 did not list its models: cannot reach 127.0.0.1:1: connection refused",
		"OPENAI_BASE_URL=" + newListing(t, []string{}...).url + "/v1": "has no model",
	} {
		cfg, tune := auto(t, environ)
		c, _, _ := serveWith(t, cfg, tune)
		if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, ""); !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), says) || holdfast.HintOf(err) == "" {
			t.Errorf("%s: %v", environ, err)
		}
		if m, err := c.Models(t.Context()); err != nil || m.Default != "" || m.Error == "" || m.Hint == "" {
			t.Errorf("%s: %+v, %v", environ, m, err)
		}
		if ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Model: "openai/x"}, ""); err != nil || ses.Model != "openai/x" {
			t.Errorf("%s: %v, %v", environ, ses.Model, err)
		}
	}
	cfg, tune := auto(t)
	c, _, _ := serveWith(t, cfg, tune)
	m, err := c.Models(t.Context())
	if err != nil || !m.Double || m.Default != "scripted" || len(m.Providers) != 2 || m.Providers[0].Configured || m.Providers[0].Hint == "" {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestSecretChangesTheDefault: the key of a provider is used from the moment it is set.
//
// FH-6.
func TestSecretChangesTheDefault(t *testing.T) {
	gateway := newListing(t, "claude-sonnet-5-5")
	cfg, tune := auto(t, "ANTHROPIC_BASE_URL="+gateway.url)
	c, _, _ := serveWith(t, cfg, tune)
	for _, want := range []string{"scripted", "anthropic/claude-sonnet-5-5"} {
		if ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, ""); err != nil || ses.Model != want {
			t.Fatalf("%q, want %q, %v", ses.Model, want, err)
		}
		if _, err := c.SetSecret(t.Context(), "anthropic", []byte("sk-stored")); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := c.Models(t.Context()); err != nil || !slices.Equal(m.Providers[0].Models, []string{"anthropic/claude-sonnet-5-5"}) || !slices.Equal(gateway.shown(), []string{"sk-stored"}) {
		t.Errorf("%+v, %v, shown %q", m, err, gateway.shown())
	}
}

// TestAKeyStaysWithItsGateway: the key in the environment belongs to the base URL there. A
// server that is to send it to another host does not start.
//
// FH-7.
func TestAKeyStaysWithItsGateway(t *testing.T) {
	for _, k := range []struct {
		environ []string
		tune    func(*config.Config)
		says    string
	}{
		{[]string{"ANTHROPIC_BASE_URL=https://gateway.example", "ANTHROPIC_API_KEY=sk-g"}, func(c *config.Config) { c.Models.Anthropic.URL = "https://other.example" }, "which of the two the key in ANTHROPIC_API_KEY belongs to"},
		{[]string{"OPENAI_BASE_URL=https://gateway.example/v1", "OPENAI_API_KEY=sk-g"}, func(c *config.Config) { c.Models.OpenAI.URL = "https://other.example/v1" }, "which of the two the key in OPENAI_API_KEY belongs to"},
		{[]string{"ANTHROPIC_BASE_URL=gateway.example"}, nil, "ANTHROPIC_BASE_URL: \"gateway.example\" is not a valid base URL of a model provider"},
	} {
		cfg, tune := auto(t, k.environ...)
		if k.tune != nil {
			k.tune(&cfg)
		}
		var o app.Options
		tune(&o)
		_, err := app.RealModel(t.Context(), cfg, o.Environ)
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), k.says) || holdfast.HintOf(err) == "" || strings.Contains(err.Error(), "sk-g") {
			t.Errorf("%q: %v", k.environ, err)
		}
	}
}
