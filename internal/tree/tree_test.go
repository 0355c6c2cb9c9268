package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// listing describes a tree: type, mode, content or target of each entry, by name.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		must(t, err)
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			must(t, err)
			out[rel] = "-> " + target
		case info.IsDir():
			out[rel] = info.Mode().String()
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			must(t, err)
			out[rel] = info.Mode().String() + " " + info.ModTime().UTC().Format(time.DateTime) + " " + string(data)
		default:
			out[rel] = info.Mode().String()
		}
		return nil
	}))
	return out
}

// sample makes a tree with all that goes along.
func sample(t testing.TB, dir string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "src/deep/er"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	files := map[string]string{
		"README": "read me\n", "src/main.go": "package main\n", "src/deep/er/x": strings.Repeat("long ", 100_000),
		"src/odd \n name \xff": "odd", "zero": "", ".hidden": "h",
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(data), 0o644))
		must(t, os.Chtimes(path, time.Time{}, time.Unix(1_600_000_000+int64(len(data)), 0)))
	}
	must(t, os.Chmod(filepath.Join(dir, "README"), 0o755))
	must(t, os.Chmod(filepath.Join(dir, "zero"), 0o400))
	must(t, os.Symlink("src/main.go", filepath.Join(dir, "link")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "src/broken")))
	must(t, os.Link(filepath.Join(dir, "src/main.go"), filepath.Join(dir, "src/again.go")))
	must(t, os.Mkdir(filepath.Join(dir, "locked"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "locked/in"), []byte("in"), 0o600))
	must(t, os.Chmod(filepath.Join(dir, "locked"), 0o555))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "locked"), 0o755) })
}

func pack(t testing.TB, dir, name string) ([]byte, holdfast.Copied) {
	t.Helper()
	var b bytes.Buffer
	sum, err := Pack(openRoot(t, dir), name, &b, Options{})
	must(t, err)
	return b.Bytes(), sum
}

// unpack unpacks into a directory, and makes sure that nothing stays beside the target.
func unpack(t testing.TB, dir string, to Target, data []byte, opt Options) (holdfast.Copied, error) {
	t.Helper()
	sum, err := Unpack(openRoot(t, dir), to, bytes.NewReader(data), opt)
	names, rerr := filepath.Glob(filepath.Join(dir, ".holdfast-*"))
	must(t, rerr)
	if len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
	return sum, err
}

// TestCopyIsTheSame: what is packed and unpacked is the same tree, and the same as tar makes.
//
// FH-16, FH-54.
func TestCopyIsTheSame(t *testing.T) {
	from, to, with := t.TempDir(), t.TempDir(), t.TempDir()
	sample(t, from)
	data, sum := pack(t, from, ".")
	want := holdfast.Copied{Files: 7, Dirs: 6, Links: 4, Bytes: 500_000 + 8 + 13 + 3 + 1 + 2}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Error(diff)
	}
	got, err := unpack(t, to, Target{Name: "copy"}, data, Options{})
	must(t, err)
	want.LinksOut = 1
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "copy/locked"), 0o755) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(listing(t, from), listing(t, filepath.Join(to, "copy"))); diff != "" {
		t.Error(diff)
	}
	a, _ := os.Stat(filepath.Join(to, "copy/src/main.go"))
	b, _ := os.Stat(filepath.Join(to, "copy/src/again.go"))
	if !os.SameFile(a, b) {
		t.Error("the hard link became a second file")
	}
	tarx := exec.Command("tar", "xp", "-C", with)
	tarx.Stdin = bytes.NewReader(data)
	out, err := tarx.CombinedOutput()
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(with, "locked"), 0o755) })
	if err != nil || len(out) > 0 {
		t.Errorf("tar x: %v %s", err, out)
	}
	if diff := cmp.Diff(listing(t, from), listing(t, with)); diff != "" {
		t.Error(diff)
	}
}

// TestUnpackTakesWhatTarMakes: an archive of GNU tar is taken, with the directory as its
// only top entry and without.
//
// FH-16.
func TestUnpackTakesWhatTarMakes(t *testing.T) {
	from := t.TempDir()
	sample(t, from)
	for _, args := range [][]string{{"c", "."}, {"c", "--format=pax", "."}, {"c", "--format=gnu", "src", "README"}} {
		cmd := exec.Command("tar", args...)
		cmd.Dir = from
		data, err := cmd.Output()
		must(t, err)
		to := t.TempDir()
		if _, err := unpack(t, to, Target{}, data, Options{}); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "locked"), 0o755) })
		want, got := listing(t, filepath.Join(from, "src")), listing(t, filepath.Join(to, "src"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: %s", args, diff)
		}
	}
}

