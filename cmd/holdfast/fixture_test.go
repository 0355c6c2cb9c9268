package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
)

// screen collects what is shown.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// serveWith runs a server over a driver until the test ends, and gives the
// variables that lead to it.
func serveWith(t *testing.T, driver string) map[string]string {
	t.Helper()
	cfg := config.Defaults()
	cfg.Data, cfg.Listen, cfg.Driver = testkit.BaseDir(t), "127.0.0.1:0", driver
	cfg.Limits.Mode = sandbox.LimitsBestEffort
	vars, err := startServer(t, cfg, t.Cleanup)
	if err != nil {
		t.Fatal(err)
	}
	return vars
}

// startServer runs a server in this process until what is given to later runs, and
// gives the variables that lead to it.
func startServer(t *testing.T, cfg config.Config, later func(func())) (map[string]string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, cfg, app.Options{
			Version: "test", Environ: os.Environ(), Drivers: apptest.Drivers(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Ready: func(url string) { ready <- url },
		})
	}()
	later(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	select {
	case url := <-ready:
		return map[string]string{"HOLDFAST_URL": url, "HOLDFAST_HOME": cfg.Data}, nil
	case err := <-ended:
		ended <- nil
		return nil, err
	}
}
