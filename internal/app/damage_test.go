package app_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestNothingIsReplacedSilently: a server whose database or key is missing does not
// start with a new one while data exists that belongs to the old one.
func TestNothingIsReplacedSilently(t *testing.T) {
	cfg := settings(t, "mem")
	c, stop := serve(t, cfg)
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Env: map[string]string{"A": "b"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, s.ID, `<script>[{"tool":"Write","input":{"file_path":"a","content":"a"}},{"say":"done"}]</script>`)
	if _, err := c.Checkpoints(t.Context(), s.ID, "", 0); err != nil { // waits for the snapshot
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Data, "sessions", "one", "workspace"), 0o700); err != nil {
		t.Fatal(err)
	}
	stop()
	if v, err := app.Verify(t.Context(), cfg, nil); err != nil || !v.OK {
		t.Fatalf("%+v %v", v, err)
	}
	refuses := func(what string, want ...string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := app.Run(ctx, cfg, app.Options{Version: "test", Drivers: apptest.Drivers(), Ready: func(string) { cancel() }})
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
			t.Fatalf("%s: %v, hint %q", what, err, holdfast.HintOf(err))
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v does not name %s", what, err, w)
			}
		}
		if v, err := app.Verify(t.Context(), cfg, nil); err != nil || v.OK {
			t.Errorf("%s: doctor --verify finds nothing: %+v %v", what, v, err)
		}
	}
	for _, name := range []string{"secrets.key", "audit.key", "snapshots.key", "holdfast.db"} {
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

// TestVerifyComparesWithTheDatabase: each box on record has its session, each session its
// files, and each key opens what is sealed with it.
func TestVerifyComparesWithTheDatabase(t *testing.T) {
	cfg := settings(t, "local")
	c, stop := serve(t, cfg)
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, s.ID, `<script>[{"tool":"Bash","input":{"command":"echo a > a"}},{"say":"done"}]</script>`)
	if _, err := c.SetSecret(t.Context(), "name", []byte("value")); err != nil {
		t.Fatal(err)
	}
	finds := func(name, want string, environ ...string) {
		t.Helper()
		v, err := app.Verify(t.Context(), cfg, environ)
		if err != nil || v.OK != (want == "") {
			t.Errorf("%s: %+v %v", name, v, err)
		}
		for _, c := range v.Checks {
			if !c.OK && (c.Name != name || !strings.Contains(c.Detail, want) || c.Fix == "") {
				t.Errorf("%s: %+v, want %q", name, c, want)
			}
		}
	}
	records := testkit.Glob(cfg.Data, "run/local/*.json")
	if len(records) != 1 {
		t.Fatalf("%q", records)
	}
	finds("while it runs", "")
	stop()
	finds("at rest", "")

	key := filepath.Join(cfg.Data, "secrets.key")
	was := read(t, key)
	finds("secrets.key", "root key", "HOLDFAST_SECRET_KEY="+strings.Repeat("0a", 32))
	finds("secrets.key", "", "HOLDFAST_SECRET_KEY="+strings.TrimSpace(was))
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	finds("secrets.key", "is missing: 1 secrets and session environments are encrypted with it")
	finds("secrets.key", "", "HOLDFAST_SECRET_KEY="+strings.TrimSpace(was))
	write(t, key, was)

	packs := testkit.Glob(cfg.Data, "snapshots/*.pack")
	if len(packs) != 1 {
		t.Fatalf("%q", packs)
	}
	whole := read(t, packs[0])
	write(t, packs[0], whole[:len(whole)/2]+"x"+whole[len(whole)/2+1:])
	finds("snapshots", filepath.Base(packs[0])[:16])
	if err := os.Remove(packs[0]); err != nil {
		t.Fatal(err)
	}
	finds("snapshots", "which checkpoints need, is missing")
	write(t, packs[0], whole)
	finds("snapshots", "")

	audit := filepath.Join(cfg.Data, "audit.key")
	was = read(t, audit)
	write(t, audit, "no key")
	v, err := app.Verify(t.Context(), cfg, nil)
	if err != nil || v.OK {
		t.Errorf("a broken audit.key: %+v %v", v, err)
	}
	write(t, audit, was)

	for name, broken := range map[string]string{"identity": "has no valid identity", "token": "has no valid owner token"} {
		path := filepath.Join(cfg.Data, name)
		was = read(t, path)
		write(t, path, "{")
		finds(name, broken)
		write(t, path, was)
	}
	if err := os.RemoveAll(filepath.Join(cfg.Data, "sessions", string(s.ID))); err != nil {
		t.Fatal(err)
	}
	finds("files", "") // a checkpoint has them
	execSQL(t, cfg.Data, `DELETE FROM checkpoints`)
	finds("files", filepath.Join("sessions", string(s.ID), "workspace")+" is missing")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