// TestCopyOfOneFile: a file becomes the name that is given, replaces one, and is refused in
// the place of a directory.
func TestCopyOfOneFile(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	sample(t, from)
	data, _ := pack(t, filepath.Join(from, "src"), "main.go")
	for range 2 {
		if _, err := unpack(t, to, Target{Name: "x.go", File: true}, data, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := listing(t, to)["x.go"]; !strings.HasSuffix(got, "package main\n") {
		t.Errorf("x.go is %q", got)
	}
	must(t, os.Mkdir(filepath.Join(to, "dir"), 0o755))
	if _, err := unpack(t, to, Target{Name: "dir", File: true}, data, Options{}); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a file in the place of a directory: %v", err)
	}
	whole, _ := pack(t, from, ".")
	if _, err := unpack(t, to, Target{Name: "y", File: true}, whole, Options{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a tree as a single file: %v", err)
	}
	if _, err := unpack(t, to, Target{Name: "x.go"}, whole, Options{}); !holdfast.IsKind(err, holdfast.KindConflict) {
		t.Errorf("a tree in the place of a file: %v", err)
	}
}

// TestMergeIsCheckedFirst: a merge replaces files, keeps the others, and moves nothing if
// one entry is in the way.
func TestMergeIsCheckedFirst(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	sample(t, from)
	must(t, os.MkdirAll(filepath.Join(to, "src/mine"), 0o755))
	must(t, os.WriteFile(filepath.Join(to, "README"), []byte("old"), 0o600))
	data, _ := pack(t, from, ".")
	must(t, os.WriteFile(filepath.Join(to, "empty"), nil, 0o600))
	before := listing(t, to)
	if _, err := unpack(t, to, Target{}, data, Options{}); !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "empty") {
		t.Errorf("a file in the place of a directory: %v", err)
	}
	if diff := cmp.Diff(before, listing(t, to)); diff != "" {
		t.Errorf("a merge that was refused changed something: %s", diff)
	}
	must(t, os.Remove(filepath.Join(to, "empty")))
	_, err := unpack(t, to, Target{}, data, Options{})
	must(t, err)
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "locked"), 0o755) })
	want := listing(t, from)
	want["src/mine"] = "drwxr-xr-x"
	want["."] = listing(t, to)["."]
	if diff := cmp.Diff(want, listing(t, to)); diff != "" {
		t.Error(diff)
	}
}

type entry struct {
	tar.Header
	data string
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.Size = int64(len(e.data))
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, e.data)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func file(name, data string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name}, data}
}

func link(kind byte, name, to string) entry {
	return entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to}}
}

