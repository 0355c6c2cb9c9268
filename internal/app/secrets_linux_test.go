package app_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/double"
)

// shared is a log that is read while it is written.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestHZ7_ASecretIsUsedAndNowhereTold: a provider's key that is set while the server
// runs is what the provider sees from the next call on; it stands in no event, answer,
// log, file, environment of a box or memory of its processes. A rotation and a restart
// change nothing of it.
//
// WS-N19.
func TestHZ7_ASecretIsUsedAndNowhereTold(t *testing.T) {
	const canary = "sk-canary-7c1e55aa90d24"
	front, right, wrong := asking(t, canary)
	cfg := settings(t, "local")
	cfg.Models.Anthropic.URL = front.URL
	var log shared
	tune := func(o *app.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Environ = []string{"PATH=" + os.Getenv("PATH")}
	}
	c, addr, stop := serveWith(t, cfg, tune)

	create := holdfast.CreateSession{Model: "anthropic/claude-sonnet-4-5"}
	if _, err := c.CreateSession(t.Context(), create, ""); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(holdfast.HintOf(err), "holdfast secret set anthropic") {
		t.Errorf("without a key: %v, %s", err, holdfast.HintOf(err))
	}
	if _, err := c.SetSecret(t.Context(), "anthropic", []byte(canary)); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), create, "")
	if err != nil {
		t.Fatal(err)
	}
	end := turn(t, c, ses.ID, `<script>[{"tool":"Bash","input":{"command":"env; cat /proc/self/environ"}},{"say":"done"}]</script>`)
	if end.Result != "done" || right.Load() != 2 || wrong.Load() != 0 {
		t.Errorf("%+v, %d calls with the key, %d without", end, right.Load(), wrong.Load())
	}
	list, err := c.Secrets(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "anthropic" {
		t.Errorf("%+v %v", list, err)
	}
	rotated, err := c.RotateSecrets(t.Context())
	if err != nil || len(rotated) != 1 || rotated[0].KeyID == list[0].KeyID {
		t.Errorf("%+v %v", rotated, err)
	}
	if end := turn(t, c, ses.ID, "and now?"); end.Result == "" || right.Load() != 3 {
		t.Errorf("after the rotation: %+v", end)
	}

	boxKnowsNot(t, c, ses.ID, canary)
	apiTellsNot(t, c, addr, cfg.Data, ses.ID, canary)
	stop()
	if strings.Contains(log.String(), canary) {
		t.Error("the server's log tells it")
	}
	filesHoldNot(t, cfg.Data, canary)

	c, _, _ = serveWith(t, cfg, tune)
	if turn(t, c, ses.ID, "still there?"); right.Load() != 4 {
		t.Errorf("after a restart: %d calls with the key", right.Load())
	}
	if err := c.RemoveSecret(t.Context(), "anthropic"); err != nil {
		t.Error(err)
	}
	if _, err := c.CreateSession(t.Context(), create, ""); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("after its removal: %v", err)
	}
}

// inMemory looks through what a process has mapped for reading and writing.
func inMemory(t *testing.T, pid int, needle string) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	looked := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); n != 3 || !strings.HasPrefix(mode, "rw") {
			continue
		}
		buf := make([]byte, min(to-from, 64<<20))
		n, _ := mem.ReadAt(buf, from) // what is not there holds nothing
		looked += n
		if bytes.Contains(buf[:n], []byte(needle)) {
			return true
		}
	}
	if looked == 0 {
		t.Error("no memory of the box could be looked at")
	}
	return false
}

// asking is a provider that answers to one key, and counts who came with it and who
// with another.
func asking(t *testing.T, key string) (front *httptest.Server, right, wrong *atomic.Int32) {
	t.Helper()
	right, wrong = &atomic.Int32{}, &atomic.Int32{}
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = d.Close() })
	front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") == key {
			right.Add(1)
			d.ServeHTTP(w, r)
			return
		}
		wrong.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"type":"error","error":{"type":"authentication_error","message":"not %s"}}`, r.Header.Get("X-Api-Key"))
	}))
	t.Cleanup(front.Close)
	return front, right, wrong
}

func boxKnowsNot(t *testing.T, c *client.Client, id holdfast.SessionID, canary string) {
	t.Helper()
	boxes, err := c.Containers(t.Context())
	if err != nil || len(boxes) != 1 || boxes[0].PID == 0 {
		t.Fatalf("%+v %v", boxes, err)
	}
	if os.Getuid() == 0 && inMemory(t, boxes[0].PID, canary) {
		t.Error("the key is in the memory of the box")
	}
	if out := inside(t, c, id, "env; cat /proc/*/environ; cat /proc/*/cmdline; grep -r canary / --include='*' -s --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=lib; true"); strings.Contains(out, canary) {
		t.Errorf("the box knows it: %q", out)
	}
}

func apiTellsNot(t *testing.T, c *client.Client, addr, data string, id holdfast.SessionID, canary string) {
	t.Helper()
	if strings.Contains(dump(events(t, c, id)), canary) {
		t.Error("the log of the session tells it")
	}
	for _, path := range []string{"/v1/secrets", "/v1/secrets/anthropic", "/v1/sessions/" + string(id), "/v1/audit", "/metrics", "/openapi.json"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		token, _ := os.ReadFile(filepath.Join(data, "token"))
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		resp.Body.Close()
		if strings.Contains(b.String(), canary) || path == "/v1/secrets/anthropic" && resp.StatusCode < 400 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, b.String())
		}
	}
}

func filesHoldNot(t *testing.T, dir, canary string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(canary)) {
			t.Errorf("%s holds it", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
