//go:build linux

package local_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const canaryText = "canary-behind-a-wall"

// walled is a box whose workspace has files, and walls.
type walled struct {
	t   *testing.T
	d   *local.Driver
	dir string
	s   sandbox.Spec
	b   *sandbox.Box
}

// host is the host's path of a path in the workspace.
func (w *walled) host(rel string) string { return filepath.Join(w.s.Dir, "workspace", rel) }

// withWalls makes a box twice: first without walls, so that its files are the tools'
// own, then with them.
func withWalls(t *testing.T, prepare string, walls sandbox.Walls, opts ...option) *walled {
	t.Helper()
	if os.Getenv(landlockEnv) == landlockGone {
		landlockIsGone(t)
		opts = append(opts, bestEffortLandlock)
	}
	dir := home(t)
	w := &walled{t: t, d: open(t, dir, opts...), dir: dir}
	w.s = spec(dir, "walls")
	sh(t, box(t, w.d, w.s), prepare)
	w.restart(walls)
	return w
}

// restart ends the box and starts it with walls.
func (w *walled) restart(walls sandbox.Walls) {
	w.t.Helper()
	w.stop()
	w.s.Walls = walls
	if info := up(w.t, w.d, w.s); info.Walls != walls.Hash() {
		w.t.Fatalf("the box says that its walls are %q, want %q", info.Walls, walls.Hash())
	}
	w.b = dial(w.t, w.d, w.s.Box)
}

func (w *walled) stop() {
	w.t.Helper()
	if err := w.d.Stop(w.t.Context(), w.s.Box); err != nil {
		w.t.Fatal(err)
	}
}

// refused runs a script whose output must not contain the canary, and returns the
// output.
func (w *walled) refused(script string) string {
	w.t.Helper()
	_, out := try(w.t, w.b, wire.ExecRequest{Shell: script})
	if strings.Contains(out, canaryText) {
		w.t.Errorf("%s: the content came through: %s", script, out)
	}
	return out
}

// shows runs a script that must print the canary.
func (w *walled) shows(script string) {
	w.t.Helper()
	if out := sh(w.t, w.b, script); !strings.Contains(out, canaryText) {
		w.t.Errorf("%s: no content: %s", script, out)
	}
}

const prepared = `mkdir -p a/secret docs src && echo ` + canaryText + ` | tee .env a/secret/key docs/text src/code >/dev/null`

// TestAnyWallsMask: no tool can read, write or move a masked path, and the directories
// on the way stay where they are, also in the next box.
func TestAnyWallsMask(t *testing.T) {
	walls := sandbox.Walls{Masked: []string{"/workspace/a/secret/", "/workspace/.env"}}
	w := withWalls(t, prepared, walls)
	w.masked()
	w.shows("cat docs/text")
	if _, err := os.ReadFile(w.host(".env")); err != nil {
		t.Errorf("the host lost the file: %v", err)
	}
	in := strings.Join(w.b.Welcome().InForce, "\n")
	for _, p := range walls.Masked {
		if !strings.Contains(in, "wall: masked \""+strings.TrimSuffix(p, "/")+`"`) {
			t.Errorf("%s is not listed among what is in force:\n%s", p, in)
		}
	}
	w.refused("mv a a2; mkdir -p a/secret")
	w.restart(walls)
	w.refused("cat a2/secret/key a/secret/key")
	w.masked()
}

// masked tries the ways to a masked directory and a masked file.
func (w *walled) masked() {
	w.t.Helper()
	for _, script := range []string{
		"cat .env a/secret/key", "ls -la a/secret", "cat /proc/self/root/workspace/.env", "ln -sf /workspace/.env l && cat l",
		"ln .env h && cat h", "cp -r a b && cat b/secret/key", "chmod 777 .env a/secret; cat .env", "mv .env e; cat e",
		"mv a/secret s; cat s/key", "mv a a2; cat a2/secret/key", "umount .env; umount -l a/secret; cat .env a/secret/key",
		"unshare -Urm umount .env; cat .env", "tar cf - . | tar xOf - ./.env ./a/secret/key", "grep -r canary . --include=.env --include=key",
		"rm -rf .env a/secret; cat .env a/secret/key", "cd a/secret && cat key", "dd if=.env", "find . -name key -exec cat {} +",
		"mount --bind docs a/secret; cat a/secret/text",
		"nsenter -t 1 -m cat /workspace/.env", "cat < .env", "exec 9<.env; cat <&9",
	} {
		w.refused(script)
	}
	for _, p := range []string{".env", "a/secret/key"} {
		if data, err := w.read(p); err == nil || strings.Contains(data, canaryText) {
			w.t.Errorf("Read of %s: %q %v", p, data, err)
		}
		if err := w.write(p); err == nil {
			w.t.Errorf("Write of %s succeeded", p)
		}
	}
	if got, err := os.ReadFile(w.host(".env")); err != nil || !strings.Contains(string(got), canaryText) {
		w.t.Errorf("the file on the host is %q %v", got, err)
	}
}

func (w *walled) read(p string) (string, error) {
	var out bytes.Buffer
	_, err := w.b.Read(w.t.Context(), wire.ReadRequest{Path: p}, &out)
	return out.String(), err
}

func (w *walled) write(p string) error {
	call := newCall(w.t)
	_, err := w.b.Write(w.t.Context(), call, wire.WriteRequest{Path: p}, []byte("x"))
	w.b.Release(call.ID)
	return err
}
