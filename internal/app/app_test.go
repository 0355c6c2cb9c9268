package app_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

// serve runs a whole server until the test ends; stop ends it before.
func serve(t *testing.T, cfg config.Config) (c *client.Client, stop func()) {
	t.Helper()
	c, _, stop = serveAt(t, cfg)
	return c, stop
}

// serveAt is serve that also says where.
func serveAt(t *testing.T, cfg config.Config) (c *client.Client, addr string, stop func()) {
	t.Helper()
	return serveLogged(t, cfg, io.Discard)
}

// serveLogged is serveAt with the server's log.
func serveLogged(t *testing.T, cfg config.Config, log io.Writer) (c *client.Client, addr string, stop func()) {
	t.Helper()
	return serveWith(t, cfg, func(o *app.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
}

// serveWith is serveAt with other options.
func serveWith(t *testing.T, cfg config.Config, tune func(*app.Options)) (c *client.Client, addr string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan string, 1)
	ended := make(chan error, 1)
	opt := app.Options{
		Version: "test", Environ: os.Environ(), Drivers: apptest.Drivers(), Log: slog.New(slog.DiscardHandler),
		Ready: func(url string) { ready <- url },
	}
	tune(&opt)
	go func() { ended <- app.Run(ctx, cfg, opt) }()
	select {
	case url := <-ready:
		addr = strings.TrimPrefix(url, "http://")
		token, err := os.ReadFile(filepath.Join(cfg.Data, "token"))
		if err != nil {
			t.Fatal(err)
		}
		if c, err = client.New(client.Config{URL: url, Token: strings.TrimSpace(string(token))}); err != nil {
			t.Fatal(err)
		}
	case err := <-ended:
		t.Fatalf("the server ended at its start: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the server is not ready")
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		c.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return c, addr, stop
}

func settings(t *testing.T, driver string) config.Config {
	cfg := config.Defaults()
	cfg.Data, cfg.Listen, cfg.Driver = t.TempDir(), "127.0.0.1:0", driver
	cfg.Limits.Mode = sandbox.LimitsBestEffort
	cfg.DefaultModel = "scripted"
	t.Cleanup(func() { testkit.EndBoxes(t, cfg.Data) })
	return cfg
}

// WS-R30, WS-R38, WS-R78, WS-R104, WS-R119.
func TestServerCarriesATurnWithToolsAndComesBack(t *testing.T) {
	for _, driver := range []string{"mem", "local"} {
		t.Run(driver, func(t *testing.T) {
			cfg := settings(t, driver)
			c, stop := serve(t, cfg)
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Title: "whole"}, "")
			if err != nil {
				t.Fatal(err)
			}
			end := turn(t, c, ses.ID, `<script>[{"tool":"Write","input":{"file_path":"a.txt","content":"hello\n"}},{"tool":"Bash","input":{"command":"cat a.txt"}},{"say":"done"}]</script>`)
			if end.Result != "done" {
				t.Errorf("end = %+v", end)
			}
			stop()
			c, _ = serve(t, cfg)
			end = turn(t, c, ses.ID, "What do you know?")
			if !strings.HasPrefix(end.Result, "You have sent 2 messages.") || !strings.Contains(end.Result, "I have seen 2 tool results.") {
				t.Errorf("memory: %q", end.Result)
			}
		})
	}
}

func turn(t *testing.T, c *client.Client, id holdfast.SessionID, text string) holdfast.TurnEnded {
	t.Helper()
	st, err := c.Stream(t.Context(), id, holdfast.SendMessage{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var end holdfast.TurnEnded
	for ev, err := range st.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d %s %s", ev.Seq, ev.Type, ev.Data)
		if ev.EndsTurn() {
			if err := ev.Decode(&end); err != nil {
				t.Fatal(err)
			}
			if ev.Type != holdfast.EventTurnCompleted {
				t.Fatalf("%s: %s", ev.Type, ev.Data)
			}
			return end
		}
	}
	t.Fatal("no end")
	return end
}
