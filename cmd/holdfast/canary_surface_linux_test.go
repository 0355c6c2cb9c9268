package main

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// outside is a model's API, a hook and a receiver of webhooks that get secrets and
// say them again in what they refuse with.
func (c *canaries) outside() (heard func(string) bool) {
	c.t.Helper()
	seen := make(chan string, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case seen <- r.URL.Path + " " + r.Header.Get("X-Api-Key") + r.Header.Get("Authorization"):
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasPrefix(r.URL.Path, "/hook"):
			_, _ = io.WriteString(w, "{}")
		case strings.HasPrefix(r.URL.Path, "/told"):
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`)
		}
	}))
	c.t.Cleanup(srv.Close)
	file := func(content string) string {
		name := filepath.Join(c.t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			c.t.Fatal(err)
		}
		return name
	}
	hooks := map[string]any{"preToolUse": []any{map[string]any{"hooks": []any{
		map[string]any{"type": "http", "url": srv.URL + "/hook", "secret_file": file(c.secret("the secret of a hook"))},
	}}}}
	// The secret is bytes, and its file has them in base64: no output may contain either form.
	webhook := base64.StdEncoding.EncodeToString([]byte(c.secret("the bytes of a webhook's secret")))
	c.secrets["the secret of a webhook"] = webhook
	c.config = settingsFile(c.t, map[string]any{"hooks": hooks, "webhooks": []any{map[string]any{
		"url": srv.URL + "/told", "secret_file": file("whsec_" + webhook), "events": []string{"approval.asked", "turn.completed", "turn.failed"},
	}}})
	c.vars["HOLDFAST_ANTHROPIC_URL"] = srv.URL + "/model"
	all := ""
	return func(what string) bool {
		for {
			select {
			case s := <-seen:
				all += s + "\n"
			default:
				return strings.Contains(all, what)
			}
		}
	}
}

// surface uses what else takes, keeps or sends secrets.
func (c *canaries) surface(heard func(string) bool) {
	c.t.Helper()
	value := c.secret("a kept credential")
	c.cliIn(0, value+"\n", "secret", "set", "anthropic")
	c.cliIn(0, c.secret("another"), "secret", "set", "openai", "--json")
	c.cli(0, "secret", "rotate")
	c.cliIn(0, c.secret("its next value"), "secret", "set", "openai")
	c.cli(0, "secret", "list", "--json")
	c.cli(2, "secret", "set", "anthropic", value)
	c.cli(2, "secret", "set", "anthropic", value, "--json")
	c.cli(2, "secret", "set", "S"+value)
	c.cli(2, "session", "create", "--env", value)
	c.cli(2, "session", "list", "--url", "http://owner:"+value+"@127.0.0.1")
	c.cli(2, "key", "revoke", "hfk_0123456789abcdef_"+value)
	token, err := lifecycle.ReadToken(filepath.Join(c.vars["HOLDFAST_HOME"], "token"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, body := range []string{
		`{"value":"` + value + `!"}`, `{"value":["` + value + `"]}`, `{"secret":"` + value + `"}`,
		`"` + value + `"`, value, `{"value":"` + value, `{"value":"","value":"` + value + `!"}`, `{"value":5,"x":"` + value + `"}`,
	} {
		c.post(400, http.MethodPut, "/v1/secrets/anthropic", "Bearer "+token, body)
	}

	c.cli(1, "send", c.cli(0, "session", "create", "--model", "anthropic/claude-sonnet-4-5"), "hello")
	if !heard("/model/v1/messages " + value) {
		c.t.Error("the kept credential never came to the model")
	}
	id := c.cli(0, "session", "create", "--mode", "default")
	c.cli(0, "send", id, "--no-wait", `<script>[{"tool":"Bash","input":{"command":"true"}},{"say":"ok"}]</script>`)
	asked := ""
	testkit.Eventually(c.t, "the tool is asked for", func() bool {
		list := c.cli(0, "approvals", "list", "--session", id, "--json")
		_, rest, ok := strings.Cut(list, `"approvals":[{"id":"`)
		asked, _, _ = strings.Cut(rest, `"`)
		return ok
	})
	c.cli(0, "approvals", "show", asked)
	c.cli(0, "approvals", "allow", asked, "--reason", "fine")
	testkit.Eventually(c.t, "the hook and the receiver are told", func() bool {
		return heard("/hook Bearer "+c.secrets["the secret of a hook"]) && heard("/told ")
	})
	for _, args := range [][]string{{"mcp"}, {"acp"}} {
		c.cliIn(0, strings.Join([]string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":` + map[string]string{"mcp": `"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}`, "acp": "1"}[args[0]] + `}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_sessions","arguments":{}}}`,
			`{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"/","mcpServers":[{"name":"x","command":"x","args":[],"env":[{"name":"K","value":"` + value + `"}]}]}}`,
			"",
		}, "\n"), args...)
	}
	c.cli(0, "audit", "export")
	c.cli(0, "audit", "head", "--json")
	c.cli(0, "session", "events", id, "--json")
}

// cliIn is cli with something on stdin.
func (c *canaries) cliIn(code int, stdin string, args ...string) string {
	c.t.Helper()
	got, out, errs := runCLI(c.t, c.vars, stdin, args...)
	if got != code {
		c.t.Errorf("%q: exit code %d, %s%s", args, got, out, errs)
	}
	_, _ = io.WriteString(c, out+errs)
	return strings.TrimSpace(out)
}
