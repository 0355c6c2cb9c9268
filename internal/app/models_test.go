package app_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/double"
)

const modelKey = "sk-modelKey-of-this-test"

// asked is a server whose providers are doubles.
func asked(t *testing.T, tune func(*config.Config)) (config.Config, *double.Server) {
	t.Helper()
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = d.Close() })
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(modelKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := settings(t, "mem")
	cfg.DefaultModel = "auto"
	cfg.Models.Anthropic.URL, cfg.Models.Anthropic.KeyFile = d.URL(), key
	cfg.Models.OpenAI.URL = d.URL() + "/v1"
	if tune != nil {
		tune(&cfg)
	}
	return cfg, d
}

func events(t *testing.T, c *client.Client, id holdfast.SessionID) []holdfast.Event {
	t.Helper()
	evs, err := c.Events(t.Context(), id, holdfast.EventFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

func dump(evs []holdfast.Event) string {
	var b strings.Builder
	for _, e := range evs {
		fmt.Fprintf(&b, "%d %s %s\n", e.Seq, e.Type, e.Data)
	}
	return b.String()
}

// Each request begins with the one before, byte for byte but for the cache
// markers: over tools, turns, a restart of the server and a resume from the log.
//
// WS-R81.
func TestRequestsKeepTheirPrefix(t *testing.T) {
	for _, model := range []string{"claude-sonnet-4-5", "openai/any"} {
		t.Run(model, func(t *testing.T) {
			cfg, d := asked(t, nil)
			c, stop := serve(t, cfg)
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Model: model}, "")
			if err != nil {
				t.Fatal(err)
			}
			script := `<script>[{"think":"first","say":"I look","tools":[{"tool":"Write","input":{"file_path":"a.txt","content":"<b>&\u2028ä"}},{"tool":"Bash","input":{"command":"cat a.txt"}}]},{"think":"more","tool":"Bash","input":{"command":"cat none"}},{"say":"done"}]</script>`
			turn(t, c, ses.ID, script)
			turn(t, c, ses.ID, "And now?")
			stop()
			c, stop = serve(t, cfg)
			turn(t, c, ses.ID, script)
			if _, err := c.PauseSession(t.Context(), ses.ID, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
			stop()
			c, _ = serve(t, cfg)
			end := turn(t, c, ses.ID, "What do you know?")
			if !strings.HasPrefix(end.Result, "You have sent 4 messages.") || !strings.Contains(end.Result, "I have seen 6 tool results.") {
				t.Errorf("%q", end.Result)
			}
			got := d.Requests()
			if len(got) != 8 {
				t.Fatalf("%d requests", len(got))
			}
			for i := range got {
				if n := len(got[i].CacheControl); strings.HasPrefix(model, "claude") && (n == 0 || n > 4) {
					t.Errorf("request %d has cache markers at %v", i, got[i].CacheControl)
				}
				if i > 0 && !got[i].Extends(&got[i-1]) {
					t.Errorf("request %d does not begin with the one before:\n%s\n%s", i, got[i-1].Body, got[i].Body)
				}
			}
		})
	}
}

func TestProvidersAreCountedAndPriced(t *testing.T) {
	cfg, _ := asked(t, func(c *config.Config) { c.Models.Prices = []string{"openai/cheap=1/1"} })
	c, _ := serve(t, cfg)
	// The double counts the faults of a text: each model has its own.
	script := `<script>[{"error":"overloaded"},{"say":"MODEL","usage":{"input_tokens":1000,"output_tokens":100,"cache_read_tokens":10000}}]</script>`
	for model, cost := range map[string]float64{"": 0.004, "claude-sonnet-4-5": 0.0075, "openai/cheap": 0.0111, "openai/unknown": -1, "scripted": 0} {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Model: model}, "")
		if err != nil {
			t.Fatal(err)
		}
		turn(t, c, ses.ID, strings.Replace(script, "MODEL", "I am "+ses.Model, 1))
		use, err := c.Usage(t.Context(), ses.ID)
		if err != nil || use.Usage.OutputTokens != 100 || use.Turns != 1 || use.Calls != 1 {
			t.Errorf("%q: %+v %v", model, use, err)
		}
		switch {
		case cost < 0 && (use.CostUSD != nil || use.Usage.UnpricedCalls != 1):
			t.Errorf("%q: the price is not known, yet %+v", model, use)
		case cost >= 0 && (use.CostUSD == nil || *use.CostUSD != cost):
			t.Errorf("%q: cost %v, want %v: %+v", model, use.CostUSD, cost, use)
		}
		log := dump(events(t, c, ses.ID))
		if want := map[bool]int{true: 0, false: 2}[model == "scripted"]; strings.Count(log, " model.request ") != want {
			t.Errorf("%q: want %d model.request events\n%s", model, want, log)
		}
		if strings.Contains(log, modelKey) {
			t.Error("the key is in the log")
		}
	}
}

func TestModelChoice(t *testing.T) {
	cfg, _ := asked(t, func(c *config.Config) { c.Models.OpenAI.URL = "" })
	c, _ := serve(t, cfg)
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil || !strings.HasPrefix(ses.Model, "anthropic/") {
		t.Errorf("%+v %v", ses, err)
	}
	for _, model := range []string{"openai/x", "gpt"} {
		_, err := c.CreateSession(t.Context(), holdfast.CreateSession{Model: model}, "")
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(holdfast.HintOf(err), "anthropic/MODEL, scripted") {
			t.Errorf("%s: %v (%s)", model, err, holdfast.HintOf(err))
		}
	}
	d, err := app.Diagnose(t.Context(), apptest.Drivers(), cfg, nil, "")
	if err != nil || len(d.Models) != 2 || !d.Models[0].Configured || d.Models[1].Configured || d.DefaultModel != ses.Model {
		t.Errorf("%+v %v", d, err)
	}
	if strings.Contains(fmt.Sprintf("%+v", d.Models[0].URL+d.Models[0].KeyFrom), modelKey) {
		t.Error("doctor shows the key")
	}
}

func TestKeysAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		kind holdfast.Kind
	}{
		"open":  {modelKey, 0o644, holdfast.KindDenied},
		"empty": {"\n", 0o600, holdfast.KindInvalid},
		"two":   {modelKey + "\n" + modelKey, 0o600, holdfast.KindInvalid},
		"long":  {strings.Repeat("x", 5000), 0o600, holdfast.KindInvalid},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil {
			t.Fatal(err)
		}
		cfg := settings(t, "mem")
		cfg.Models.Anthropic.KeyFile = file
		_, err := app.Diagnose(t.Context(), apptest.Drivers(), cfg, nil, "")
		if !holdfast.IsKind(err, c.kind) || strings.Contains(err.Error(), modelKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := settings(t, "mem")
	cfg.Models.Anthropic.KeyFile = filepath.Join(dir, "none")
	if _, err := app.Diagnose(context.WithoutCancel(t.Context()), apptest.Drivers(), cfg, nil, ""); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Error(err)
	}
}
