package rooted

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind holdfast.Kind, part string) {
	t.Helper()
	if err == nil || !holdfast.IsKind(err, kind) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v (kind %q), want kind %q and %q in it", err, holdfast.KindOf(err), kind, part)
	}
}

// seed is Seed for files that dir has nothing else in place of.
func seed(dir string, files []File, uid, gid int) error {
	kept, err := Seed(dir, files, uid, gid)
	if err == nil && len(kept) > 0 {
		err = fmt.Errorf("kept %q", kept)
	}
	return err
}

// outside is a directory beside a tree whose content must never change.
func outside(t *testing.T, base string) (dir string, check func()) {
	t.Helper()
	dir = filepath.Join(base, "outside")
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600))
	return dir, func() {
		t.Helper()
		var names []string
		must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			names = append(names, strings.TrimPrefix(p, dir))
			return err
		}))
		data, err := os.ReadFile(filepath.Join(dir, "secret"))
		if strings.Join(names, " ") != " /secret /sub" || err != nil || string(data) != "secret" {
			t.Errorf("the outside changed: %q, secret %q (%v)", names, data, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("the outside's mode changed: %v (%v)", info.Mode(), err)
		}
	}
}

func TestSeed(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "s", "workspace")
	files := []File{
		{Path: "CLAUDE.md", Mode: 0o644, Content: []byte("hello")},
		{Path: "bin/tool", Mode: 0o755, Content: []byte("#!/bin/sh\n")},
		{Path: "a/b/c", Mode: 0o644},
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 1_879_048_200, 1_879_048_201
	}
	must(t, seed(dir, files, uid, gid))
	for _, f := range files {
		p := filepath.Join(dir, f.Path)
		data, err := os.ReadFile(p)
		must(t, err)
		if string(data) != string(f.Content) {
			t.Errorf("%s holds %q", f.Path, data)
		}
		checkOwner(t, p, fs.FileMode(f.Mode), uid, gid)
	}
	for _, d := range []string{"", "a", "a/b", "bin"} {
		checkOwner(t, filepath.Join(dir, d), 0o755|fs.ModeDir, uid, gid)
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("beside the workspace lies %v", entries)
	}
}

func checkOwner(t *testing.T, path string, mode fs.FileMode, uid, gid int) {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	info, err := os.Lstat(path)
	must(t, err)
	if info.Mode() != mode || int(st.Uid) != uid || int(st.Gid) != gid {
		t.Errorf("%s: %v %d:%d, want %v %d:%d", path, info.Mode(), st.Uid, st.Gid, mode, uid, gid)
	}
}

// TestSeedKeepsWhatIsThere: of an existing file, whatever it is, nothing changes. The paths of those that differ are
// returned.
func TestSeedKeepsWhatIsThere(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "ws")
	must(t, os.MkdirAll(filepath.Join(dir, "isdir"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("mine"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "longer"), []byte("seeded and more"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "equal"), []byte("seeded"), 0o600))
	must(t, os.Symlink(filepath.Join(out, "secret"), filepath.Join(dir, "link")))
	must(t, os.Symlink(filepath.Join(out, "new"), filepath.Join(dir, "dangling")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	var files []File
	occupied := []string{"mine", "longer", "link", "dangling", "fifo", "isdir", "mine/file", "mine/deep/file"}
	for _, n := range append(slices.Clone(occupied), "equal", "new") {
		files = append(files, File{Path: n, Mode: 0o644, Content: []byte("seeded")})
	}
	kept, err := Seed(dir, files, os.Getuid(), os.Getgid())
	if err != nil || !slices.Equal(kept, occupied) {
		t.Errorf("kept %q, %v; want %q", kept, err, occupied)
	}
	check()
	for name, want := range map[string]string{"mine": "mine", "new": "seeded"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q (%v)", name, data, err)
		}
	}
	if info, _ := os.Lstat(filepath.Join(dir, "mine")); info.Mode().Perm() != 0o600 {
		t.Errorf("mode of a kept file: %v", info.Mode())
	}
	for _, n := range []string{"link", "dangling"} {
		if info, _ := os.Lstat(filepath.Join(dir, n)); info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no symlink any more", n)
		}
	}
}

// TestSeedStaysInside: nothing is copied into a directory of the tree that leads out.
func TestSeedStaysInside(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	for _, link := range []string{out, "../outside", "/proc/self/cwd", "loop"} {
		dir := filepath.Join(base, "ws")
		must(t, os.Mkdir(dir, 0o755))
		must(t, os.Symlink(link, filepath.Join(dir, "loop")))
		files := []File{{Path: "loop/new", Mode: 0o644}, {Path: "in/new"}, {Path: "loop/a/b", Mode: 0o644}}
		kept, err := Seed(dir, files, os.Getuid(), os.Getgid())
		if err != nil || !slices.Equal(kept, []string{"loop/new", "loop/a/b"}) {
			t.Errorf("%s: kept %q, %v", link, kept, err)
		}
		check()
		must(t, RemoveAll(dir))
		must(t, RemoveAll(dir+".seed"))
	}
	dir := filepath.Join(base, "ws")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Symlink(out, filepath.Join(base, "ln")))
	wantKind(t, seed(filepath.Join(base, "ln"), []File{{Path: "x"}}, os.Getuid(), os.Getgid()), holdfast.KindConflict, "not a directory")
	check()
}

func TestSeedRefusesPaths(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ws")
	for _, p := range []string{"", ".", "..", "../x", "/x", "a/../b", "a//b", "a/", "./a", "a\x00b"} {
		wantKind(t, seed(dir, []File{{Path: "ok"}, {Path: p}}, os.Getuid(), os.Getgid()), holdfast.KindInvalid, "clean relative path")
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("a refused seed made something")
	}
	for _, d := range []string{"", "relative", "/"} {
		wantKind(t, seed(d, nil, 0, 0), holdfast.KindInvalid, "absolute path")
		wantKind(t, RemoveAll(d), holdfast.KindInvalid, "absolute path")
	}
}

// TestSeedAgain: a seed that was cut off, its stage still there, is completed.
func TestSeedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ws")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.MkdirAll(dir+".seed", 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("whole"), 0o644))
	must(t, os.WriteFile(dir+".seed/1", []byte("ha"), 0o600))
	files := []File{{Path: "a", Mode: 0o644, Content: []byte("whole")}, {Path: "b", Mode: 0o644, Content: []byte("half")}}
	for range 2 {
		must(t, seed(dir, files, os.Getuid(), os.Getgid()))
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "b")); string(data) != "half" {
		t.Errorf("b holds %q", data)
	}
	if _, err := os.Lstat(dir + ".seed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stage is left: %v", err)
	}
}

// TestSeedAgainstRaces: directories swapped for symlinks while files are seeded
// never lead out.
func TestSeedAgainstRaces(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "ws")
	must(t, os.Mkdir(dir, 0o755))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		d := filepath.Join(dir, "d")
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Symlink(out, filepath.Join(dir, "l"))
			_ = os.Rename(d, filepath.Join(dir, "old"))
			_ = os.Rename(filepath.Join(dir, "l"), d)
			_ = os.Remove(d)
			_ = os.Rename(filepath.Join(dir, "old"), d)
		}
	}()
	for range 300 {
		// Refused or done: both are fine, outside is not.
		_ = seed(dir, []File{{Path: "d/new", Mode: 0o644, Content: []byte("x")}, {Path: "d/e/f", Mode: 0o644}}, os.Getuid(), os.Getgid())
		_ = os.Remove(filepath.Join(dir, "d/new"))
	}
	close(stop)
	<-done
	check()
}
