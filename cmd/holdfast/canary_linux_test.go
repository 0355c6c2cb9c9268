package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
)

// canaries are secrets that were let loose, and everything that was said since.
type canaries struct {
	t       *testing.T
	secrets map[string]string
	vars    map[string]string
	config  string // the file of settings
	mu      sync.Mutex
	said    bytes.Buffer
}

// Write takes what a server or a command says.
func (c *canaries) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.Write(p)
}

// secret makes a value that cannot be there by chance.
func (c *canaries) secret(what string) string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	s := "canary" + hex.EncodeToString(b[:])
	c.secrets[what] = s
	return s
}

// cli runs a command and notes what it says; the output comes back.
func (c *canaries) cli(code int, args ...string) string {
	c.t.Helper()
	return c.cliIn(code, "", args...)
}

// key makes an API key: the one place where a secret is shown.
func (c *canaries) key(what string, args ...string) string {
	c.t.Helper()
	code, out, errs := runCLI(c.t, c.vars, "", append([]string{"key", "create"}, args...)...)
	at := strings.Index(out, "hfk_")
	if code != 0 || at < 0 {
		c.t.Fatalf("%d %s", code, errs)
	}
	_, _ = io.WriteString(c, errs)
	secret := strings.TrimRight(out[at:], "\"}\n")
	c.secrets[what] = secret[len("hfk_")+17:]
	return secret
}

// serve runs a server as the command does, its log at its most talkative.
func (c *canaries) serve(args ...string) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--set", "log_level=debug", "--set", "limits.mode=best-effort", "--set", "auth_failures=0", "--config", c.config}, args...)
		ended <- run(ctx, args, func(k string) string { return c.vars[k] }, strings.NewReader(""), io.MultiWriter(w, c), c)
		_ = w.Close()
	}()
	first, err := bufio.NewReader(r).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(first), "ready at ")
	if err != nil || !ok {
		c.t.Fatalf("%q %v: %s", first, err, c.said.String())
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	c.vars["HOLDFAST_URL"] = url
	token, err := lifecycle.ReadToken(filepath.Join(c.vars["HOLDFAST_HOME"], "token"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.secrets["the owner token"] = strings.TrimPrefix(token, "hf_")
	return func() {
		cancel()
		if code := <-ended; code != 0 {
			c.t.Errorf("the server ended with %d", code)
		}
	}
}

// post sends a request with a header of choice and notes the answer.
func (c *canaries) post(status int, method, path, auth, body string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.vars["HOLDFAST_URL"]+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", auth)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		c.t.Errorf("%s %s %.80s: %d %s %v", method, path, body, resp.StatusCode, answer, err)
	}
	_, _ = c.Write(answer)
}

// search looks for each secret, as it is and without its beginning or end.
func (c *canaries) search(where string, text []byte) {
	c.t.Helper()
	for what, s := range c.secrets {
		for _, part := range []string{s, s[:len(s)-8], s[8:]} {
			if at := bytes.Index(text, []byte(part)); at >= 0 {
				c.t.Errorf("%s stands in %s: …%q", what, where, text[max(0, at-120):min(len(text), at+20)])
				break
			}
		}
	}
}

// TestSecretsAreNeverTold lets secrets loose in a whole run, with refusals,
// failures and a restart, and then looks for them in the logs, the events, the
// problem documents, the output of the commands and every file of the server
// (I-22).
func TestSecretsAreNeverTold(t *testing.T) {
	home := t.TempDir()
	c := &canaries{t: t, secrets: map[string]string{}, vars: map[string]string{"HOLDFAST_HOME": home, "HOLDFAST_DEFAULT_MODEL": "scripted"}}
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GOOGLE_API_KEY", "SOME_TOKEN", "HOLDFAST_TEST_SECRET"} {
		value := c.secret("the server's " + name)
		t.Setenv(name, value)
		c.vars[name] = value
	}
	heard := c.outside()
	stop := c.serve("--driver", "local")
	c.surface(heard)
	key := c.key("a key", "--name", "ci")
	c.key("a key, told as JSON", "--json", "--scope", "admin")
	env := c.secret("a value of --env")
	id := c.cli(0, "session", "create", "--title", "t", "--env", "S3CRET="+env)
	trusted := c.cli(0, "session", "create", "--trust", "trusted")
	if got := c.cli(0, "exec", id, "--", "sh", "-c", "echo ${#S3CRET}"); got != "54" {
		t.Errorf("the box has a value of %s characters", got)
	}
	c.cli(0, "exec", trusted, "--", "env")
	c.cli(0, "send", id, `<script>[{"tool":"Bash","input":{"command":"echo ${#S3CRET}; exit 3"}},{"tool":"Nonsense","input":{}},{"say":"done"}]</script>`)
	c.cli(1, "send", id, `<script>[{"error":"invalid"}]</script>`)
	c.cli(0, "send", id, "--json", "hello")
	c.refusals(id, env)
	for _, args := range [][]string{
		{"session", "list", "--json"},
		{"session", "show", id, "--json"},
		{"session", "events", id, "--json"},
		{"session", "transcript", id},
		{"session", "pause", id},
		{"key", "list", "--json"},
		{"containers", "list", "--json"},
		{"doctor", "--json", "--driver", "mem"},
		{"agent", "list", "--json"},
		{"version"},
	} {
		c.cli(0, args...)
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/docs"} {
		c.post(200, http.MethodGet, path, "Bearer "+c.secret("a token for "+path), "")
	}
	c.post(401, http.MethodGet, "/metrics", "Bearer "+c.secret("a token for /metrics"), "")
	c.post(200, http.MethodGet, "/metrics", "Bearer "+key, "")
	c.cli(0, "key", "revoke", key[4:20])
	c.post(401, http.MethodGet, "/v1/sessions", "Bearer "+key, "")
	stop()

	// A server whose key opens nothing that is stored refuses to start; a driver that does not serve
	// the session is an error of the machine (503).
	key = c.rootKey(strings.Repeat("ab", 32) + "\n")
	c.cli(1, "serve", "--driver", "local", "--listen", "127.0.0.1:0", "--set", "log_format=json")
	c.rootKey(key)
	stop = c.serve("--driver", "host")
	c.cli(holdfast.KindUnavailable.ExitCode(), "exec", id, "--", "true")
	c.cli(0, "session", "end", id)
	stop()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.search("what was said", c.said.Bytes())
	if n := strings.Count(c.said.String(), "level="); n == 0 && !strings.Contains(c.said.String(), `"level":`) {
		t.Error("the server logged nothing: there was nothing to look through")
	}
	files := 0
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == filepath.Join(home, "token") {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		c.search(strings.TrimPrefix(path, home), data)
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("%d files: %v", files, err)
	}
}

