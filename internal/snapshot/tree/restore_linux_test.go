package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// descriptors counts the open descriptors of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

// TestRestoreWholeOrNothing: if any blob is missing, if the context ends, or if the directory exists, nothing is
// left of a restore, neither a file nor a descriptor.
func TestRestoreWholeOrNothing(t *testing.T) {
	p := quickPlace(t)
	for i := range 30 {
		p.write(fmt.Sprintf("d%d/sub%d/f%d", i%3, i%5, i), strings.Repeat(fmt.Sprint(i), 100+i))
	}
	must(t, os.Link(p.at("d0/sub0/f0"), p.at("d2/link")))
	root := p.scan().Root
	open := descriptors(t)
	for id := range p.store.blobs {
		p.store.bad = id
		dir := elsewhere(t)
		wantKind(t, Restore(t.Context(), p.store, root, dir, me()), holdfast.KindNotFound, "no blob")
		if _, err := os.Lstat(dir); err == nil {
			t.Fatal("a part was restored")
		}
	}
	p.store.bad = pack.ID{}
	for n := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		src := &countedSource{p.store, n * 3, cancel}
		dir := elsewhere(t)
		if err := Restore(ctx, src, root, dir, me()); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d blobs: %v", n*3, err)
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Fatal("a part was restored")
		}
		cancel()
	}
	if now := descriptors(t); now != open {
		t.Errorf("%d descriptors are open, before %d", now, open)
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	wantKind(t, Restore(t.Context(), p.store, root, dir, me()), holdfast.KindConflict, "exists")
	if _, err := os.Lstat(filepath.Join(dir, "mine")); err != nil {
		t.Error("a directory that existed was removed")
	}
}

// countedSource calls end with the n-th blob.
type countedSource struct {
	*store
	left int
	end  func()
}

func (s *countedSource) Get(ctx context.Context, id pack.ID) ([]byte, error) {
	s.mu.Lock()
	if s.left--; s.left < 0 {
		s.end()
	}
	s.mu.Unlock()
	return s.store.Get(ctx, id)
}

// TestRestoreGivesOwners: files go to the user of the box that they belonged to.
func TestRestoreGivesOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: owners cannot be changed, nothing tested")
		return
	}
	p := newPlace(t)
	old := Owners{Agent: User{70_001, 70_001}, Boxd: User{70_000, 70_000}}
	p.change = func(c *Config) { c.Owners = old }
	for name, uid := range map[string]int{"agent": 70_001, "boxd": 70_000, "other": 12} {
		p.write(name+"/f", name)
		must(t, os.Symlink("x", p.at(name+"/l")))
		for _, n := range []string{name, name + "/f", name + "/l"} {
			must(t, os.Lchown(p.at(n), uid, uid))
		}
		must(t, os.Chmod(p.at(name+"/f"), 0o755|os.ModeSetuid))
	}
	root := p.scan().Root
	to := elsewhere(t)
	must(t, Restore(t.Context(), p.store, root, to, Owners{Agent: User{80_001, 80_002}, Boxd: User{80_003, 80_004}}))
	for name, want := range map[string][2]uint32{"agent": {80_001, 80_002}, "boxd": {80_003, 80_004}, "other": {80_001, 80_002}} {
		for _, n := range []string{name, name + "/f", name + "/l"} {
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(to, n), &st))
			if st.Uid != want[0] || st.Gid != want[1] || strings.HasSuffix(n, "f") && st.Mode&0o7777 != 0o4755 {
				t.Errorf("%s belongs to %d:%d, mode %o", n, st.Uid, st.Gid, st.Mode)
			}
		}
	}
}

