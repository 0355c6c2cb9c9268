package rooted

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// TestOpenEntries: files, directories and links that a walk returns are read where the walk found them; FIFOs and
// devices are not opened.
func TestOpenEntries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "d/f"), []byte("content"), 0o644))
	must(t, os.Symlink("../..", filepath.Join(dir, "d/l")))
	must(t, unix.Mkfifo(filepath.Join(dir, "d/p"), 0o644))
	must(t, unix.Setxattr(filepath.Join(dir, "d/f"), "user.b", []byte("2"), 0))
	must(t, unix.Setxattr(filepath.Join(dir, "d/f"), "user.a", []byte(strings.Repeat("1", 2000)), 0))
	must(t, unix.Setxattr(filepath.Join(dir, "d"), "user.d", nil, 0))
	for e, err := range Walk(t.Context(), dir, wide) {
		must(t, err)
		switch e.Name {
		case "f":
			h, now, err := e.Open()
			must(t, err)
			if now.Stamp() != e.Stamp() {
				t.Errorf("stat %+v and %+v", now, e)
			}
			must(t, h.WriteBack())
			b := make([]byte, 10)
			if n, err := h.ReadAt(b, 3); !errors.Is(err, io.EOF) || string(b[:n]) != "tent" {
				t.Errorf("%q, %v", b[:n], err)
			}
			x, err := h.Xattrs()
			must(t, err)
			if want := []Xattr{{"user.a", strings.Repeat("1", 2000)}, {"user.b", "2"}}; !slices.Equal(x, want) {
				t.Errorf("%+v", x)
			}
			h.Close()
		case "d":
			h, now, err := e.Open()
			must(t, err)
			if x, err := h.Xattrs(); err != nil || now.Ino != e.Ino || len(x) != 1 {
				t.Errorf("%+v, %v", x, err)
			}
			h.Close()
		case "l":
			if to, err := e.Readlink(); err != nil || to != "../.." {
				t.Errorf("%q, %v", to, err)
			}
			_, _, err := e.Open()
			if err == nil {
				t.Error("a symlink was opened")
			}
		case "p":
			_, _, err := e.Open()
			wantKind(t, err, holdfast.KindConflict, "not a regular file")
		}
	}
}

// TestOpenEntriesAgainstRaces: a file that is swapped for a symlink after the walk returned it is not followed.
func TestOpenEntriesAgainstRaces(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "tree")
	must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "d/f"), []byte("inside"), 0o644))
	for e, err := range Walk(t.Context(), dir, wide) {
		must(t, err)
		if e.Name != "f" {
			continue
		}
		must(t, os.Remove(filepath.Join(dir, "d/f")))
		must(t, os.Symlink(filepath.Join(out, "secret"), filepath.Join(dir, "d/f")))
		if h, _, err := e.Open(); err == nil {
			h.Close()
			t.Error("a symlink was followed")
		}
		// The directory is swapped as well: the walk still holds the right one.
		must(t, os.Remove(filepath.Join(dir, "d/f")))
		must(t, os.WriteFile(filepath.Join(dir, "d/f"), []byte("inside"), 0o644))
		must(t, os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "moved")))
		must(t, os.Symlink(out, filepath.Join(dir, "d")))
		must(t, os.WriteFile(filepath.Join(out, "f"), []byte("outside"), 0o644))
		h, _, err := e.Open()
		must(t, err)
		b := make([]byte, 10)
		if n, _ := h.ReadAt(b, 0); string(b[:n]) != "inside" {
			t.Errorf("%q was read", b[:n])
		}
		h.Close()
		must(t, os.Remove(filepath.Join(out, "f")))
	}
	check()
}

