package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// box is a workspace and a home of a test.
type box struct {
	*FS
	ws, home string
}

func newBox(t *testing.T) box {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := box{ws: filepath.Join(root, "workspace"), home: filepath.Join(root, "home")}
	for _, d := range []string{b.ws, b.home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.FS = New(Config{Workspace: b.ws, Home: b.home})
	return b
}

func (b box) path(name string) string { return b.ws + "/" + name }

func (b box) put(t *testing.T, name, content string) string {
	t.Helper()
	p := b.path(name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func (b box) get(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(b.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// clean fails when a temporary file was left in the workspace.
func (b box) clean(t *testing.T) {
	t.Helper()
	_ = filepath.WalkDir(b.ws, func(path string, _ os.DirEntry, _ error) error {
		if strings.Contains(path, ".holdfast-") {
			t.Errorf("temporary file %s was left", path)
		}
		return nil
	})
}

func wantKind(t *testing.T, err error, kind holdfast.Kind, part string) {
	t.Helper()
	if !holdfast.IsKind(err, kind) || err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v (kind %q), want kind %q and %q in it", err, holdfast.KindOf(err), kind, part)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadPieces(t *testing.T) {
	b := newBox(t)
	content := strings.Repeat("0123456789", 50_000)
	b.put(t, "f", content)
	for _, c := range []struct{ off, limit, from, to int64 }{
		{0, 0, 0, 500_000},
		{10, 5, 10, 15},
		{499_999, 0, 499_999, 500_000},
		{499_990, 100, 499_990, 500_000},
		{500_000, 0, 500_000, 500_000},
		{900_000, 7, 500_000, 500_000},
	} {
		var out bytes.Buffer
		ans, err := b.Read(wire.ReadRequest{Path: "f", Offset: c.off, Limit: c.limit}, &out)
		must(t, err)
		if out.String() != content[c.from:c.to] || ans.Size != 500_000 || ans.Sent != c.to-c.from {
			t.Errorf("read %d+%d: %d bytes, answer %+v", c.off, c.limit, out.Len(), ans)
		}
	}
	_, err := b.Read(wire.ReadRequest{Path: "f", Offset: -1}, io.Discard)
	wantKind(t, err, holdfast.KindInvalid, "-1")
}

func TestReadFailures(t *testing.T) {
	b := newBox(t)
	b.put(t, "d/f", "x")
	read := func(p string) error {
		_, err := b.Read(wire.ReadRequest{Path: p}, io.Discard)
		return err
	}
	wantKind(t, read("none"), holdfast.KindNotFound, `"none"`)
	wantKind(t, read("d/f/g"), holdfast.KindNotFound, `"d/f/g"`)
	wantKind(t, read("d"), holdfast.KindInvalid, "a directory")
	wantKind(t, read(""), holdfast.KindInvalid, "empty")
	wantKind(t, read("a\x00b"), holdfast.KindInvalid, "NUL")
	wantKind(t, read(strings.Repeat("a", 5000)), holdfast.KindInvalid, "5000 bytes")
	wantKind(t, read(strings.Repeat("a", 300)), holdfast.KindInvalid, "too long")
	must(t, os.Symlink("loop", b.path("loop")))
	wantKind(t, read("loop"), holdfast.KindInvalid, "loop")
	broken := errors.New("pipe broke")
	_, err := b.Read(wire.ReadRequest{Path: "d/f"}, writerFunc(func([]byte) (int, error) { return 0, broken }))
	if !errors.Is(err, broken) {
		t.Errorf("a writer's error came back as %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestSpecialFilesNeverBlock: opening a FIFO would wait for ever for its other end.
func TestSpecialFilesNeverBlock(t *testing.T) {
	b := newBox(t)
	must(t, unix.Mkfifo(b.path("fifo"), 0o644))
	must(t, os.Symlink("fifo", b.path("link")))
	sock := filepath.Join(os.TempDir(), "hf-files-test.sock")
	_ = os.Remove(sock)
	l, err := net.Listen("unix", sock)
	must(t, err)
	defer l.Close()
	must(t, os.Symlink(sock, b.path("sock")))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range []string{"fifo", "link", "sock", "/dev/zero", "/dev/null"} {
			_, err := b.Read(wire.ReadRequest{Path: p}, io.Discard)
			wantKind(t, err, holdfast.KindInvalid, "not a regular file")
			_, err = b.Write(wire.WriteRequest{Path: p}, strings.NewReader("x"))
			wantKind(t, err, holdfast.KindInvalid, "not a regular file")
			_, err = b.Edit(wire.EditRequest{Path: p, Old: "a", New: "b"})
			wantKind(t, err, holdfast.KindInvalid, "not a regular file")
			_, err = b.Grep(wire.GrepRequest{Path: p, Pattern: "a"})
			wantKind(t, err, holdfast.KindInvalid, "not a regular file")
			_, err = b.List(wire.ListRequest{Path: p})
			wantKind(t, err, holdfast.KindInvalid, "not a directory")
		}
		_, err := b.Grep(wire.GrepRequest{Pattern: "a"})
		if err != nil {
			t.Errorf("grep of a tree with a FIFO: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a special file was opened blockingly")
	}
	b.clean(t)
}

// TestSpecialFileAtOpen: what was a file at the look and is a FIFO at the open
// is refused by the second look.
func TestSpecialFileAtOpen(t *testing.T) {
	b := newBox(t)
	must(t, unix.Mkfifo(b.path("fifo"), 0o644))
	fd, err := b.door.open("test", "fifo", b.path("fifo"), unix.O_RDONLY|unix.O_NONBLOCK)
	must(t, err)
	f := &file{fd: fd}
	defer f.close()
	if err := f.mustBeRegular("test", "fifo", unix.O_RDONLY); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("an open FIFO: %v", err)
	}
	if _, err := f.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("reading an empty FIFO: %v", err)
	}
	if _, err := b.door.open("test", "fifo", b.path("fifo"), toList); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a FIFO opened as a directory: %v", err)
	}
}

// WS-P13.
func TestPaths(t *testing.T) {
	b := newBox(t)
	b.put(t, "a/f", "ws")
	must(t, os.WriteFile(filepath.Join(b.home, "f"), []byte("home"), 0o644))
	read := func(p string) string {
		var out strings.Builder
		if _, err := b.Read(wire.ReadRequest{Path: p}, &out); err != nil {
			return err.Error()
		}
		return out.String()
	}
	for p, want := range map[string]string{
		"a/f": "ws", "./a/../a/f": "ws", b.path("a/f"): "ws", "~/f": "home", b.home + "/f": "home",
	} {
		if got := read(p); got != want {
			t.Errorf("read %s: %q, want %q", p, got, want)
		}
	}
	info, err := b.Stat(wire.PathRequest{Path: "~"})
	must(t, err)
	if info.Path != b.home || info.Type != wire.TypeDir {
		t.Errorf("stat of home: %+v", info)
	}
}

func TestBaseStandsForRoot(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	f := New(Config{Workspace: "/workspace", Home: "/home/agent", Base: base})
	_, err = f.Write(wire.WriteRequest{Path: "d/x", Parents: true}, strings.NewReader("1"))
	must(t, err)
	_, err = f.Write(wire.WriteRequest{Path: "~/y", Parents: true}, strings.NewReader("2"))
	must(t, err)
	for _, p := range []string{base + "/workspace/d/x", base + "/home/agent/y"} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	g, err := f.Glob(wire.GlobRequest{Pattern: "/workspace/**"})
	must(t, err)
	if len(g.Paths) != 1 || g.Paths[0] != "/workspace/d/x" {
		t.Errorf("glob below a base: %q", g.Paths)
	}
	for _, p := range []string{"/../../workspace/d/x", base + "/workspace/d/x"} {
		info, err := f.Stat(wire.PathRequest{Path: p})
		must(t, err)
		if info.Path != "/workspace/d/x" {
			t.Errorf("stat %s: %s", p, info.Path)
		}
	}
	wantKind(t, f.Remove(wire.RemoveRequest{Path: "/workspace", Recursive: true}), holdfast.KindDenied, "the workspace or the home")
}

// TestNamesSurviveJSON: every file name comes back through JSON as it is, and
// the spelling of one opens it.
func TestNamesSurviveJSON(t *testing.T) {
	b := newBox(t)
	names := []string{"plain", "new\nline", "tab\t\"q\" \\", "caf\xe9", "\xff\xfe", "ok\u00e9", "pua\uef81", "half\xe2\x82", "\u2028<&>", "\ufffd"}
	for _, n := range names {
		if got := DecodeName(EncodeName(n)); got != n {
			t.Errorf("%q came back as %q", n, got)
		}
		b.put(t, n, n)
	}
	ans, err := b.List(wire.ListRequest{Path: "."})
	must(t, err)
	raw, err := json.Marshal(ans)
	must(t, err)
	var back wire.ListAnswer
	must(t, json.Unmarshal(raw, &back))
	if len(back.Entries) != len(names) {
		t.Fatalf("%d entries of %d", len(back.Entries), len(names))
	}
	for _, e := range back.Entries {
		var out strings.Builder
		if _, err := b.Read(wire.ReadRequest{Path: e.Path}, &out); err != nil {
			t.Errorf("%q: %v", e.Path, err)
		} else if out.String() != DecodeName(e.Path) {
			t.Errorf("%q opened the file %q", e.Path, out.String())
		}
	}
	g, err := b.Glob(wire.GlobRequest{Pattern: EncodeName("caf\xe9")})
	must(t, err)
	if len(g.Paths) != 1 {
		t.Errorf("glob of a name that is not UTF-8: %q", g.Paths)
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "a", "\xff", "\uef80", "\uefff\xef", "é\xc3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := EncodeName(s)
		if DecodeName(e) != s {
			t.Fatalf("%q -> %q -> %q", s, e, DecodeName(e))
		}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(raw, &back); err != nil || back != e {
			t.Fatalf("%q through JSON is %q (%v)", e, back, err)
		}
		if len(raw) > jsonLen(e) {
			t.Fatalf("%q takes %d bytes of JSON, jsonLen says %d", e, len(raw), jsonLen(e))
		}
	})
}

func TestStat(t *testing.T) {
	b := newBox(t)
	must(t, os.Chmod(b.put(t, "f", "12345"), 0o750))
	must(t, os.Symlink("f\xff", b.path("l")))
	must(t, unix.Mkfifo(b.path("p"), 0o644))
	info, err := b.Stat(wire.PathRequest{Path: "f"})
	must(t, err)
	if info.Path != b.path("f") || info.Type != wire.TypeFile || info.Size != 5 || info.Mode != 0o750 || info.ModTime.IsZero() {
		t.Errorf("file: %+v", info)
	}
	info, err = b.Stat(wire.PathRequest{Path: "l"})
	must(t, err)
	if info.Type != wire.TypeSymlink || DecodeName(info.Target) != "f\xff" {
		t.Errorf("symlink: %+v", info)
	}
	info, err = b.Stat(wire.PathRequest{Path: "p"})
	must(t, err)
	if info.Type != wire.TypeOther {
		t.Errorf("FIFO: %+v", info)
	}
	_, err = b.Stat(wire.PathRequest{Path: "none"})
	wantKind(t, err, holdfast.KindNotFound, `"none"`)
}