// TestAsOrdinaryUser: a server that is not root stores files that nobody may read, and restores and changes directories
// that nobody may write.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() == 0 {
		base, err := os.MkdirTemp("/tmp", "hf-tree")
		must(t, err)
		defer os.RemoveAll(base)
		must(t, os.Chmod(base, 0o777))
		self, err := os.Executable()
		must(t, err)
		data, err := os.ReadFile(self)
		must(t, err)
		bin := filepath.Join(base, "test")
		must(t, os.WriteFile(bin, data, 0o755))
		cmd := exec.CommandContext(t.Context(), bin, "-test.run", "^TestAsOrdinaryUser$", "-test.v")
		cmd.Env, cmd.Dir = []string{"TMPDIR=" + base, "PATH=/usr/bin:/bin"}, base
		cmd.SysProcAttr = asUser(60_001)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestAsOrdinaryUser") {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	p := newPlace(t)
	p.write("closed", "secret")
	p.write("ro/sub/f", "x")
	must(t, os.Chmod(p.at("closed"), 0))
	must(t, os.Chmod(p.at("ro/sub"), 0o555))
	must(t, os.Chmod(p.at("ro"), 0o555))
	a := p.scan()
	if len(a.Skipped) > 0 || p.content("closed") != "secret" {
		t.Errorf("%+v", a)
	}
	if info, err := os.Lstat(p.at("closed")); err != nil || info.Mode().Perm() != 0 {
		t.Errorf("the mode was not put back: %v", info.Mode())
	}
	to := elsewhere(t)
	must(t, Restore(t.Context(), p.store, a.Root, to, me()))
	must(t, os.Chmod(p.at("ro/sub"), 0o755))
	p.write("ro/sub/f", "y")
	must(t, os.Chmod(p.at("ro/sub"), 0o555))
	b := p.scan()
	must(t, Apply(t.Context(), p.store, a.Root, b.Root, to, me()))
	for name, mode := range map[string]os.FileMode{"closed": 0, "ro": 0o555, "ro/sub": 0o555} {
		if info, err := os.Lstat(filepath.Join(to, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(to, "ro/sub/f")); string(data) != "y" {
		t.Errorf("f holds %q", data)
	}
}

// TestApplyWritesOnlyWhatDiffers: a file that is equal in both trees keeps its inode, one of which only the attributes
// differ, too.
func TestApplyWritesOnlyWhatDiffers(t *testing.T) {
	p := newPlace(t)
	p.write("same", "1")
	p.write("d/mode", "2")
	p.write("d/content", "3")
	a := p.scan().Root
	must(t, os.Chmod(p.at("d/mode"), 0o700))
	p.write("d/content", "4")
	b := p.scan().Root
	before := inodes(t, p.dir)
	must(t, Apply(t.Context(), p.store, b, a, p.dir, me()))
	after := inodes(t, p.dir)
	for name, want := range map[string]bool{"same": true, "d": true, "d/mode": true, "d/content": false} {
		if got := before[name] == after[name]; got != want {
			t.Errorf("%s kept its inode: %t, want %t", name, got, want)
		}
	}
	if p.last = b; p.scan().Root != a {
		t.Error("the tree is not that of before")
	}
}

func inodes(t *testing.T, dir string) map[string]uint64 {
	out := map[string]uint64{}
	for e, err := range rooted.Walk(t.Context(), dir, rooted.Bounds{Entries: 1000, Depth: 100}) {
		must(t, err)
		out[e.Path()] = e.Ino
	}
	return out
}

// TestApplyToAnotherTree: what lies in the way is replaced, also if the tree is not the one that Apply was told.
func TestApplyToAnotherTree(t *testing.T) {
	p := quickPlace(t)
	p.write("a/b/f", "1")
	p.write("g", "1")
	a := p.scan().Root
	p.write("a/b/f", "2")
	p.write("g", "2")
	p.write("new/f", "2")
	b := p.scan().Root
	for _, spoil := range []func(dir string) error{
		func(dir string) error { return os.RemoveAll(dir + "/a") },
		func(dir string) error { return errors.Join(os.RemoveAll(dir+"/a"), os.Symlink("/etc", dir+"/a")) },
		func(dir string) error {
			return errors.Join(os.Remove(dir+"/g"), os.Mkdir(dir+"/g", 0o700), os.Mkdir(dir+"/g/x", 0))
		},
		func(dir string) error { return os.WriteFile(dir+"/new", []byte("in the way"), 0o600) },
		func(dir string) error {
			return errors.Join(os.Remove(dir+"/a/b/f"), os.Symlink("/etc/passwd", dir+"/a/b/f"))
		},
	} {
		to := elsewhere(t)
		must(t, Restore(t.Context(), p.store, a, to, me()))
		must(t, spoil(to))
		must(t, Apply(t.Context(), p.store, a, b, to, me()))
		sameTree(t, describe(t, to), describe(t, p.dir))
	}
}

// TestEscape: directories of a tree that are swapped for symlinks, while the tree is scanned, changed or mended, lead
// neither a read nor a write out of it.
func TestEscape(t *testing.T) {
	base := t.TempDir()
	out := filepath.Join(base, "outside")
	must(t, os.MkdirAll(filepath.Join(out, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(out, "f"), []byte("outside"), 0o644))
	must(t, os.WriteFile(filepath.Join(out, "sub/f"), []byte("outside"), 0o644))
	p := quickPlace(t)
	p.write("d/f", "1")
	p.write("d/sub/f", "1")
	a := p.scan().Root
	p.write("d/f", "2")
	p.write("d/sub/f", "2")
	p.write("d/sub/deep/g", "2")
	must(t, os.Link(p.at("d/f"), p.at("d/sub/link")))
	b := p.scan().Root
	before := describe(t, out)
	must(t, os.Symlink(out, p.at("l")))
	must(t, os.Symlink(filepath.Join(out, "f"), p.at("lf")))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		pairs := [][2]string{{"d", "l"}, {"d/sub", "l"}, {"d/f", "lf"}, {"d/sub/f", "lf"}, {"lf", "l"}}
		for i := 0; ctx.Err() == nil; i++ {
			q := pairs[i%len(pairs)]
			for range 2 {
				_ = unix.Renameat2(unix.AT_FDCWD, p.at(q[0]), unix.AT_FDCWD, p.at(q[1]), unix.RENAME_EXCHANGE)
			}
		}
	}()
	all := func(string, Entry, rooted.Entry) bool { return true }
	scans := 0
	for i := range 300 {
		// Done or refused: both are right, a change outside is not.
		s := NewScan(p.config())
		if s.Live(t.Context()) == nil {
			if r, err := s.Finish(t.Context()); err == nil {
				scans++
				noneOutside(t, p.store, r.Root)
			}
		}
		s.Close()
		switch i % 3 {
		case 0:
			_ = Apply(t.Context(), p.store, a, b, p.dir, me())
		case 1:
			_ = Apply(t.Context(), p.store, b, a, p.dir, me())
		case 2:
			_, _ = Mend(t.Context(), p.store, b, p.dir, me(), all)
		}
	}
	cancel()
	<-done
	sameTree(t, describe(t, out), before)
	if scans == 0 {
		t.Error("no scan ended")
	}
}

// noneOutside looks for content that lies outside of the tree.
func noneOutside(t *testing.T, s *store, root pack.ID) {
	must(t, Blobs(t.Context(), s, root, func(kind pack.Kind, id pack.ID) bool {
		if b, err := s.Get(t.Context(), id); kind == pack.Data && (err != nil || string(b) == "outside") {
			t.Fatalf("a file outside of the tree was stored: %v", err)
		}
		return true
	}))
}

// TestMend: only what the function chooses is restored, with the directories above it as they are.
func TestMend(t *testing.T) {
	p := quickPlace(t)
	for _, name := range []string{"a/empty", "a/kept", "a/gone", "b/gone/too", "kind", "mode"} {
		p.write(name, name)
	}
	must(t, os.Link(p.at("a/gone"), p.at("link")))
	must(t, os.Link(p.at("a/kept"), p.at("link2")))
	root := p.scan().Root
	want := describe(t, p.dir)
	p.write("a/empty", "")
	p.write("a/kept", "newer")
	p.write("a/new", "new")
	must(t, os.Remove(p.at("a/gone")))
	must(t, os.Remove(p.at("link")))
	must(t, os.Remove(p.at("link2")))
	must(t, os.RemoveAll(p.at("b")))
	must(t, os.Remove(p.at("kind")))
	must(t, os.Symlink("/etc/passwd", p.at("kind")))
	must(t, os.Chmod(p.at("mode"), 0o600))
	got, err := Mend(t.Context(), p.store, root, p.dir, me(), func(path string, stored Entry, now rooted.Entry) bool {
		return now.Mode == 0 && now.Ino == 0 || now.Mode.IsRegular() && now.Size == 0 && stored.Size > 0
	})
	must(t, err)
	if list := []string{"a/empty", "a/gone", "b", "b/gone", "b/gone/too", "link", "link2"}; !slices.Equal(got, list) {
		t.Errorf("restored: %q", got)
	}
	now := describe(t, p.dir)
	for _, name := range []string{"a/empty", "a/gone", "b", "b/gone", "b/gone/too", "link"} {
		if now[name] != want[name] {
			t.Errorf("%s is %s, want %s", name, now[name], want[name])
		}
	}
	for name, content := range map[string]string{"a/kept": "newer", "a/new": "new", "link2": "a/kept"} {
		if data, err := os.ReadFile(p.at(name)); err != nil || string(data) != content {
			t.Errorf("%s holds %q, %v", name, data, err)
		}
	}
	if target, _ := os.Readlink(p.at("kind")); target != "/etc/passwd" {
		t.Errorf("kind was changed without being chosen")
	}
}

// TestLookup: entries are found by their path, in directories of any size, and nothing else.
func TestLookup(t *testing.T) {
	p := quickPlace(t)
	for i := range 3000 {
		p.write(fmt.Sprintf("many/f%04d", i), fmt.Sprint(i))
	}
	must(t, os.Symlink("many", p.at("l")))
	must(t, os.Mkdir(p.at("empty"), 0o700))
	p.scan()
	for _, i := range []int{0, 1, 1234, 2998, 2999} {
		if got := p.content(fmt.Sprintf("many/f%04d", i)); got != fmt.Sprint(i) {
			t.Errorf("f%04d holds %q", i, got)
		}
	}
	for path, kind := range map[string]holdfast.Kind{
		"many/f": holdfast.KindNotFound, "many/g": holdfast.KindNotFound, "l/f0001": holdfast.KindNotFound, "empty/x": holdfast.KindNotFound,
		"many/f0001/x": holdfast.KindNotFound, "": holdfast.KindInvalid, "../x": holdfast.KindInvalid, "/many": holdfast.KindInvalid,
		"many/": holdfast.KindInvalid, "many/../l": holdfast.KindInvalid,
	} {
		if _, err := Lookup(t.Context(), p.store, p.last, path); !holdfast.IsKind(err, kind) {
			t.Errorf("%q: %v, want %s", path, err, kind)
		}
	}
	for _, path := range []string{"many", "l", "."} {
		_, _, err := Read(t.Context(), p.store, p.last, path)
		wantKind(t, err, holdfast.KindConflict, "not a file")
	}
	n := 0
	for e, err := range List(t.Context(), p.store, p.last, "many") {
		must(t, err)
		if e.Name != fmt.Sprintf("f%04d", n) {
			t.Fatalf("%d is %s", n, e.Name)
		}
		n++
	}
	if n != 3000 {
		t.Errorf("%d entries", n)
	}
	for _, err := range List(t.Context(), p.store, p.last, "l") {
		wantKind(t, err, holdfast.KindConflict, "not a directory")
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, r, err := Read(ctx, p.store, p.last, "many/f0001")
	must(t, err)
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestDiff: the differences are those of the trees, in order, and equal parts are not read.
func TestDiff(t *testing.T) {
	p := quickPlace(t)
	for i := range 5000 {
		p.write(fmt.Sprintf("many/f%04d", i), "x")
	}
	p.write("same/f", "x")
	p.write("dir/sub/f", "x")
	p.write("mode", "x")
	a := p.scan().Root
	p.write("many/f2500", "y")
	p.write("many/f2500a", "y")
	must(t, os.Remove(p.at("many/f4999")))
	must(t, os.RemoveAll(p.at("dir")))
	p.write("dir", "x")
	p.write("new/sub/f", "x")
	must(t, os.Chmod(p.at("mode"), 0o700))
	b := p.scan().Root
	p.store.gets = 0
	var got []string
	for c, err := range Diff(t.Context(), p.store, a, b) {
		must(t, err)
		got = append(got, fmt.Sprintf("%d>%d %s", c.Old.Type, c.New.Type, c.Path))
	}
	want := []string{
		"2>2 .", "2>1 dir", "2>0 dir/sub", "1>0 dir/sub/f", "2>2 many", "1>1 many/f2500", "0>1 many/f2500a", "1>0 many/f4999",
		"1>1 mode", "0>2 new", "0>2 new/sub", "0>1 new/sub/f",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if p.store.gets > 24 {
		t.Errorf("%d blobs were read", p.store.gets)
	}
	for range Diff(t.Context(), p.store, b, a) {
		break
	}
	for c := range Diff(t.Context(), p.store, a, a) {
		t.Errorf("a tree differs from itself in %s", c.Path)
	}
	p.store.bad = a
	for _, err := range Diff(t.Context(), p.store, a, b) {
		wantKind(t, err, holdfast.KindNotFound, "no blob")
	}
}

// TestBlobs: the blobs of a tree are all that a restore needs, and what was visited once can be left out.
func TestBlobs(t *testing.T) {
	p := quickPlace(t)
	for i := range 2000 {
		p.write(fmt.Sprintf("many/f%04d", i), fmt.Sprint(i))
	}
	p.write("large", strings.Repeat("0123456789abcde", 100_000))
	a := p.scan().Root
	p.write("many/f0000", "other")
	b := p.scan().Root
	seen := map[pack.ID]bool{}
	visited := 0
	visit := func(_ pack.Kind, id pack.ID) bool {
		visited++
		was := seen[id]
		seen[id] = true
		return !was
	}
	must(t, Blobs(t.Context(), p.store, a, visit))
	first := visited
	must(t, Blobs(t.Context(), p.store, b, visit))
	if more := visited - first; more > 300 {
		t.Errorf("%d blobs were visited again", more)
	}
	for id := range p.store.blobs {
		if !seen[id] {
			t.Errorf("blob %s is stored and not visited", id)
		}
	}
	kept := newStore()
	for id := range seen {
		kept.blobs[id] = p.store.blobs[id]
	}
	to := elsewhere(t)
	must(t, Restore(t.Context(), kept, b, to, me()))
	sameTree(t, describe(t, to), describe(t, p.dir))
}