// rootKey replaces the content of the file of root keys, and returns the one before.
func (c *canaries) rootKey(text string) (before string) {
	c.t.Helper()
	name := filepath.Join(c.vars["HOLDFAST_HOME"], "secrets.key")
	old, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return string(old)
}

// refusals are requests that carry a secret and fail.
func (c *canaries) refusals(id, env string) {
	token, err := lifecycle.ReadToken(filepath.Join(c.vars["HOLDFAST_HOME"], "token"))
	if err != nil {
		c.t.Fatal(err)
	}
	wrong := c.secret("a wrong token")
	for _, auth := range []string{"Bearer " + wrong, "Basic " + wrong, wrong, "Bearer hf_" + wrong, "Bearer hfk_0123456789abcdef_" + wrong, "Bearer " + token + wrong} {
		for _, path := range []string{"/v1/sessions", "/v1/nothing", "//v1", "/v1/sessions/" + id + "/terminal"} {
			status := 401
			if path == "//v1" {
				status = 400
			}
			c.post(status, http.MethodGet, path, auth, "")
		}
		c.post(401, http.MethodPost, "/v1/sessions", auth, "{")
	}
	owner := "Bearer " + token
	for _, body := range []string{
		`{"env":{"A=B":"` + env + `"}}`, `{"env":{"A":["` + env + `"]}}`, `{"env":{"A":{"x":"` + env + `"}}}`, `{"env":["` + env + `"]}`, `{"env":"` + env + `"}`,
		`{"environment":{"A":"` + env + `"}}`, `{"ENV":{"A":"` + env + `"}}`, `{"env":{"A":"` + env + `","A":"` + env + `"}}`, `{"env":{"A":"` + env + `"`,
		`{"env":{"A":"` + env + `\u0000"}}`, `{"env":{"A":"` + strings.Repeat(env, 1000) + `"}}`, `{"env":{"A":"` + env + `"},"mode":"yolo"}`, `{"env":{"A":"` + env + `"},"title":5}`,
		`{"env":{"A":"` + env + `"}} x`, `[{"env":{"A":"` + env + `"}}]`, `{"env":{"A":"` + env + `"},"env":{}}`,
	} {
		c.post(400, http.MethodPost, "/v1/sessions", owner, body)
		c.post(400, http.MethodPost, "/v1/sessions/"+id+"/exec", owner, strings.Replace(body, "{", `{"argv":[],`, 1))
	}
	c.post(403, http.MethodPost, "/v1/sessions", owner, `{"env":{"HOLDFAST_X":"`+env+`"}}`)
	c.post(400, http.MethodPost, "/v1/sessions/"+id+"/exec", owner, `{"command":"true","stdin":"`+env+`!"}`)
	c.cli(2, "session", "create", "--env", "=")
	c.vars["HOLDFAST_TOKEN"] = wrong
	c.cli(5, "session", "list")
	c.cli(5, "session", "list", "--json")
	delete(c.vars, "HOLDFAST_TOKEN")
}
