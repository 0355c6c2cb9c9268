package app_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

const newSecret, oldSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "whsec_dGhlIHNlY3JldCBiZWZvcmUsIG9mIDMyIGxldHRlcnM="

// hookSettings is a server with one webhook at an address.
func hookSettings(t *testing.T, addr string) config.Config {
	t.Helper()
	cfg := settings(t, "mem")
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(newSecret+"\n"+oldSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Webhooks = []config.Webhook{{
		URL: "http://" + addr + "/path-as-a-secret", SecretFile: file,
		Events: []holdfast.EventType{holdfast.EventSessionCreated, holdfast.EventTurnCompleted},
	}}
	return cfg
}

// TestWebhooksArriveAfterARestart: what nobody took while one server ran, the next
// one delivers, in order, with signatures of both secrets.
func TestWebhooksArriveAfterARestart(t *testing.T) {
	// An address where nothing listens yet.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := hookSettings(t, addr)
	log := &lockedBuffer{}
	c, _, stop := serveLogged(t, cfg, log)
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, ses.ID, "hello")
	stop()

	var mu sync.Mutex
	var got []holdfast.Webhook
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		for _, secret := range []string{newSecret, oldSecret} {
			w, err := standardwebhooks.NewWebhook(secret)
			if err == nil {
				err = w.Verify(body, r.Header)
			}
			if err != nil {
				t.Error(err)
			}
		}
		var w holdfast.Webhook
		if err := json.Unmarshal(body, &w); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, w)
	}))
	if err := receiver.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	receiver.Listener = ln
	receiver.Start()
	defer receiver.Close()
	_, _, stop = serveLogged(t, cfg, log)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	testkit.Eventually(t, "both arrive", func() bool { return count() == 2 })
	stop()
	if got[0].Type != holdfast.EventSessionCreated || got[0].Seq != 1 || got[1].Type != holdfast.EventTurnCompleted || got[1].Session != ses.ID || got[1].Turn == "" {
		t.Errorf("%+v", got)
	}
	for _, secret := range []string{newSecret, oldSecret, "path-as-a-secret"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log tells %q:\n%s", secret, log)
		}
	}
	_, _, stop = serveLogged(t, cfg, log)
	stop()
	if count() != 2 {
		t.Errorf("%d deliveries", count())
	}
}

// TestAServerWithoutItsSecretsDoesNotStart: an unsigned delivery would be refused,
// and a secret that others can read is none.
func TestAServerWithoutItsSecretsDoesNotStart(t *testing.T) {
	for content, c := range map[string]struct {
		mode os.FileMode
		kind holdfast.Kind
	}{
		newSecret:                         {0o640, holdfast.KindDenied},
		"short":                           {0o600, holdfast.KindInvalid},
		"":                                {0o600, holdfast.KindInvalid},
		newSecret + "\nshort":             {0o600, holdfast.KindInvalid},
		strings.Repeat(newSecret+"\n", 3): {0o600, holdfast.KindInvalid},
		strings.Repeat("x", 5000):         {0o600, holdfast.KindInvalid},
	} {
		cfg := hookSettings(t, "127.0.0.1:1")
		file := cfg.Webhooks[0].SecretFile
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil {
			t.Fatal(err)
		}
		err := app.Run(t.Context(), cfg, app.Options{Version: "test", Drivers: apptest.Drivers()})
		if !holdfast.IsKind(err, c.kind) || !strings.Contains(err.Error(), "webhooks[0].secret_file") || holdfast.HintOf(err) == "" {
			t.Errorf("%.20q: %v", content, err)
		}
		if content != "" && strings.Contains(err.Error(), content) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}