// TestHostileArchivesAreRefused: whatever an archive holds, nothing outside of the target is
// touched, and an archive that is refused changes nothing at all.
//
// FH-19.
func TestHostileArchivesAreRefused(t *testing.T) {
	dir := entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "d/"}}
	cases := map[string][]entry{
		"absolute":            {file("/etc/evil", "x")},
		"upwards":             {file("../evil", "x")},
		"upwards inside":      {file("d/../../evil", "x")},
		"upwards hidden":      {dir, file("d/./../../evil", "x")},
		"through a link":      {link(tar.TypeSymlink, "l", ".."), file("l/evil", "x")},
		"through a link out":  {link(tar.TypeSymlink, "l", "/tmp"), file("l/evil", "x")},
		"through two links":   {link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "b", ".."), file("a/evil", "x")},
		"over a link":         {link(tar.TypeSymlink, "l", "../victim"), file("l", "x")},
		"directory over link": {link(tar.TypeSymlink, "l", ".."), {Header: tar.Header{Typeflag: tar.TypeDir, Name: "l"}}},
		"hard link out":       {link(tar.TypeLink, "h", "../victim")},
		"hard link absolute":  {link(tar.TypeLink, "h", "/etc/passwd")},
		"hard link to link":   {link(tar.TypeSymlink, "l", "../victim"), link(tar.TypeLink, "h", "l")},
		"hard link through":   {link(tar.TypeSymlink, "l", ".."), link(tar.TypeLink, "h", "l/victim")},
		"hard link to none":   {link(tar.TypeLink, "h", "nothing")},
		"hard link to dir":    {dir, link(tar.TypeLink, "h", "d")},
		"twice":               {file("a", "1"), file("a", "2")},
		"file then dir":       {file("a", "1"), {Header: tar.Header{Typeflag: tar.TypeDir, Name: "a"}}},
		"file as dir":         {file("a", "1"), file("a/b", "2")},
		"device":              {{Header: tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}}},
		"block device":        {{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}}},
		"fifo":                {{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "f"}}},
		"long name":           {file(strings.Repeat("n", 300), "x")},
		"deep":                {file(strings.Repeat("d/", 600)+"x", "x")},
		"the directory":       {file(".", "x")},
		"empty":               {},
		"many":                slices.Repeat([]entry{dir}, 30),
		"large":               {file("big", strings.Repeat("x", 5000))},
	}
	for name, entries := range cases {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			must(t, os.WriteFile(filepath.Join(top, "victim"), []byte("safe"), 0o644))
			to := filepath.Join(top, "to")
			must(t, os.Mkdir(to, 0o755))
			before := listing(t, top)
			// A file before the bad entry shows that nothing of the archive stays.
			data := archive(t, append([]entry{file("good", "good")}, entries...)...)
			if len(entries) == 0 {
				data = archive(t)
			}
			_, err := unpack(t, to, Target{}, data, Options{MaxEntries: 20, MaxBytes: 4096})
			if !holdfast.IsKind(err, holdfast.KindInvalid) && !holdfast.IsKind(err, holdfast.KindTooLarge) {
				t.Errorf("refused with %v", err)
			}
			if diff := cmp.Diff(before, listing(t, top)); diff != "" {
				t.Errorf("it changed something: %s", diff)
			}
		})
	}
}

