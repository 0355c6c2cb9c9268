package rooted

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSeedAfterAnInterruptedOne: a Seed that is repeated after one that was killed between the making of a directory and its
// chown, or whose disk was full then, gives the directory to its owner. What else belongs to the server stays as it is.
func TestSeedAfterAnInterruptedOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root gives directories away")
	}
	const uid, gid = 4242, 4343
	files := []File{{Path: "a/b/f", Mode: 0o644, Content: []byte("x")}}
	given, kept := fmt.Sprintf("%d:%d drwxr-xr-x", uid, gid), "0:0 drwx------"
	for name, c := range map[string]struct {
		prepare func(tree string) error
		want    map[string]string
	}{
		"new":                 {func(string) error { return nil }, map[string]string{".": given, "a": given, "a/b": given}},
		"tree made":           {func(tree string) error { return os.Mkdir(tree, 0o700) }, map[string]string{".": given, "a": given, "a/b": given}},
		"mode of tree set":    {func(tree string) error { return os.Mkdir(tree, 0o755) }, map[string]string{".": given, "a": given, "a/b": given}},
		"stage was not there": {func(tree string) error { return os.MkdirAll(tree+".seed", 0o700) }, map[string]string{".": given}},
		"directory made": {func(tree string) error {
			return errors.Join(os.Mkdir(tree, 0o755), os.Chown(tree, uid, gid), os.MkdirAll(filepath.Join(tree, "a/b"), 0o700), os.Chown(filepath.Join(tree, "a"), uid, gid))
		}, map[string]string{".": given, "a": "4242:4343 drwx------", "a/b": given}},
		"the server's with entries": {func(tree string) error {
			return os.MkdirAll(filepath.Join(tree, "a/b/c"), 0o700)
		}, map[string]string{".": kept, "a": kept, "a/b": kept, "a/b/c": kept}},
		"another one's": {func(tree string) error {
			return errors.Join(os.Mkdir(tree, 0o700), os.Chown(tree, 7, 8))
		}, map[string]string{".": "7:8 drwx------", "a": given}},
	} {
		tree := filepath.Join(t.TempDir(), "tree")
		must(t, c.prepare(tree))
		for range 2 {
			must(t, seed(tree, files, uid, gid))
			for dir, want := range c.want {
				info, err := os.Lstat(filepath.Join(tree, dir))
				must(t, err)
				st := info.Sys().(*syscall.Stat_t)
				if got := fmt.Sprintf("%d:%d %v", st.Uid, st.Gid, info.Mode()); got != want {
					t.Errorf("%s: %s is %s, want %s", name, dir, got, want)
				}
			}
		}
	}
}

// TestSeedKeepsModes: an agent with the server's uid keeps the modes that it gave its directories.
func TestSeedKeepsModes(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, seed(tree, nil, os.Getuid(), os.Getgid()))
	must(t, os.Chmod(tree, 0o770))
	must(t, os.Mkdir(filepath.Join(tree, "a"), 0o700))
	must(t, seed(tree, []File{{Path: "a/f", Mode: 0o644, Content: []byte("x")}}, os.Getuid(), os.Getgid()))
	for dir, want := range map[string]os.FileMode{".": 0o770, "a": 0o700} {
		if info, err := os.Lstat(filepath.Join(tree, dir)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s is %v, %v; want %v", dir, info.Mode(), err, want)
		}
	}
}
