package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// told are changes as "kind path", below the workspace.
func (b box) told(c wire.Changes) []string {
	var out []string
	for _, f := range c.Files {
		out = append(out, string(f.Kind)+" "+strings.TrimPrefix(f.Path, b.ws+"/"))
	}
	return out
}

// TestWatchTellsWhatDiffers: what was made, written, replaced, given other permissions,
// moved or removed is told, however it was disguised; what stayed, and .git, is not.
func TestWatchTellsWhatDiffers(t *testing.T) {
	b := newBox(t)
	for _, name := range []string{"same", "d/appended", "d/same-length", "replaced", "mode", "gone", "tree/a", "tree/b", ".git/index", "moved"} {
		b.put(t, name, "before")
	}
	must(t, os.Symlink("same", b.path("link")))
	must(t, os.Symlink("same", b.path("other-link")))
	since := b.Watch()
	stamped, err := os.Stat(b.path("d/same-length"))
	must(t, err)
	b.put(t, "d/appended", "before and after")
	// The times that a program can set are as they were.
	b.put(t, "d/same-length", "BEFORE")
	must(t, os.Chtimes(b.path("d/same-length"), stamped.ModTime(), stamped.ModTime()))
	b.put(t, "replacement", "before")
	must(t, os.Rename(b.path("replacement"), b.path("replaced")))
	must(t, os.Chmod(b.path("mode"), 0o755))
	must(t, os.Remove(b.path("gone")))
	must(t, os.Rename(b.path("tree"), b.path("wood")))
	must(t, os.Rename(b.path("moved"), b.path("d/moved")))
	must(t, os.Remove(b.path("link")))
	must(t, os.Symlink("gone", b.path("link")))
	must(t, os.Mkdir(b.path("empty"), 0o755))
	b.put(t, ".git/index", "after")
	b.put(t, "new \xff\nname", "")
	if _, err := os.ReadFile(b.path("same")); err != nil {
		t.Fatal(err)
	}
	got := since()
	want := []string{
		"changed d/appended", "created d/moved", "changed d/same-length", "removed gone", "changed link", "changed mode", "removed moved",
		"created new " + EncodeName("\xff") + "\nname", "changed replaced", "removed tree/a", "removed tree/b", "created wood/a", "created wood/b",
	}
	if said := b.told(got); !slices.Equal(said, want) || got.More != 0 || got.Unseen != "" {
		t.Errorf("told %q\nwant %q, %+v", said, want, got)
	}
	if got.Untold() != "" {
		t.Errorf("untold: %q", got.Untold())
	}
	if again := since(); len(again.Files) != len(want) {
		t.Errorf("asked again it says %q", b.told(again))
	}
}

// TestWatchAtOnce: a file that changed just before the listing, and again just after it,
// to the same length in the same place, is told.
func TestWatchAtOnce(t *testing.T) {
	b := newBox(t)
	for i := range 50 {
		b.put(t, "f", "one")
		since := b.Watch()
		b.put(t, "f", "two")
		if got := since(); len(got.Files) != 1 {
			t.Fatalf("round %d: %+v", i, got)
		}
	}
}

// TestWatchSaysWhatItDoesNotSee: beyond the bounds of a listing, or where it may not
// look, the answer names no file as made or removed, and says that there may be more.
func TestWatchSaysWhatItDoesNotSee(t *testing.T) {
	entries := func(b box) box {
		b.FS = New(Config{Workspace: b.ws, Home: b.home, MaxEntries: 20})
		return b
	}
	late := func(b box) box {
		now := time.Now()
		b.FS = New(Config{Workspace: b.ws, Home: b.home, Now: func() time.Time { now = now.Add(watchTime / 10); return now }})
		return b
	}
	for name, bound := range map[string]func(box) box{"entries": entries, "time": late} {
		t.Run(name, func(t *testing.T) {
			b := bound(newBox(t))
			b.put(t, "a", "before")
			b.put(t, "aa", "before")
			for i := range 30 {
				b.put(t, fmt.Sprintf("d%02d/f", i), "")
			}
			since := b.Watch()
			must(t, os.Remove(b.path("aa")))
			b.put(t, "ab", "")
			b.put(t, "a", "after")
			got := since()
			if said := b.told(got); slices.ContainsFunc(said, func(s string) bool { return s != "changed a" }) || !strings.Contains(got.Unseen, "more than 100000 entries") {
				t.Errorf("told %q, unseen %q", said, got.Unseen)
			}
			if !strings.HasPrefix(got.Untold(), "fileChanged hooks were not told of files that were not compared (the workspace has more") {
				t.Errorf("untold: %q", got.Untold())
			}
		})
	}
	t.Run("a directory that may not be read", func(t *testing.T) {
		b := newBox(t)
		if os.Geteuid() == 0 {
			t.Skip("SKIPPED LOUDLY: root can read every directory; an ordinary user runs this")
		}
		b.put(t, "closed/f", "")
		since := b.Watch()
		must(t, os.Chmod(b.path("closed"), 0))
		defer func() { _ = os.Chmod(b.path("closed"), 0o755) }()
		if got := since(); len(got.Files) != 0 || !strings.Contains(got.Unseen, "closed") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("no workspace", func(t *testing.T) {
		b := newBox(t)
		since := b.Watch()
		must(t, os.RemoveAll(b.ws))
		if got := since(); len(got.Files) != 0 || got.Unseen == "" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("many", func(t *testing.T) {
		b := newBox(t)
		since := b.Watch()
		for i := range wire.MaxChanges + 7 {
			b.put(t, fmt.Sprintf("f%03d", i), "")
		}
		got := since()
		if len(got.Files) != wire.MaxChanges || got.More != 7 || b.told(got)[0] != "created f000" {
			t.Errorf("%d files, %d more, %q", len(got.Files), got.More, b.told(got)[:1])
		}
		if got.Untold() != fmt.Sprintf("fileChanged hooks were not told of 7 changed files beyond the first %d", wire.MaxChanges) {
			t.Errorf("untold: %q", got.Untold())
		}
	})
}

// TestWatchDoesNotFollowLinks: a link to a directory outside, and a pipe, are not entered.
func TestWatchDoesNotFollowLinks(t *testing.T) {
	b := newBox(t)
	must(t, os.WriteFile(filepath.Join(b.home, "f"), nil, 0o644))
	must(t, os.Symlink(b.home, b.path("out")))
	must(t, os.Symlink("loop", b.path("loop")))
	must(t, syscall.Mkfifo(b.path("pipe"), 0o644))
	since := b.Watch()
	must(t, os.WriteFile(filepath.Join(b.home, "f"), []byte("other"), 0o644))
	if got := since(); len(got.Files) != 0 || got.Unseen != "" {
		t.Errorf("%+v", got)
	}
}
