package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/demo"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestDemoWithTheRealCLI: the demo with Claude Code in the box, offline, within its
// minute; without the CLI it says how to get it.
func TestDemoWithTheRealCLI(t *testing.T) {
	home := testkit.BaseDir(t)
	vars := map[string]string{"HOLDFAST_HOME": home}
	code, out, errs := runCLI(t, vars, "", "demo", "--runtime", "claude")
	if code != 6 || out != "" || !strings.Contains(errs, "hint: holdfast runtime install claude") {
		t.Errorf("without the CLI: %d %q %q", code, out, errs)
	}
	runtimes := testkit.Runtimes(t, "claude")
	if err := child.Lend(runtimes, home); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, vars, "demo", "--runtime", "claude", "--json", "--dir", testkit.BaseDir(t))
	began := time.Now()
	raw, err := cmd.Output()
	var res demo.Result
	if jerr := json.Unmarshal(raw, &res); err != nil || jerr != nil || !res.OK {
		t.Fatalf("%v %v: %s", err, jerr, raw)
	}
	tiers := ""
	for _, s := range res.Steps {
		if strings.Contains(s.Name, "receipts") {
			tiers = s.Detail
		}
	}
	for _, want := range []string{"tier fresh, 0 of 0", "tier own, 1 of 1", "tier live, 3 of 3"} {
		if !strings.Contains(tiers, want) {
			t.Errorf("no %q in the receipts:\n%s", want, tiers)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// TestDemoLive: a provider that is spoken to for real and obeys, one that does not, and
// none at all.
//
// FH-47.
func TestDemoLive(t *testing.T) {
	code, out, errs := runCLI(t, map[string]string{"HOLDFAST_HOME": t.TempDir()}, "", "demo", "--live")
	if code != 6 || out != "" || !strings.Contains(errs, "hint: set ANTHROPIC_API_KEY or OPENAI_API_KEY") {
		t.Errorf("without a key: %d %q %q", code, out, errs)
	}
	if code, _, errs := runCLI(t, nil, "", "demo", "--live", "--runtime", "claude"); code != 2 || !strings.Contains(errs, "hint: holdfast demo --live") {
		t.Errorf("with a CLI: %d %q", code, errs)
	}
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	provider := double.Serve(l, double.Config{})
	defer provider.Close()
	to, err := url.Parse(provider.URL())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	idle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = bytes.ReplaceAll(body, []byte("script"), []byte("SCRIPT"))
		r.Body, r.ContentLength, r.Host = io.NopCloser(bytes.NewReader(body)), int64(len(body)), to.Host
		forward.ServeHTTP(w, r)
	}))
	defer idle.Close()
	for name, c := range map[string]struct {
		vars map[string]string
		ok   bool
		want string // in the last step's name or detail
	}{
		"anthropic":     {map[string]string{"HOLDFAST_ANTHROPIC_URL": provider.URL(), "ANTHROPIC_API_KEY": "sk-canary"}, true, "no process is left"},
		"compatible":    {map[string]string{"HOLDFAST_OPENAI_URL": provider.URL() + "/v1", "HOLDFAST_DEFAULT_MODEL": "openai/any"}, true, "no process is left"},
		"does not obey": {map[string]string{"HOLDFAST_ANTHROPIC_URL": idle.URL, "ANTHROPIC_API_KEY": "sk-canary"}, false, "notes.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(provider.Requests())
			cmd := command(t, c.vars, "demo", "--live", "--json", "--dir", testkit.BaseDir(t))
			raw, err := cmd.Output()
			var res demo.Result
			if jerr := json.Unmarshal(raw, &res); jerr != nil || res.OK != c.ok || (err == nil) != c.ok || len(res.Steps) == 0 {
				t.Fatalf("%v %v: %s", err, jerr, raw)
			}
			if last := res.Steps[len(res.Steps)-1]; !strings.Contains(last.Name+last.Detail, c.want) {
				t.Errorf("it ended with %+v", last)
			}
			if len(provider.Requests()) == before || strings.Contains(string(raw), "sk-canary") {
				t.Errorf("%d requests: %s", len(provider.Requests())-before, raw)
			}
		})
	}
}

// command is the program in a process of its own, which can start itself.
func command(t *testing.T, vars map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("holdfast", args...)
	cmd.Env = cmd.Environ()
	for k, v := range vars {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}
