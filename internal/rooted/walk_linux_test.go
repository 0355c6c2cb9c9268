package rooted

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// TestWalkDeep: in a tree deeper than any path is long and than there are descriptors, the
// walk comes back to what it left on the way down.
func TestWalkDeep(t *testing.T) {
	base := t.TempDir()
	dir, other := filepath.Join(base, "tree"), filepath.Join(base, "other")
	name := strings.Repeat("d", 100)
	const depth = 200 // the paths are 20,000 bytes long
	for _, d := range []string{dir, other} {
		must(t, os.Mkdir(d, 0o755))
		grow(t, d, name, depth)
		defer func() { must(t, RemoveAll(d)) }()
	}
	for _, unordered := range []bool{false, true} {
		n, deepest := 0, 0
		for e, err := range Walk(t.Context(), dir, Bounds{Entries: 1000, Depth: 1000, Unordered: unordered}) {
			must(t, err)
			if want := strings.Repeat(name+"/", max(e.Depth-1, 0)) + e.Name; e.Path() != want {
				t.Fatalf("%d bytes of path at depth %d", len(e.Path()), e.Depth)
			}
			n, deepest = n+1, max(deepest, e.Depth)
		}
		if n != 2*depth+1 || deepest != depth {
			t.Errorf("%d entries, %d deep", n, deepest)
		}
	}
	// Directories that are exchanged for others while the walk is below them: it does not
	// take the others for them.
	moved := 0
	for e, err := range Walk(t.Context(), dir, Bounds{Entries: 1000, Depth: 1000}) {
		if e.Depth == depth && e.Mode.IsDir() {
			must(t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, name), unix.AT_FDCWD, filepath.Join(other, name), unix.RENAME_EXCHANGE))
		}
		if err != nil {
			wantKind(t, err, holdfast.KindConflict, "was moved")
			if !e.Again || !e.Mode.IsDir() {
				t.Errorf("%+v", e)
			}
			moved++
		}
	}
	if moved < depth-2*maxOpen {
		t.Errorf("%d directories of %d were said to be moved", moved, depth)
	}
}

// TestWalkOfUnreadable: a directory that the server may not read is an entry with an error;
// what lies beside it is walked.
func TestWalkOfUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		base, err := os.MkdirTemp("/tmp", "hf-rooted")
		must(t, err)
		defer os.RemoveAll(base)
		must(t, os.Chmod(base, 0o777))
		self, err := os.Executable()
		must(t, err)
		data, err := os.ReadFile(self)
		must(t, err)
		bin := filepath.Join(base, "test")
		must(t, os.WriteFile(bin, data, 0o755))
		cmd := exec.CommandContext(t.Context(), bin, "-test.run", "^TestWalkOfUnreadable$", "-test.v")
		cmd.Env = []string{"TMPDIR=" + base, "PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = asUser(60_001)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestWalkOfUnreadable") {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"a/in", "closed/in", "listed/in", "z/in"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	must(t, os.Chmod(filepath.Join(dir, "closed"), 0))
	must(t, os.Chmod(filepath.Join(dir, "listed"), 0o600))
	defer func() {
		must(t, os.Chmod(filepath.Join(dir, "closed"), 0o700))
		must(t, os.Chmod(filepath.Join(dir, "listed"), 0o700))
	}()
	var got []string
	for e, err := range Walk(t.Context(), dir, wide) {
		got = append(got, strings.TrimSpace(e.Path()+" "+string(holdfast.KindOf(err))))
		if e.Name == "closed" && !e.Mode.IsDir() {
			t.Errorf("the unreadable directory is %v", e.Mode)
		}
	}
	if want := []string{".", "a", "a/in", "closed denied", "listed", "listed/in denied", "z", "z/in"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	u, err := DiskUsage(t.Context(), dir, 0)
	must(t, err)
	if u.Entries != 8 || !u.Partial {
		t.Errorf("usage: %+v", u)
	}
}

// TestWalkStaysOnItsMount: mounted directories and files are entries with an error.
func TestWalkStaysOnItsMount(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "tree")
	must(t, os.MkdirAll(filepath.Join(dir, "m"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	if err := bind(out, filepath.Join(dir, "m")); err != nil {
		t.Logf("no right to mount here, nothing tested: %v", err)
		return
	}
	defer unbind(filepath.Join(dir, "m"))
	must(t, bind(filepath.Join(out, "secret"), filepath.Join(dir, "f")))
	defer unbind(filepath.Join(dir, "f"))
	for _, unordered := range []bool{false, true} {
		n := 0
		for e, err := range Walk(t.Context(), dir, Bounds{Entries: 10, Depth: 10, Unordered: unordered}) {
			if n++; e.Name != "." {
				wantKind(t, err, holdfast.KindConflict, "is mounted at")
			}
		}
		if n != 3 {
			t.Errorf("%d entries", n)
		}
	}
	var got []string
	for e, err := range Walk(t.Context(), dir, Bounds{Entries: 10, Depth: 10, Mounts: true}) {
		must(t, err)
		got = append(got, e.Path())
	}
	if want := []string{".", "f", "m", "m/secret", "m/sub"}; !slices.Equal(got, want) {
		t.Errorf("with mounts: %q", got)
	}
	check()
}

// TestWalkAgainstRaces: while directories are swapped for symlinks and for each other, the
// walk stays inside, and what it returns below a directory lies in that one.
func TestWalkAgainstRaces(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "tree")
	holds := map[uint64]string{}
	for i, name := range []string{"x", "y", "z"} {
		must(t, os.MkdirAll(filepath.Join(dir, name, "sub"), 0o755))
		for e, err := range Walk(t.Context(), filepath.Join(dir, name), wide) {
			must(t, err)
			if e.Depth == 0 {
				holds[e.Ino] = fmt.Sprint(i)
			}
		}
		must(t, os.WriteFile(filepath.Join(dir, name, "file"+fmt.Sprint(i)), nil, 0o644))
	}
	must(t, os.Symlink(out, filepath.Join(dir, "to")))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		at := func(name string) string { return filepath.Join(dir, name) }
		pairs := [][2]string{{"x", "y"}, {"to", "x"}, {"y", "z"}, {"to", "x"}, {"z", "to"}, {"z", "to"}}
		for i := 0; ctx.Err() == nil; i++ {
			p := pairs[i%len(pairs)]
			_ = unix.Renameat2(unix.AT_FDCWD, at(p[0]), unix.AT_FDCWD, at(p[1]), unix.RENAME_EXCHANGE)
		}
	}()
	below, links := 0, 0
	for i := range 3000 {
		dirs := map[int]Entry{}
		for e, err := range Walk(t.Context(), dir, Bounds{Entries: 100, Depth: 10, Unordered: i%2 == 1}) {
			if err != nil && e.Name == "" {
				t.Fatal(err)
			}
			switch {
			case e.Name == "secret" || e.Depth == 2 && e.Mode&fs.ModeSymlink != 0:
				t.Fatalf("the walk left the tree: %s", e.Path())
			case e.Mode.IsDir():
				dirs[e.Depth] = e
			case e.Mode&fs.ModeSymlink != 0:
				links++
			case strings.HasPrefix(e.Name, "file"):
				below++
				if in := dirs[e.Depth-1]; "file"+holds[in.Ino] != e.Name {
					t.Fatalf("%s was found in directory %s", e.Name, holds[in.Ino])
				}
			}
		}
	}
	cancel()
	<-done
	if below == 0 || links == 0 {
		t.Errorf("the walks saw %d files and %d links", below, links)
	}
	check()
}
