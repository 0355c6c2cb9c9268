package app_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
)

// TestNoTurnSeesAHalfRewoundDirectory: the server is killed while it puts the files of one session back into a directory
// of the user's own. A message of another session of the directory waits. The next start finishes the rewind before that
// turn runs (I-43).
func TestNoTurnSeesAHalfRewoundDirectory(t *testing.T) {
	if data := os.Getenv("HALF_REWOUND"); data != "" {
		endInRewind(data)
	}
	// Named pipes: whoever opens one waits for the other side.
	pipes, cfg := t.TempDir(), settings(t, "local")
	for _, name := range []string{"url", "staged", "sent"} {
		if err := unix.Mkfifo(filepath.Join(pipes, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(pipes, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	dir := ownRepository(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestNoTurnSeesAHalfRewoundDirectory$")
	child.Env = append(os.Environ(), "HALF_REWOUND="+cfg.Data, "HALF_REWOUND_PIPES="+pipes)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	url := read("url")
	token, err := os.ReadFile(filepath.Join(cfg.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{URL: url, Token: strings.TrimSpace(string(token))})
	if err != nil {
		t.Fatal(err)
	}
	a, b := inOwnDir(t, c, dir), inOwnDir(t, c, dir)
	turn(t, c, a.ID, inBash(`for i in $(seq 10 21); do echo v1 > p$i; done`))
	turn(t, c, a.ID, inBash(`for i in $(seq 10 21); do echo v2 > p$i; done`))
	list, err := c.Checkpoints(t.Context(), a.ID, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	rewound := make(chan error)
	go func() {
		_, err := c.Rewind(context.Background(), a.ID, holdfast.RewindSession{To: list.Checkpoints[1].ID, Files: "restore"})
		rewound <- err
	}()
	read("staged")
	sent, err := c.Send(t.Context(), b.ID, holdfast.SendMessage{Text: inBash(`cat p1? p2?`)})
	if err != nil || sent.Turn.Status != holdfast.TurnQueued {
		t.Fatalf("%+v, %v", sent, err)
	}
	if err := os.WriteFile(filepath.Join(pipes, "sent"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-rewound; err == nil {
		t.Fatal("the server was not killed in the rewind")
	}
	_ = child.Wait()
	next, _ := serve(t, cfg)
	for ev, err := range next.Follow(t.Context(), b.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.EndsTurn() {
			break
		}
	}
	if got := outcome(t, next, b.ID).Content; got != strings.Repeat("v1\n", 12) {
		t.Errorf("the turn of the other session saw %q", got)
	}
}

// endInRewind runs a server that kills itself when half of the files of a rewind are in their place.
func endInRewind(data string) {
	cfg := config.Defaults()
	cfg.Data, cfg.Listen, cfg.Driver, cfg.DefaultModel = data, "127.0.0.1:0", "local", "scripted"
	cfg.Limits.Mode = "best-effort"
	pipe := func(name, text string) {
		_ = os.WriteFile(filepath.Join(os.Getenv("HALF_REWOUND_PIPES"), name), []byte(text), 0o600)
	}
	var placed atomic.Int32
	_ = app.Run(context.Background(), cfg, app.Options{
		Version: "test", Environ: os.Environ(), Drivers: apptest.Drivers(), Log: slog.New(slog.DiscardHandler),
		Ready: func(url string) { pipe("url", url) },
		At: func(_ holdfast.SessionID, point string) {
			switch {
			case point == "ready":
				pipe("staged", "")
				_, _ = os.ReadFile(filepath.Join(os.Getenv("HALF_REWOUND_PIPES"), "sent"))
			case point == "placed" && placed.Add(1) == 6:
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		},
	})
	os.Exit(1)
}
