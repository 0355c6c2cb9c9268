package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
)

// TestNothingIsReplacedSilently: a server whose database or key is gone does not start
// with a new one while what belongs to the old one is there.
func TestNothingIsReplacedSilently(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{Env: map[string]string{"A": "b"}}, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Data, "sessions", "one", "workspace"), 0o700); err != nil {
		t.Fatal(err)
	}
	stop()
	if v, err := app.Verify(t.Context(), cfg); err != nil || !v.OK {
		t.Fatalf("%+v %v", v, err)
	}
	refuses := func(what string, want ...string) {
		t.Helper()
		err := app.Run(t.Context(), cfg, app.Options{Version: "test"})
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
			t.Fatalf("%s: %v, hint %q", what, err, holdfast.HintOf(err))
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not name %s", what, err, w)
			}
		}
		if v, err := app.Verify(t.Context(), cfg); err != nil || v.OK {
			t.Errorf("%s: doctor --verify finds nothing: %+v %v", what, v, err)
		}
	}
	for _, name := range []string{"secret.key", "audit.key", "holdfast.db"} {
		path := filepath.Join(cfg.Data, name)
		if err := os.Rename(path, path+".kept"); err != nil {
			t.Fatal(err)
		}
		refuses("without "+name, path)
		if name == "holdfast.db" {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			refuses("with an empty "+name, path)
		}
		if err := os.Rename(path+".kept", path); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(cfg.Data, "holdfast.db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("no database at all, but a text of some length"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	refuses("with a page that is none", "damaged")
}
