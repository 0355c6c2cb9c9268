package files

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestEdit(t *testing.T) {
	for _, c := range []struct {
		name, data, old, new string
		all                  bool
		want                 string
		n                    int
	}{
		{"once", "a b c\n", "b", "X", false, "a X c\n", 1},
		{"no final newline", "a\nb", "b", "c", false, "a\nc", 1},
		{"all", "x x x", "x", "yy", true, "yy yy yy", 3},
		{"all of one", "abc", "b", "", true, "ac", 1},
		{"crlf", "a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", false, "x\r\ny\r\nz\r\nc\r\n", 1},
		{"crlf given", "a\r\nb\r\n", "a\r\nb", "x\r\ny", false, "x\r\ny\r\n", 1},
		{"crlf kept by a one-line old", "a\r\nb\r\n", "b", "b\nc", false, "a\r\nb\r\nc\r\n", 1},
		{"mixed stays mixed", "a\r\nb\nc", "b\nc", "d\ne", false, "a\r\nd\ne", 1},
		{"bytes that are not UTF-8 stay", "caf\xe9 old", "old", "new", false, "caf\xe9 new", 1},
		{"whole file", "a", "a", "", false, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			must(t, os.Chmod(b.put(t, "f", c.data), 0o755))
			ans, err := b.Edit(wire.EditRequest{Path: "f", Old: c.old, New: c.new, All: c.all})
			must(t, err)
			if got := b.get(t, "f"); got != c.want || ans.Replaced != c.n {
				t.Errorf("got %q (%d replaced), want %q (%d)", got, ans.Replaced, c.want, c.n)
			}
			if info, _ := os.Stat(b.path("f")); info.Mode().Perm() != 0o755 {
				t.Errorf("mode %v", info.Mode())
			}
			b.clean(t)
		})
	}
}

func TestEditRefuses(t *testing.T) {
	for _, c := range []struct {
		name, data, old, new string
		kind                 holdfast.Kind
		part                 string
	}{
		{"missing", "abc", "x", "y", holdfast.KindInvalid, "(0 occurrences)"},
		{"twice", "x\nx\n", "x", "y", holdfast.KindInvalid, "occurs 2 times"},
		{"overlapping", "aaa", "aa", "b", holdfast.KindInvalid, "occurs 2 times"},
		{"often", strings.Repeat("x ", 500), "x", "y", holdfast.KindInvalid, "at least 100 times"},
		{"same", "abc", "b", "b", holdfast.KindInvalid, "the same"},
		{"empty", "abc", "", "b", holdfast.KindInvalid, "empty"},
		{"binary", "a\x00b", "a", "b", holdfast.KindInvalid, "binary"},
		{"line ends only", "a\r\nb\r\n", "a\nb", "a\r\nb", holdfast.KindInvalid, "line ends only"},
		{"too large", strings.Repeat("x", maxEdit+1), "x", "y", holdfast.KindTooLarge, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			b.put(t, "f", c.data)
			_, err := b.Edit(wire.EditRequest{Path: "f", Old: c.old, New: c.new})
			wantKind(t, err, c.kind, c.part)
			if b.get(t, "f") != c.data {
				t.Error("a refused edit changed the file")
			}
			b.clean(t)
		})
	}
	b := newBox(t)
	_, err := b.Edit(wire.EditRequest{Path: "none", Old: "a", New: "b"})
	wantKind(t, err, holdfast.KindNotFound, `"none"`)
	b.put(t, "f", strings.Repeat("x", 1000))
	_, err = b.Edit(wire.EditRequest{Path: "f", Old: "x", New: strings.Repeat("y", 20_000), All: true})
	wantKind(t, err, holdfast.KindTooLarge, "would have")
}

func TestEditThroughSymlink(t *testing.T) {
	b := newBox(t)
	b.put(t, "real", "old")
	must(t, os.Symlink("real", b.path("link")))
	_, err := b.Edit(wire.EditRequest{Path: "link", Old: "old", New: "new"})
	must(t, err)
	if target, err := os.Readlink(b.path("link")); err != nil || target != "real" || b.get(t, "real") != "new" {
		t.Errorf("link %q (%v), target %q", target, err, b.get(t, "real"))
	}
}

