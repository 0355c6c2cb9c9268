package rooted

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
)

var wide = Bounds{Entries: 100_000, Depth: 10_000}

// lines describes what a walk returns, an entry or an error a line.
func lines(w iter.Seq2[Entry, error]) (out []string) {
	for e, err := range w {
		switch {
		case err != nil && e.Name == "":
			out = append(out, fmt.Sprintf("end: %v", err))
		case err != nil:
			out = append(out, fmt.Sprintf("%q: %s", e.Path(), holdfast.KindOf(err)))
		default:
			out = append(out, fmt.Sprintf("%q %d %v %d %d %d %d %d %d %d %d", e.Path(), e.Depth, e.Mode, e.Size, e.Disk,
				e.Mtime.UnixNano(), e.Ino, e.Dev, e.Nlink, e.UID, e.GID))
		}
	}
	return out
}

// walkDir describes the same tree as the standard library sees it.
func walkDir(t interface{ Fatal(...any) }, dir string) (out []string) {
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		depth := 0
		if rel != "." {
			depth = strings.Count(rel, "/") + 1
		}
		st := info.Sys().(*syscall.Stat_t)
		//nolint:unconvert // the width differs between architectures
		out = append(out, fmt.Sprintf("%q %d %v %d %d %d %d %d %d %d %d", rel, depth, info.Mode(), info.Size(), st.Blocks*512,
			info.ModTime().UnixNano(), st.Ino, uint64(st.Dev), st.Nlink, st.Uid, st.Gid))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestWalkSeesWhatIsThere compares walks of random trees with filepath.WalkDir: names of any
// bytes, files of all kinds, in the same order.
func TestWalkSeesWhatIsThere(t *testing.T) {
	if !onLinux(t) {
		return
	}
	base, n := t.TempDir(), 0
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "A", "...", "..x", ".hidden", " ", "a b", "a\nb", "-", "*", "\xff\xfe", "ä", "a.", "a\\b", strings.Repeat("n", 255)}),
		rapid.StringMatching(`[ -.0-~]{1,20}`),
	).Filter(func(s string) bool { return s != "." && s != ".." })
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		dirs, files := []string{dir}, []string{}
		for range rapid.IntRange(0, 40).Draw(t, "entries") {
			at := filepath.Join(rapid.SampledFrom(dirs).Draw(t, "in"), "x")
			at = at[:len(at)-1] + name.Draw(t, "name")
			if len(at) > 3000 {
				continue
			}
			var err error
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1, 2:
				if err = os.Mkdir(at, fs.FileMode(rapid.SampledFrom([]int{0o755, 0o700, 0o777}).Draw(t, "mode"))); err == nil {
					dirs = append(dirs, at)
				}
			case 3:
				err = os.Symlink(rapid.SampledFrom([]string{"/etc", "..", "none", ".", "a"}).Draw(t, "to"), at)
			case 4:
				err = unix.Mkfifo(at, 0o600)
			case 5:
				err = unix.Mknod(at, unix.S_IFSOCK|0o600, 0)
			case 6:
				if len(files) > 0 {
					err = os.Link(rapid.SampledFrom(files).Draw(t, "of"), at)
				}
			default:
				var f *os.File
				if f, err = os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
					files = append(files, at)
					_, err = f.Write(make([]byte, rapid.IntRange(0, 9000).Draw(t, "size")))
					err = errors.Join(err, f.Close(), os.Chmod(at, rapid.SampledFrom([]fs.FileMode{0o644, 0o600 | fs.ModeSetuid, 0o755 | fs.ModeSticky, 0}).Draw(t, "perm")))
				}
			}
			if err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
		want := walkDir(t, dir)
		if got := lines(Walk(context.Background(), dir, wide)); !slices.Equal(got, want) {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		free := wide
		free.Unordered = true
		got := lines(Walk(context.Background(), dir, free))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("without order\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestWalkStamps: the stamp of an entry is that of the file that is read.
func TestWalkStamps(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("hello"), 0o644))
	for e, err := range Walk(t.Context(), dir, wide) {
		must(t, err)
		if e.Name != "f" {
			continue
		}
		_, st, err := Tree(dir).ReadFile(t.Context(), e.Path(), 10)
		must(t, err)
		if st != e.Stamp() {
			t.Errorf("walked %+v, read %+v", e.Stamp(), st)
		}
	}
}

