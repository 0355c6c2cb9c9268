package agents

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

func writeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, body := range files {
		p := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(body), 0o644))
	}
}

func TestPackDir(t *testing.T) {
	files := map[string]string{
		"CLAUDE.md": "hello", ".gitignore": "*\n", "ignored": "kept", "d/e/f.txt": strings.Repeat("x", 200_000), "d/empty": "",
		"long/" + strings.Repeat("n", 200) + "/é.txt": "y",
	}
	one, two := t.TempDir(), t.TempDir()
	writeTree(t, one, files)
	writeTree(t, two, files)
	must(t, os.Chmod(filepath.Join(one, "CLAUDE.md"), 0o600))
	a, err := io.ReadAll(PackDir(t.Context(), one))
	must(t, err)
	b, err := io.ReadAll(iotest.OneByteReader(PackDir(t.Context(), two)))
	must(t, err)
	if !bytes.Equal(a, b) {
		t.Error("two tars of one content differ")
	}
	r := openRegistry(t, t.TempDir(), newStore())
	agent, err := r.Deploy(t.Context(), "a", bytes.NewReader(a))
	must(t, err)
	got, err := r.Files(t.Context(), agent.VersionID)
	must(t, err)
	if len(got) != len(files) {
		t.Errorf("%d files of %d", len(got), len(files))
	}
	for _, f := range got {
		if files[f.Path] != string(f.Content) {
			t.Errorf("%s holds %d bytes", f.Path, len(f.Content))
		}
	}
}

func TestPackDirRefuses(t *testing.T) {
	read := func(dir string) error {
		n, err := io.Copy(io.Discard, PackDir(t.Context(), dir))
		if n > 0 {
			t.Errorf("%d bytes were sent of a folder that is refused", n)
		}
		return err
	}
	dir := t.TempDir()
	wantKind(t, read(filepath.Join(dir, "none")), holdfast.KindNotFound, "none")
	wantKind(t, read(dir), holdfast.KindInvalid, "neither")
	writeTree(t, dir, map[string]string{"CLAUDE.md": "x"})
	wantKind(t, read(filepath.Join(dir, "CLAUDE.md")), holdfast.KindInvalid, "not a directory")
	must(t, os.Symlink("CLAUDE.md", filepath.Join(dir, "AGENTS.md")))
	wantKind(t, read(dir), holdfast.KindInvalid, `"AGENTS.md" cannot be in an agent's folder: it is a symlink`)
	must(t, os.Remove(filepath.Join(dir, "AGENTS.md")))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	wantKind(t, read(dir), holdfast.KindInvalid, `"pipe" cannot be in an agent's folder: it is a named pipe`)
	must(t, os.Remove(filepath.Join(dir, "pipe")))
	must(t, os.WriteFile(filepath.Join(dir, "big"), nil, 0o644))
	must(t, os.Truncate(filepath.Join(dir, "big"), MaxBytes))
	wantKind(t, read(dir), holdfast.KindTooLarge, "50 MB")
}

// TestPackDirChange: a file that changes its size under way is an error, not a
// tar with something else in it.
func TestPackDirChange(t *testing.T) {
	for what, change := range map[string]func(string) error{
		"grew":   func(p string) error { return os.WriteFile(p, make([]byte, 300_000), 0o644) },
		"shrank": func(p string) error { return os.Truncate(p, 10) },
		"went":   os.Remove,
	} {
		for _, name := range []string{"b", "z"} { // b is open, z is still to come
			dir := t.TempDir()
			writeTree(t, dir, map[string]string{"AGENTS.md": "x", "b": strings.Repeat("y", 200_000), "z": strings.Repeat("y", 200_000)})
			p := PackDir(t.Context(), dir)
			_, err := io.CopyN(io.Discard, p, 4096)
			must(t, err)
			must(t, change(filepath.Join(dir, name)))
			_, err = io.Copy(io.Discard, p)
			if what == "went" && name == "b" {
				// It was open: what was judged is what is sent.
				must(t, err)
			} else if !holdfast.IsKind(err, holdfast.KindConflict) && !holdfast.IsKind(err, holdfast.KindNotFound) {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
	}
	p := PackDir(t.Context(), t.TempDir())
	must(t, p.Close())
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("read after close: %v", err)
	}
}

func FuzzDeploy(f *testing.F) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	_ = w.WriteHeader(&tar.Header{Name: "CLAUDE.md", Typeflag: tar.TypeReg, Size: 1, Mode: 0o644})
	_, _ = w.Write([]byte("x"))
	_ = w.Close()
	f.Add(buf.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		base := t.TempDir()
		dir := filepath.Join(base, "files")
		must(t, os.Mkdir(dir, 0o700))
		files, err := unpack(bytes.NewReader(data), dir)
		if entries, _ := os.ReadDir(base); len(entries) != 1 {
			t.Fatalf("something was made outside: %v", entries)
		}
		if err != nil {
			if k := holdfast.KindOf(err); k != holdfast.KindInvalid && k != holdfast.KindTooLarge {
				t.Fatalf("kind %s of %v", k, err)
			}
			return
		}
		for _, file := range files {
			info, err := os.Lstat(filepath.Join(dir, file.Path))
			if err != nil || !info.Mode().IsRegular() || info.Size() != file.Size {
				t.Fatalf("%+v: %v (%v)", file, info, err)
			}
		}
	})
}