// TestDirStaysInside: no entry is made, replaced or removed through a symlink, and no name leads out of its directory.
func TestDirStaysInside(t *testing.T) {
	base := t.TempDir()
	out, check := outside(t, base)
	dir := filepath.Join(base, "tree")
	d, err := MakeTree(dir)
	must(t, err)
	defer d.Close()
	_, err = MakeTree(dir)
	wantKind(t, err, holdfast.KindConflict, "exists")
	must(t, os.Symlink(out, filepath.Join(dir, "l")))
	must(t, os.Symlink(filepath.Join(out, "secret"), filepath.Join(dir, "lf")))
	_, err = d.Open("l")
	wantKind(t, err, holdfast.KindConflict, `"l"`)
	for _, rel := range []string{"l", "l/sub", "..", "a/../..", "/etc"} {
		if at, err := d.Below(rel); err == nil {
			at.Close()
			t.Errorf("%s was opened", rel)
		}
	}
	_, err = d.Create("lf")
	wantKind(t, err, holdfast.KindConflict, "exists")
	_, err = OpenTree(filepath.Join(dir, "l"))
	wantKind(t, err, holdfast.KindConflict, "not a directory")
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/x", "a\x00"} {
		_, create := d.Create(name)
		_, mkdir := d.Mkdir(name)
		_, open := d.Open(name)
		_, find := d.Find(name)
		for i, err := range []error{create, mkdir, open, find, d.Symlink("x", name, Attr{}), d.Link(d, "lf", name), d.Link(d, name, "x"), Move(d, "lf", d, name), Move(d, name, d, "x"), d.Remove(name)} {
			if !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Errorf("call %d with the name %q: %v", i, name, err)
			}
		}
	}
	h, err := d.Create("f")
	must(t, err)
	h.Close()
	must(t, Move(d, "f", d, "lf"))
	if st, err := d.Lstat("lf"); err != nil || !st.Mode.IsRegular() {
		t.Errorf("%+v, %v", st, err)
	}
	// The attributes of what an O_PATH descriptor found are its own, not those of a target.
	must(t, d.Symlink(filepath.Join(out, "secret"), "again", Attr{UID: os.Getuid(), GID: os.Getgid(), Mtime: 5}))
	must(t, d.Remove("again"))
	must(t, d.Remove("l"))
	must(t, d.Remove("none"))
	check()
}

// TestDirWrites: entries get the attributes that they are given, and directories go with their content.
func TestDirWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	d, err := MakeTree(dir)
	must(t, err)
	defer d.Close()
	sub, err := d.Mkdir("sub")
	must(t, err)
	defer sub.Close()
	f, err := sub.Create("f")
	must(t, err)
	_, err = f.WriteAt([]byte("content"), 1<<20)
	must(t, err)
	must(t, f.Truncate(3<<20))
	if at, err := f.NextData(0); err != nil || at == 0 || at > 1<<20 {
		t.Errorf("data at %d, %v", at, err)
	}
	if _, err := f.NextData(2 << 20); !errors.Is(err, io.EOF) {
		t.Errorf("behind the data: %v", err)
	}
	a := Attr{Mode: 0o4751, UID: os.Getuid(), GID: os.Getgid(), Mtime: 1_234_567_890_123_456_789, Xattrs: []Xattr{{"user.x", "1"}}}
	must(t, f.Set(a, true))
	f.Close()
	must(t, d.Link(sub, "f", "other"))
	h, err := d.Find("other")
	must(t, err)
	st, err := h.Stat()
	must(t, err)
	if st.Nlink != 2 || st.Size != 3<<20 || st.Mtime.UnixNano() != a.Mtime || st.Mode != 0o751|os.ModeSetuid {
		t.Errorf("%+v", st)
	}
	must(t, h.Set(Attr{Mode: 0, UID: a.UID, GID: a.GID, Mtime: 7, Xattrs: []Xattr{{"user.y", "2"}}}, false))
	h.Close()
	buf := make([]byte, 100)
	n, err := unix.Listxattr(filepath.Join(dir, "sub/f"), buf)
	must(t, err)
	if st, err := sub.Lstat("f"); err != nil || st.Mode != 0 || st.Mtime.UnixNano() != 7 || string(buf[:n]) != "user.y\x00" {
		t.Errorf("%+v, %v, %q", st, err, buf[:n])
	}
	long := strings.Repeat("n", 200)
	at, err := d.Mkdir(long)
	must(t, err)
	rel := long
	for range 30 {
		next, err := at.Mkdir(long)
		must(t, err)
		at.Close()
		at, rel = next, rel+"/"+long
	}
	must(t, at.Link(d, "other", "deep"))
	at.Close()
	below, err := d.Below(rel)
	must(t, err)
	must(t, sub.Link(below, "deep", "shallow"))
	below.Close()
	for _, name := range []string{"sub", "other", long} {
		must(t, d.Remove(name))
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%v is left, %v", list, err)
	}
	if _, err := d.Lstat("sub"); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("%v", err)
	}
	clock := filepath.Join(dir, "clock")
	first, err := Touch(clock)
	must(t, err)
	second, err := Touch(clock)
	must(t, err)
	if second.Before(first) || first.IsZero() {
		t.Errorf("%v, then %v", first, second)
	}
}
