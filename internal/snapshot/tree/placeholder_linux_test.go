package tree

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/boxd/mark"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// stored returns the paths of the tree that was stored last.
func (p *place) stored() string {
	p.t.Helper()
	var out []string
	for c, err := range Diff(p.t.Context(), p.store, pack.ID{}, p.last) {
		must(p.t, err)
		if c.Path != "." {
			out = append(out, c.Path)
		}
	}
	return strings.Join(out, " ")
}

// marked gives entries the modification time of a placeholder.
func (p *place) marked(names ...string) {
	p.t.Helper()
	for _, name := range names {
		must(p.t, unix.UtimesNanoAt(unix.AT_FDCWD, p.at(name), mark.Times(), unix.AT_SYMLINK_NOFOLLOW))
	}
}

// TestPlaceholdersAreLeftOut: a scan leaves out what boxd made for path rules, and nothing else that has the time of a
// placeholder: no content, no second name, no directory in which there is anything else.
func TestPlaceholdersAreLeftOut(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{"HEAD", "sub/deep", "used/deep", "plain", "linked"} {
		must(t, os.MkdirAll(p.at(dir), 0o755))
	}
	for _, name := range []string{".env", "a", "sub/deep/keep", "used/deep/keep", "two"} {
		p.write(name, "")
	}
	p.write("full", "x")
	p.write("used/deep/file", "x")
	must(t, os.Link(p.at("two"), p.at("twin")))
	must(t, os.Symlink("a", p.at("link")))
	must(t, os.Symlink("a", p.at("linked/link")))
	p.marked(".env", "HEAD", "sub/deep/keep", "sub/deep", "sub", "used/deep/keep", "used/deep", "used", "two", "full", "link", "linked/link", "linked")
	const real = "a full link linked linked/link plain twin two used used/deep used/deep/file"
	if r := p.scan(); p.stored() != real || r.SkippedCount != 0 || r.Files != 5 || r.Dirs != 5 {
		t.Errorf("stored: %s; want %s: %+v", p.stored(), real, r)
	}

	// What becomes a file is stored, although neither the directories above it nor their marks change.
	p.write(".env", "secret")
	p.marked(".env")
	p.write("sub/deep/more", "x")
	p.marked("sub/deep", "HEAD")
	p.write("HEAD/file", "x")
	p.scan()
	if want := ".env HEAD HEAD/file " + strings.Replace(real, "twin", "sub sub/deep sub/deep/more twin", 1); p.stored() != want {
		t.Errorf("with files in their places: %s; want %s", p.stored(), want)
	}

	for _, name := range []string{".env", "sub/deep/more", "HEAD/file"} {
		must(t, os.Remove(p.at(name)))
	}
	p.write(".env", "")
	p.marked(".env", "sub/deep", "HEAD")
	if p.scan(); p.stored() != real {
		t.Errorf("as placeholders again: %s; want %s", p.stored(), real)
	}
}

// TestPlaceholderBecomesAFile: a look at an unchanged tree finds a file that somebody writes where a placeholder is:
// nothing else in the tree changes with it.
func TestPlaceholderBecomesAFile(t *testing.T) {
	l := &looker{place: newPlace(t)}
	l.write("a", "x")
	l.write(".env", "")
	must(t, os.MkdirAll(l.at("sub/deep"), 0o755))
	l.marked(".env", "sub/deep", "sub")
	l.settle()
	for range 4 {
		if _, quick := l.look(); quick {
			t.Error("a look trusted its memo of a tree with a placeholder")
		}
	}
	l.write(".env", "secret")
	l.look()
	l.write("sub/deep/file", "x")
	if l.look(); !slices.Equal(strings.Fields(l.stored()), []string{".env", "a", "sub", "sub/deep", "sub/deep/file"}) {
		t.Errorf("stored: %s", l.stored())
	}
}
