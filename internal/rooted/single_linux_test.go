package rooted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// TestSingleEntries: Unlink, Rmdir, Move, Add, Exchange, OpenFile and Names act on the one entry that they are given, and on no other kind of
// entry.
func TestSingleEntries(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"full", "empty", "to"} {
		check(t, os.Mkdir(filepath.Join(top, dir), 0o755))
	}
	check(t, os.WriteFile(filepath.Join(top, "full", "a"), []byte("a"), 0o600))
	check(t, os.WriteFile(filepath.Join(top, "b"), []byte("bb"), 0o600))
	check(t, os.Symlink("b", filepath.Join(top, "link")))
	check(t, unix.Mkfifo(filepath.Join(top, "fifo"), 0o600))
	d, err := OpenTree(top)
	check(t, err)
	defer d.Close()
	kind := func(what string, err error, want holdfast.Kind) {
		t.Helper()
		if !holdfast.IsKind(err, want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	kind("unlink a directory", Unlink(d, "full"), holdfast.KindConflict)
	kind("unlink a path", Unlink(d, "full/a"), holdfast.KindInvalid)
	check(t, Unlink(d, "none"))
	for name, want := range map[string]bool{"full": false, "b": false, "link": false, "empty": true, "none": true} {
		gone, err := Rmdir(d, name)
		if check(t, err); gone != want {
			t.Errorf("rmdir %s: %v", name, gone)
		}
	}
	for _, name := range []string{"full", "link", "fifo"} {
		_, _, err := OpenFile(d, name)
		kind("open "+name, err, holdfast.KindConflict)
	}
	h, e, err := OpenFile(d, "b")
	if check(t, err); e.Size != 2 || e.Name != "b" {
		t.Errorf("b is %+v", e)
	}
	h.Close()
	names, err := Names(d, "full", 1)
	if check(t, err); !slices.Equal(names, []string{"a"}) {
		t.Errorf("names %q", names)
	}
	_, err = Names(d, "full", 0)
	kind("too many names", err, holdfast.KindTooLarge)
	_, err = Names(d, "link", 9)
	kind("names of a link", err, holdfast.KindConflict)
	to, err := d.Below("to")
	check(t, err)
	defer to.Close()
	check(t, Move(d, "b", to, "c"))
	kind("move what is not there", Move(d, "b", to, "c"), holdfast.KindNotFound)
	kind("add over a directory", Add(d, "link", d, "full"), holdfast.KindConflict)
	if err := Add(d, "link", to, "c"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("add over a file: %v", err)
	}
	check(t, Add(d, "link", to, "l"))
	kind("add what is not there", Add(d, "link", to, "m"), holdfast.KindNotFound)
	check(t, Exchange(to, "l", d, "full"))
	kind("exchange with nothing", Exchange(to, "l", d, "none"), holdfast.KindNotFound)
	if target, err := d.Readlink("full"); err != nil || target != "b" {
		t.Errorf("after an exchange: %q, %v", target, err)
	}
	check(t, Exchange(to, "l", d, "full"))
	check(t, Add(to, "l", d, "link"))
	kind("exchange paths", Exchange(d, "full/a", d, "link"), holdfast.KindInvalid)
	check(t, Unlink(d, "link"))
	left, err := os.ReadDir(top)
	check(t, err)
	if len(left) != 3 {
		t.Errorf("left: %v", left)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