// TestWalkBounds: a tree of exactly as many entries and levels as are allowed is whole, one
// more of either is an error.
func TestWalkBounds(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a/f"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "z"), nil, 0o644))
	for _, unordered := range []bool{false, true} {
		walk := func(entries, depth int) (paths []string, errs []string) {
			for e, err := range Walk(t.Context(), dir, Bounds{Entries: entries, Depth: depth, Unordered: unordered}) {
				if err == nil {
					paths = append(paths, e.Path())
				} else {
					errs = append(errs, fmt.Sprintf("%s %s", e.Name, holdfast.KindOf(err)))
				}
			}
			slices.Sort(paths)
			return paths, errs
		}
		all := []string{".", "a", "a/b", "a/b/c", "a/f", "z"}
		if paths, errs := walk(6, 4); !slices.Equal(paths, all) || errs != nil {
			t.Errorf("all of it: %q, %q", paths, errs)
		}
		for most := 1; most < 6; most++ {
			if paths, errs := walk(most, 4); len(paths) != most || !slices.Equal(errs, []string{" too_large"}) {
				t.Errorf("%d entries: %q, %q", most, paths, errs)
			}
		}
		if paths, errs := walk(6, 3); !slices.Equal(paths, []string{".", "a", "a/b", "a/f", "z"}) || !slices.Equal(errs, []string{"c too_large"}) {
			t.Errorf("three levels: %q, %q", paths, errs)
		}
		if paths, errs := walk(6, 1); !slices.Equal(paths, []string{".", "z"}) || !slices.Equal(errs, []string{"a too_large"}) {
			t.Errorf("one level: %q, %q", paths, errs)
		}
	}
	for _, b := range []Bounds{{}, {Entries: 1}, {Depth: 1}} {
		for e, err := range Walk(t.Context(), dir, b) {
			wantKind(t, err, holdfast.KindInvalid, "limits")
			if e.Name != "" {
				t.Errorf("walked %s without bounds", e.Name)
			}
		}
	}
}

// TestWalkOfLongNames: the names of the directories above an entry need memory up to a limit, and those of directories that
// the walk has left do not count.
func TestWalkOfLongNames(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b", "c"} {
		for i := range 10 {
			must(t, os.MkdirAll(filepath.Join(dir, d, fmt.Sprint(i)+strings.Repeat("x", 200)), 0o755))
		}
	}
	for _, unordered := range []bool{false, true} {
		for names, whole := range map[int]bool{3*40 + 10*240: true, 10 * 230: false, 2 * 33: false} {
			b := wide
			b.names, b.Unordered = names, unordered
			seen, ended := 0, error(nil)
			for e, err := range Walk(t.Context(), dir, b) {
				if seen++; err != nil {
					ended = err
				}
				if (e.Name == "") != (err != nil) {
					t.Errorf("%q, %v", e.Name, err)
				}
			}
			if whole && (seen != 34 || ended != nil) || !whole && !holdfast.IsKind(ended, holdfast.KindTooLarge) {
				t.Errorf("%d bytes: %d entries, %v", names, seen, ended)
			}
		}
	}
}

// TestWalkEnds: with its caller, with its context, and at once without a tree.
func TestWalkEnds(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "c"), 0o755))
	must(t, os.Symlink("a", filepath.Join(dir, "link")))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	before := descriptors(t)
	for e := range Walk(t.Context(), dir, wide) {
		if e.Path() == "a/b" {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	for e, err := range Walk(ctx, dir, wide) {
		if got = append(got, e.Name); e.Name == "a" {
			cancel()
		}
		if e.Name == "" && err != context.Canceled {
			t.Errorf("ended by %v", err)
		}
	}
	if !slices.Equal(got, []string{".", "a", ""}) {
		t.Errorf("cancelled at a: %q", got)
	}
	got = nil
	for e, err := range Walk(t.Context(), dir, wide) {
		must(t, err)
		if got = append(got, e.Path()); e.Name == "a" {
			e.Skip()
		}
	}
	if !slices.Equal(got, []string{".", "a", "c", "file", "link"}) {
		t.Errorf("without a: %q", got)
	}
	for name, kind := range map[string]holdfast.Kind{"none": holdfast.KindNotFound, "link": holdfast.KindConflict, "file": holdfast.KindConflict} {
		for e, err := range Walk(t.Context(), filepath.Join(dir, name), wide) {
			if e.Name != "" || !holdfast.IsKind(err, kind) {
				t.Errorf("%s: %q, %v", name, e.Name, err)
			}
		}
	}
	for _, name := range []string{"", "relative", "/"} {
		for _, err := range Walk(t.Context(), name, wide) {
			wantKind(t, err, holdfast.KindInvalid, "absolute path")
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before the walks, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

func onLinux(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat("/proc/self/fd")
	if err != nil {
		t.Log("walks are compared with descriptors on Linux only")
	}
	return err == nil
}

// BenchmarkWalk walks 10,000 files in 100 directories.
func BenchmarkWalk(b *testing.B) {
	dir := b.TempDir()
	for d := range 100 {
		at := filepath.Join(dir, fmt.Sprintf("directory%d", d))
		if err := os.Mkdir(at, 0o755); err != nil {
			b.Fatal(err)
		}
		for f := range 100 {
			if err := os.WriteFile(filepath.Join(at, fmt.Sprintf("some-file-%d.go", f)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, unordered := range []bool{false, true} {
		b.Run(fmt.Sprintf("unordered=%t", unordered), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range Walk(b.Context(), dir, Bounds{Entries: 20_000, Depth: 10, Unordered: unordered}) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != 10_101 {
					b.Fatalf("%d entries", n)
				}
			}
		})
	}
	b.Run("filepath.WalkDir", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if err == nil {
					_, err = d.Info()
				}
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
