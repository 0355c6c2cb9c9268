package agents

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest/escape"
)

const canary = "escape-canary-deploy"

var update = flag.Bool("update", false, "write docs/security/escapes.md from this run")

// TestI24_HostileArchives: an archive of an agent leads nowhere, neither when it is
// unpacked by the server nor when it is packed from a tree that changes. The
// control is a program that does what the archive says.
func TestI24_HostileArchives(t *testing.T) {
	out := t.TempDir()
	secret := filepath.Join(out, "secret")
	must(t, os.WriteFile(secret, []byte(canary), 0o644))
	md := entry{name: "CLAUDE.md", body: "x"}
	planted := func(string) bool {
		_, err := os.Lstat(filepath.Join(out, "planted"))
		_ = os.Remove(filepath.Join(out, "planted"))
		return err == nil
	}
	holds := func(name, text string) func(string) bool {
		return func(dir string) bool {
			b, err := os.ReadFile(filepath.Join(dir, name))
			return err == nil && strings.Contains(string(b), text)
		}
	}
	up := strings.Repeat("../", 64)
	var rows []escape.Row
	for _, c := range []struct {
		id, does string
		entries  []entry
		fell     func(dir string) bool
	}{
		{"deploy-absolute", "an absolute name", []entry{md, {name: filepath.Join(out, "planted")}}, planted},
		{"deploy-parent", "a name that leads up", []entry{md, {name: up + out[1:] + "/planted"}}, planted},
		{"deploy-symlink", "a symlink, then a file through it", []entry{md, {name: "l", typ: tar.TypeSymlink, body: out}, {name: "l/planted"}}, planted},
		{"deploy-hardlink", "a hard link to a file of the server", []entry{md, {name: "h", typ: tar.TypeLink, body: secret}}, holds("h", canary)},
		{"deploy-symlink-read", "a symlink as the instructions, which are shown", []entry{{name: "CLAUDE.md", typ: tar.TypeSymlink, body: secret}}, holds("CLAUDE.md", canary)},
		{"deploy-twice", "a second file of the same name", []entry{md, {name: "CLAUDE.md", body: "second"}}, holds("CLAUDE.md", "second")},
		{"deploy-fifo", "a named pipe that blocks who opens it", []entry{md, {name: "f", typ: tar.TypeFifo}}, func(dir string) bool {
			st, err := os.Lstat(filepath.Join(dir, "f"))
			return err == nil && st.Mode()&os.ModeNamedPipe != 0
		}},
	} {
		row := escape.Row{ID: c.id, Group: "archives", Attempt: c.does, Verdict: escape.Held}
		_, err := deploy(t, openRegistry(t, t.TempDir(), newStore()), "a", c.entries...)
		row.Saw = "refused: " + brief(err, out)
		if !holdfast.IsKind(err, holdfast.KindInvalid) || planted("") {
			row.Verdict = escape.Escaped
			t.Errorf("%s: %v", c.id, err)
		}
		dir := t.TempDir()
		must(t, naive(dir, makeTar(t, c.entries...)))
		if row.Control = "untarred as it says: it works"; !c.fell(dir) {
			t.Errorf("%s: the control fails", c.id)
		}
		rows = append(rows, row)
	}
	rows = append(rows, hugeArchive(t), racedArchive(t, out))
	escape.Check(t, filepath.Join("..", "..", "docs", "security", "escapes.md"), "agent deploy, any user", rows, *update)
}

func brief(err error, dir string) string {
	if err == nil {
		return "nothing"
	}
	s := strings.ReplaceAll(err.Error(), dir, "…")
	return strings.ReplaceAll(s, strings.Repeat("../", 20), "")
}

// naive does what a tar says.
func naive(dir string, raw []byte) error {
	tr := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := h.Name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		case tar.TypeLink:
			err = os.Link(h.Linkname, path)
		case tar.TypeFifo:
			err = unix.Mkfifo(path, 0o644)
		default:
			b, rerr := io.ReadAll(tr)
			err = errors.Join(rerr, os.WriteFile(path, b, 0o644))
		}
		if err != nil {
			return err
		}
	}
}

// hugeArchive says that a file has a terabyte.
func hugeArchive(t *testing.T) escape.Row {
	t.Helper()
	const size = 1 << 40
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	must(t, w.WriteHeader(&tar.Header{Name: "CLAUDE.md", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}))
	row := escape.Row{ID: "deploy-huge", Group: "archives", Attempt: "a file that is said to have a terabyte", Verdict: escape.Held}
	_, err := openRegistry(t, t.TempDir(), newStore()).Deploy(t.Context(), "a", bytes.NewReader(buf.Bytes()))
	row.Saw = "refused: " + brief(err, "\x00")
	if !holdfast.IsKind(err, holdfast.KindTooLarge) {
		row.Verdict = escape.Escaped
		t.Errorf("%s: %v", row.ID, err)
	}
	h, err := tar.NewReader(bytes.NewReader(buf.Bytes())).Next()
	must(t, err)
	if row.Control = fmt.Sprintf("believed as it says: room for %d GiB", h.Size>>30); h.Size != size {
		t.Error("the control fails")
	}
	return row
}

// racedArchive packs a tree in which a directory and a symlink out of it change
// places all the time. The other of both lies beside the tree: a tree with a symlink
// is refused.
func racedArchive(t *testing.T, out string) escape.Row {
	t.Helper()
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"AGENTS.md": "x", "d/secret": strings.Repeat("o", len(canary))})
	link := filepath.Join(t.TempDir(), "l")
	must(t, os.Symlink(out, link))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "d"), unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	tries, fell := 0, false
	for end := time.Now().Add(20 * time.Second); !fell && time.Now().Before(end); tries++ {
		b, err := os.ReadFile(filepath.Join(dir, "d", "secret"))
		fell = err == nil && string(b) == canary
	}
	if !fell {
		t.Errorf("deploy-race: the control fails: never outside in %d times", tries)
	}
	times, outside, packed := 0, false, map[string]bool{}
	for end := time.Now().Add(20 * time.Second); !outside && (times < max(3000, 10*tries) || len(packed) < 2) && time.Now().Before(end); times++ {
		var b bytes.Buffer
		p := PackDir(t.Context(), dir)
		_, err := io.Copy(&b, p)
		_ = p.Close()
		outside = bytes.Contains(b.Bytes(), []byte(canary))
		packed[fmt.Sprint(err)] = true
	}
	row := escape.Row{
		ID: "deploy-race", Group: "archives", Attempt: "a directory that turns into a symlink while `agent deploy` packs it", Verdict: escape.Held,
		Saw: fmt.Sprintf("%d times, never outside", times), Control: fmt.Sprintf("os.ReadFile: outside at try %d", tries),
	}
	switch {
	case outside:
		row.Verdict = escape.Escaped
		t.Errorf("%s: a file of outside was packed at try %d", row.ID, times)
	case times < tries || len(packed) < 2:
		t.Errorf("%s: nothing raced in %d times, and the control fell at try %d", row.ID, times, tries)
	}
	return row
}
