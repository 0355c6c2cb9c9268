package app_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// refusing is a provider and a receiver of webhooks, which refuse until they are healed.
type refusing struct {
	*httptest.Server
	healed       atomic.Bool
	asked, hooks atomic.Int64
}

func newRefusing(t *testing.T) *refusing {
	t.Helper()
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = model.Close() })
	o := &refusing{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asks := strings.HasPrefix(r.URL.Path, "/v1/messages")
		if asks {
			o.asked.Add(1)
		} else {
			o.hooks.Add(1)
		}
		switch {
		case !o.healed.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case asks:
			model.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(o.Close)
	return o
}

// TestHZ20_CopyCallsNobody: a server on a copy asks no model again for a turn under way
// and delivers no webhook, until the copy is accepted (I-36).
func TestHZ20_CopyCallsNobody(t *testing.T) {
	out := newRefusing(t)
	cfg := hookSettings(t, strings.TrimPrefix(out.URL, "http://"))
	cfg.Models.Anthropic.URL = out.URL
	cfg.DrainTimeout = 0
	tune := func(o *app.Options) { o.Environ = []string{"ANTHROPIC_API_KEY=sk-none"} }
	c, _, stop := serveWith(t, cfg, tune)
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Model: "anthropic/claude-sonnet-4-5"}, "")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := c.Send(t.Context(), ses.ID, holdfast.SendMessage{Text: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "both refuse", func() bool { return out.asked.Load() > 0 && out.hooks.Load() > 0 })
	copied := filepath.Join(t.TempDir(), "copy")
	if msg, err := exec.CommandContext(t.Context(), "cp", "-a", cfg.Data, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	stop()

	cfg.Data = copied
	out.healed.Store(true)
	asked, hooks := out.asked.Load(), out.hooks.Load()
	c, _, stop = serveWith(t, cfg, tune)
	// Both would have tried again at the start, or after the first wait of a second.
	<-time.After(4 * time.Second)
	if n, m := out.asked.Load()-asked, out.hooks.Load()-hooks; n != 0 || m != 0 {
		t.Errorf("the copy asked the model %d times and delivered %d webhooks", n, m)
	}
	if got, err := c.Turn(t.Context(), ses.ID, sent.Turn.ID); err != nil || got.Status != holdfast.TurnRunning {
		t.Errorf("the turn of the copy is %s, %v", got.Status, err)
	}
	stop()

	c, _, stop = serveWith(t, cfg, func(o *app.Options) { tune(o); o.AcceptCopy = true })
	testkit.Eventually(t, "the accepted copy's turn ends", func() bool {
		got, err := c.Turn(t.Context(), ses.ID, sent.Turn.ID)
		return err == nil && got.Status == holdfast.TurnCompleted
	})
	testkit.Eventually(t, "its webhooks arrive", func() bool { return out.hooks.Load()-hooks >= 2 })
	stop()
}
