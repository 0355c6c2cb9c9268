package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
)

// TestWSR39_UmaskOfTheUser: what the tools make in a directory of the user's own has the permissions that the user's
// umask leaves, in the box that its sessions share, in one of its own, and after a restart of the server; an update of
// the umask by a later session changes nothing.
//
// WS-R39, WS-R80.
func TestWSR39_UmaskOfTheUser(t *testing.T) {
	for _, shared := range []config.Switch{config.On, config.Off} {
		for umask, want := range map[string][2]os.FileMode{"0027": {0o640, 0o750}, "077": {0o600, 0o700}, "2": {0o664, 0o775}, "": {0o644, 0o755}} {
			if shared == config.Off && umask != "077" {
				continue
			}
			cfg := settings(t, "local")
			cfg.Limits.Shared = shared
			c, stop := serve(t, cfg)
			dir := ownRepository(t)
			ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir, Umask: umask, Mode: string(holdfast.ModeBypassPermissions)}, "")
			if err != nil {
				t.Fatal(err)
			}
			check := func(n string) {
				t.Helper()
				turn(t, c, ses.ID, script(bashCall("mkdir b"+n+" && echo x > b"+n+"/f && umask"),
					`{"tool":"Write","input":{"file_path":"w`+n+`/deep/f","content":"x"}}`,
					`{"tool":"Write","input":{"file_path":"sub/kept","content":"y"}}`))
				if _, err := c.WriteFile(t.Context(), ses.ID, "a"+n+"/f", strings.NewReader("x"), 0); err != nil {
					t.Fatal(err)
				}
				if _, err := c.WriteFile(t.Context(), ses.ID, "m"+n+"/f", strings.NewReader("x"), 0o755); err != nil {
					t.Fatal(err)
				}
				if _, out := run(t, c, ses.ID, "mkdir e"+n+" && touch e"+n+"/f"); out != "" {
					t.Error(out)
				}
				for _, name := range []string{"b", "w", "a", "e"} {
					top, file := filepath.Join(dir, name+n), "f"
					if name == "w" {
						file = "deep/f"
					}
					if got := os.FileMode(statOf(t, top).Mode & 0o7777); got != want[1] {
						t.Errorf("umask %q, shared %s: directory %s has mode %o, want %o", umask, shared, name+n, got, want[1])
					}
					if got := os.FileMode(statOf(t, filepath.Join(top, file)).Mode & 0o7777); got != want[0] {
						t.Errorf("umask %q, shared %s: file %s of %s has mode %o, want %o", umask, shared, file, name+n, got, want[0])
					}
				}
				if got := statOf(t, filepath.Join(dir, "m"+n, "f")).Mode & 0o7777; got != 0o755 {
					t.Errorf("a file with a mode of its own has %o", got)
				}
				if got := statOf(t, filepath.Join(dir, "sub/kept")).Mode & 0o7777; got != 0o644 {
					t.Errorf("a file that was there has mode %o", got)
				}
			}
			if err := os.Chmod(filepath.Join(dir, "sub/kept"), 0o644); err != nil {
				t.Fatal(err)
			}
			check("1")
			stop()
			c, _ = serve(t, cfg)
			if two, err := c.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir, Umask: "0"}, ""); err != nil || two.Workspace != ses.Workspace {
				t.Errorf("another session: %+v, %v", two, err)
			}
			check("2")
			if w, err := c.Workspace(t.Context(), ses.Workspace); err != nil || umask == "0027" && w.Umask != umask || umask == "" && w.Umask != "0022" {
				t.Errorf("the workspace has umask %q, %v; want %q", w.Umask, err, umask)
			}
		}
	}
}

// TestWSR39_BadUmasks: the server refuses a text that is not an umask, and an umask for files that do not lie in a
// directory of the user's own.
func TestWSR39_BadUmasks(t *testing.T) {
	c, _ := serve(t, settings(t, "mem"))
	dir := ownRepository(t)
	for _, bad := range []string{"0o27", "1000", "8", "-1", "0x1", "u=rwx", "00077", " 22"} {
		if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir, Umask: bad}, ""); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), "umask") {
			t.Errorf("session with umask %q: %v", bad, err)
		}
		if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{Dir: dir, Umask: bad}); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), "umask") {
			t.Errorf("workspace with umask %q: %v", bad, err)
		}
	}
	for _, req := range []holdfast.CreateSession{{Umask: "022"}, {Umask: "022", Workspace: "site"}} {
		if _, err := c.CreateSession(t.Context(), req, ""); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{Umask: "022"}); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
		t.Errorf("a workspace of the server's: %v", err)
	}
	if list, err := c.Workspaces(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("workspaces %+v, %v", list, err)
	}
	w, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"})
	if err != nil || w.Umask != "" {
		t.Errorf("%+v, %v", w, err)
	}
}