// TestCutArchivesChangeNothing: an archive cut at any block, or whose stream breaks, leaves
// nothing.
//
// FH-19.
func TestCutArchivesChangeNothing(t *testing.T) {
	from := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(from, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(from, "a/b/c"), bytes.Repeat([]byte("x"), 3000), 0o644))
	data, _ := pack(t, from, ".")
	to := t.TempDir()
	before := listing(t, to)
	broken := errors.New("the wire broke")
	for n := 0; n <= len(data); n += 256 {
		_, err := Unpack(openRoot(t, to), Target{Name: "x"}, io.MultiReader(bytes.NewReader(data[:n]), iotestErr{broken}), Options{})
		if n <= len(data)-1024 && !errors.Is(err, broken) || err == nil {
			t.Errorf("%d bytes and an error: %v", n, err)
		}
		if n <= len(data)-1024 {
			if _, err := unpack(t, to, Target{Name: "x"}, data[:n], Options{}); err == nil {
				t.Errorf("%d bytes of %d were taken", n, len(data))
			}
		}
	}
	if diff := cmp.Diff(before, listing(t, to)); diff != "" {
		t.Error(diff)
	}
	if _, err := unpack(t, to, Target{Name: "x"}, append(data, make([]byte, 2<<20)...), Options{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("an archive with 2 MiB behind it: %v", err)
	}
	if _, err := unpack(t, to, Target{Name: "x"}, bytes.Repeat([]byte("no tar"), 1000), Options{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("something else than tar: %v", err)
	}
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

// TestPackSaysWhatItLeavesOut: special files are skipped, what changes while it is read is
// named, the record travels in the archive, and nothing blocks.
//
// FH-54.
func TestPackSaysWhatItLeavesOut(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(from, "fifo"), 0o644))
	grows, shrinks := filepath.Join(from, "grows"), filepath.Join(from, "shrinks")
	for _, name := range []string{grows, shrinks} {
		must(t, os.WriteFile(name, bytes.Repeat([]byte("x"), 1<<20), 0o644))
	}
	// The writer is called while each of the files is being read.
	done := false
	w := writerFunc(func(p []byte) (int, error) {
		if !done {
			done = true
			f, err := os.OpenFile(grows, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			defer f.Close()
			_, err = f.WriteString("more")
			must(t, err)
			must(t, os.Truncate(shrinks, 1000))
		}
		return len(p), nil
	})
	var b bytes.Buffer
	sum, err := Pack(openRoot(t, from), ".", io.MultiWriter(&b, w), Options{})
	must(t, err)
	if !slices.Equal(sum.Skipped, []string{"fifo: a named pipe"}) {
		t.Errorf("skipped %q", sum.Skipped)
	}
	if len(sum.Incomplete) == 0 || !strings.Contains(strings.Join(sum.Incomplete, " "), "while it was read") {
		t.Errorf("incomplete %q", sum.Incomplete)
	}
	got, err := unpack(t, to, Target{Name: "x"}, b.Bytes(), Options{})
	must(t, err)
	if diff := cmp.Diff(sum.Incomplete, got.Incomplete); diff != "" {
		t.Error(diff)
	}
	if _, err := Pack(openRoot(t, from), "fifo", io.Discard, Options{}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a named pipe alone: %v", err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStaleStagingIsRemoved: what an earlier life left half unpacked goes; another copy of
// this life, and what only looks alike, stays.
func TestStaleStagingIsRemoved(t *testing.T) {
	to := t.TempDir()
	for _, name := range []string{".holdfast-old1-0123456789abcdef.tmp", ".holdfast-now1-0123456789abcdef.tmp", ".holdfast-0123456789abcdef.tmp", ".holdfast-x.tmp"} {
		must(t, os.MkdirAll(filepath.Join(to, name, "x"), 0o755))
	}
	_, err := Unpack(openRoot(t, to), Target{}, bytes.NewReader(archive(t, file("a", "b"))), Options{Life: "now1"})
	must(t, err)
	names, err := filepath.Glob(filepath.Join(to, ".holdfast-*"))
	must(t, err)
	if len(names) != 3 || slices.Contains(names, filepath.Join(to, ".holdfast-old1-0123456789abcdef.tmp")) {
		t.Errorf("left: %q", names)
	}
}

// FuzzUnpack: no archive reaches beyond its target or leaves a part of itself.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, file("a", "b"), link(tar.TypeSymlink, "l", ".."), file("l/x", "y")))
	f.Add(archive(f, file("a", "b"), link(tar.TypeLink, "h", "a")))
	f.Add(archive(f, entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./"}}, file("d/e/f", "g")))
	f.Fuzz(func(t *testing.T, data []byte) {
		top := t.TempDir()
		to := filepath.Join(top, "to")
		must(t, os.Mkdir(to, 0o755))
		must(t, os.WriteFile(filepath.Join(top, "victim"), []byte("safe"), 0o644))
		_, err := unpack(t, to, Target{Name: "x"}, data, Options{MaxEntries: 100, MaxBytes: 1 << 20})
		entries, rerr := os.ReadDir(to)
		must(t, rerr)
		if err != nil && len(entries) > 0 {
			t.Errorf("%v, but %d entries are there", err, len(entries))
		}
		around, rerr := os.ReadDir(top)
		must(t, rerr)
		safe, rerr := os.ReadFile(filepath.Join(top, "victim"))
		must(t, rerr)
		if len(around) != 2 || string(safe) != "safe" {
			t.Errorf("outside: %v %q", around, safe)
		}
	})
}

// TestMergeKeepsModesOfDirectories: a directory that exists has its own mode after a merge.
func TestMergeKeepsModesOfDirectories(t *testing.T) {
	to := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"locked": 0o750, "open": 0o711} {
		must(t, os.Mkdir(filepath.Join(to, name), mode))
	}
	dir := func(name string, mode int64) entry {
		return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}}
	}
	data := archive(t, dir("locked/", 0o555), dir("open/", 0o777), dir("open/new/", 0o500), file("open/f", "x"))
	_, err := unpack(t, to, Target{}, data, Options{})
	must(t, err)
	got := listing(t, to)
	if got["locked"] != "drwxr-x---" || got["open"] != "drwx--x--x" || got["open/new"] != "dr-x------" {
		t.Errorf("%q", got)
	}
}

// TestNamesOfAMergeAreBounded: a directory with more names than may be held in memory is refused.
func TestNamesOfAMergeAreBounded(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.WriteFile(filepath.Join(dir, strings.Repeat(name, 200)), nil, 0o600))
	}
	names, left, err := readNames(openRoot(t, dir), ".", 1000)
	if err != nil || len(names) != 3 || left != 1000-3*216 {
		t.Errorf("%d names, %d bytes left, %v", len(names), left, err)
	}
	if _, _, err := readNames(openRoot(t, dir), ".", 3*216-1); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Error(err)
	}
}