// TestEditNoticesAChange: a write between the read and the rename is not lost.
func TestEditNoticesAChange(t *testing.T) {
	b := newBox(t)
	b.put(t, "f", "old text")
	// The name of the temporary file is drawn after the read and before the rename.
	b.FS = New(Config{Workspace: b.ws, Home: b.home, Rand: readerFunc(func(p []byte) (int, error) {
		b.put(t, "f", "another's text")
		return len(p), nil
	})})
	_, err := b.Edit(wire.EditRequest{Path: "f", Old: "old", New: "new"})
	wantKind(t, err, holdfast.KindConflict, "changed while")
	if got := b.get(t, "f"); got != "another's text" {
		t.Errorf("content %q", got)
	}
	b.clean(t)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestEditSnippet(t *testing.T) {
	b := newBox(t)
	b.put(t, "f", "l1\nl2\nl3\nl4\nl5\nl6\nl7\nl8\nl9\n")
	ans, err := b.Edit(wire.EditRequest{Path: "f", Old: "l5", New: "n5\nn6"})
	must(t, err)
	want := "     2\tl2\n     3\tl3\n     4\tl4\n     5\tn5\n     6\tn6\n     7\tl6\n     8\tl7\n     9\tl8"
	if ans.Snippet != want {
		t.Errorf("snippet\n%s\nwant\n%s", ans.Snippet, want)
	}
	b.put(t, "g", strings.Repeat("x", 5000)+"\xff\nold")
	ans, err = b.Edit(wire.EditRequest{Path: "g", Old: "old", New: strings.Repeat("n\n", 100)})
	must(t, err)
	if n := strings.Count(ans.Snippet, "\n"); n >= snippetLines || len(ans.Snippet) > 1000 {
		t.Errorf("snippet of %d lines, %d bytes", n, len(ans.Snippet))
	}
}

func FuzzEdit(f *testing.F) {
	f.Add("a b c", "b", "x", false)
	f.Add("a\r\nb\r\n", "a\nb", "c\nd", false)
	f.Add("aaa", "aa", "b", true)
	f.Add("a\r\nb\nc", "\n", "\r\n", true)
	f.Fuzz(func(t *testing.T, data, old, new string, all bool) {
		e, err := edit("edit", wire.EditRequest{Path: "f", Old: old, New: new, All: all}, []byte(data))
		crlf := allCRLF([]byte(data))
		if err != nil {
			if !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Fatalf("kind of %v", err)
			}
			plain := !crlf && old != "" && old != new && !strings.Contains(data, "\x00")
			if n := strings.Count(data, old); plain && (n == 1 && !all && occurrences([]byte(data), []byte(old)) == 1 || n > 0 && all) {
				t.Fatalf("a good edit was refused: %v", err)
			}
			return
		}
		snippet(e.data, e.first, e.width)
		if crlf {
			if bytes.Contains(e.data, newline) && !allCRLF(e.data) && !strings.Contains(old+new, "\r") {
				t.Fatalf("%q became %q: its line ends are mixed now", data, e.data)
			}
			return
		}
		n := 1
		if all {
			n = -1
		}
		if want := strings.Replace(data, old, new, n); string(e.data) != want {
			t.Fatalf("got %q, want %q", e.data, want)
		}
	})
}

// TestEditsOfOneFileAreMadeOneAfterTheOther: two edits of different words at the same moment both
// succeed, and of two edits of one word only one does.
func TestEditsOfOneFileAreMadeOneAfterTheOther(t *testing.T) {
	b := newBox(t)
	scoped := b.Within(wire.Scope{}) // requests with a scope have an FS of their own
	rest := strings.Repeat("rest\n", 100_000)
	for range 20 {
		b.put(t, "f", "one two\n"+rest)
		both := func(second string) (errs [2]error) {
			var wg sync.WaitGroup
			wg.Go(func() { _, errs[0] = b.Edit(wire.EditRequest{Path: "f", Old: "one", New: "1"}) })
			wg.Go(func() { _, errs[1] = scoped.Edit(wire.EditRequest{Path: "f", Old: second, New: "2"}) })
			wg.Wait()
			return errs
		}
		if errs := both("two"); errs[0] != nil || errs[1] != nil {
			t.Fatal(errs)
		}
		if got := b.get(t, "f"); got != "1 2\n"+rest {
			t.Fatalf("%.20q", got)
		}
		b.put(t, "f", "one two\n"+rest)
		if errs := both("one"); (errs[0] == nil) == (errs[1] == nil) {
			t.Fatal(errs)
		}
	}
}

// TestASlowWriteHoldsUpNoEdit: an edit does not wait for the data of a write of the same file.
func TestASlowWriteHoldsUpNoEdit(t *testing.T) {
	b := newBox(t)
	b.put(t, "f", "one\n")
	data, more := io.Pipe()
	written := make(chan error)
	go func() {
		_, err := b.Write(wire.WriteRequest{Path: "f"}, data)
		written <- err
	}()
	_, err := more.Write([]byte("whole")) // returns once the write reads its data
	must(t, err)
	_, err = b.Edit(wire.EditRequest{Path: "f", Old: "one", New: "1"})
	must(t, err)
	if got := b.get(t, "f"); got != "1\n" {
		t.Fatalf("after the edit: %q", got)
	}
	must(t, more.Close())
	must(t, <-written)
	if got := b.get(t, "f"); got != "whole" {
		t.Fatalf("after the write: %q", got)
	}
}
