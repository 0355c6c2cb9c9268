package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func (b box) write(t *testing.T, req wire.WriteRequest, content string) wire.WriteAnswer {
	t.Helper()
	ans, err := b.Write(req, strings.NewReader(content))
	must(t, err)
	b.clean(t)
	return ans
}

func TestWriteCreatesAndReplaces(t *testing.T) {
	b := newBox(t)
	if ans := b.write(t, wire.WriteRequest{Path: "f"}, "one"); !ans.Created || ans.Size != 3 {
		t.Errorf("create: %+v", ans)
	}
	if info, _ := os.Stat(b.path("f")); info.Mode().Perm() != 0o644 {
		t.Errorf("mode of a new file: %v", info.Mode())
	}
	must(t, os.Chmod(b.path("f"), 0o751))
	if ans := b.write(t, wire.WriteRequest{Path: "f", Mode: 0o600}, "longer"); ans.Created || ans.Size != 6 {
		t.Errorf("replace: %+v", ans)
	}
	if info, _ := os.Stat(b.path("f")); info.Mode().Perm() != 0o751 {
		t.Errorf("an existing file must keep its mode, has %v", info.Mode())
	}
	if got := b.get(t, "f"); got != "longer" {
		t.Errorf("content %q", got)
	}
	b.write(t, wire.WriteRequest{Path: "x", Mode: 0o4755}, "")
	if info, _ := os.Stat(b.path("x")); info.Mode() != 0o755 {
		t.Errorf("only permission bits may be set, mode is %v", info.Mode())
	}
}

func TestWriteParents(t *testing.T) {
	b := newBox(t)
	_, err := b.Write(wire.WriteRequest{Path: "a/b/c"}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindNotFound, "parent directory")
	b.write(t, wire.WriteRequest{Path: "a/b/c", Parents: true}, "x")
	if got := b.get(t, "a/b/c"); got != "x" {
		t.Errorf("content %q", got)
	}
	_, err = b.Write(wire.WriteRequest{Path: "a/b/c/d", Parents: true}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindNotFound, "not a directory")
	_, err = b.Write(wire.WriteRequest{Path: "a/b"}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindInvalid, "a directory")
	_, err = b.Write(wire.WriteRequest{Path: "new/"}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindInvalid, "names a directory")
}

// TestWriteFollowsSymlinks: the link stays, its target gets the content.
func TestWriteFollowsSymlinks(t *testing.T) {
	b := newBox(t)
	b.put(t, "real/f", "old")
	must(t, os.MkdirAll(b.path("d/e"), 0o755))
	must(t, os.Symlink("../real", b.path("d/dir")))
	// In this order: the second goes through the first.
	for _, c := range [][2]string{
		{"rel", "real/f"}, {"two", "rel"}, {"abs", b.path("real/f")}, {"up", "d/dir/../real/f"}, {"dangling", "real/new"},
	} {
		link, target := c[0], c[1]
		must(t, os.Symlink(target, b.path(link)))
		b.write(t, wire.WriteRequest{Path: link}, link)
		if got, err := os.Readlink(b.path(link)); err != nil || got != target {
			t.Errorf("link %s is now %q (%v)", link, got, err)
		}
		name := "real/f"
		if link == "dangling" {
			name = "real/new"
		}
		if got := b.get(t, name); got != link {
			t.Errorf("writing through %s: target holds %q", link, got)
		}
	}
	must(t, os.Symlink("none/x", b.path("lost")))
	_, err := b.Write(wire.WriteRequest{Path: "lost"}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindNotFound, "parent directory")
	must(t, os.Symlink("loop2", b.path("loop1")))
	must(t, os.Symlink("loop1", b.path("loop2")))
	_, err = b.Write(wire.WriteRequest{Path: "loop1"}, strings.NewReader("x"))
	wantKind(t, err, holdfast.KindInvalid, "symbolic links")
}

// TestWriteIsWholeOrNothing: cut-off data changes nothing and leaves nothing.
func TestWriteIsWholeOrNothing(t *testing.T) {
	b := newBox(t)
	b.put(t, "f", "old")
	cut := io.MultiReader(strings.NewReader("new"), iotest.ErrReader(io.ErrUnexpectedEOF))
	_, err := b.Write(wire.WriteRequest{Path: "f"}, cut)
	wantKind(t, err, holdfast.KindUnavailable, "broke off")
	mine := holdfast.Errorf(holdfast.KindTooLarge, "wire", "frame too large")
	_, err = b.Write(wire.WriteRequest{Path: "g"}, iotest.ErrReader(mine))
	if !errors.Is(err, mine) {
		t.Errorf("a reader's own error came back as %v", err)
	}
	if got := b.get(t, "f"); got != "old" {
		t.Errorf("content %q after a cut write", got)
	}
	if _, err := os.Lstat(b.path("g")); err == nil {
		t.Error("a failed write created its file")
	}
	b.clean(t)
}

// TestWriteReplacesTheInode: readers of the old file keep the old content.
func TestWriteReplacesTheInode(t *testing.T) {
	b := newBox(t)
	old, err := os.Open(b.put(t, "f", "old"))
	must(t, err)
	defer old.Close()
	must(t, os.Link(b.path("f"), b.path("hard")))
	b.write(t, wire.WriteRequest{Path: "f"}, "new")
	data, err := io.ReadAll(old)
	must(t, err)
	if string(data) != "old" || b.get(t, "hard") != "old" {
		t.Error("the old content changed under a reader")
	}
}

func TestWriteRespectsReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may write anything: run as another user for the full test")
		return
	}
	b := newBox(t)
	must(t, os.Chmod(b.put(t, "f", "old"), 0o444))
	_, err := b.Write(wire.WriteRequest{Path: "f"}, strings.NewReader("new"))
	wantKind(t, err, holdfast.KindDenied, "permission denied")
}

func TestRemove(t *testing.T) {
	b := newBox(t)
	b.put(t, "d/e/f", "x")
	b.put(t, "keep/f", "x")
	must(t, os.Symlink(b.path("keep"), b.path("d/link")))
	wantKind(t, b.Remove(wire.RemoveRequest{Path: "none"}), holdfast.KindNotFound, `"none"`)
	wantKind(t, b.Remove(wire.RemoveRequest{Path: "none", Recursive: true}), holdfast.KindNotFound, `"none"`)
	err := b.Remove(wire.RemoveRequest{Path: "d"})
	wantKind(t, err, holdfast.KindConflict, "not empty")
	if !strings.Contains(holdfast.HintOf(err), "holdfast files rm -r ") {
		t.Errorf("hint %q", holdfast.HintOf(err))
	}
	must(t, b.Remove(wire.RemoveRequest{Path: "d", Recursive: true}))
	if _, err := os.Lstat(b.path("d")); err == nil {
		t.Error("the tree is still there")
	}
	if b.get(t, "keep/f") != "x" {
		t.Error("remove followed a symlink")
	}
	must(t, os.Symlink("keep", b.path("l")))
	must(t, b.Remove(wire.RemoveRequest{Path: "l", Recursive: true}))
	must(t, b.Remove(wire.RemoveRequest{Path: "keep/f"}))
	must(t, b.Remove(wire.RemoveRequest{Path: "keep"}))
	must(t, os.Symlink(b.ws, filepath.Join(b.home, "w")))
	for _, p := range []string{".", "/", "~", b.ws, filepath.Dir(b.ws), b.ws + "/../workspace", "~/w/../../workspace"} {
		wantKind(t, b.Remove(wire.RemoveRequest{Path: p, Recursive: true}), holdfast.KindDenied, "the workspace or the home")
	}
	must(t, b.Remove(wire.RemoveRequest{Path: "~/w"}))
	if _, err := os.Stat(b.ws); err != nil {
		t.Error(err)
	}
}

func TestMkdir(t *testing.T) {
	b := newBox(t)
	must(t, b.Mkdir(wire.MkdirRequest{Path: "a/b/c"}))
	must(t, b.Mkdir(wire.MkdirRequest{Path: "a/b/c"}))
	b.put(t, "f", "x")
	wantKind(t, b.Mkdir(wire.MkdirRequest{Path: "f"}), holdfast.KindConflict, "not a directory")
	wantKind(t, b.Mkdir(wire.MkdirRequest{Path: "f/g"}), holdfast.KindNotFound, "not a directory")
}

func TestRename(t *testing.T) {
	b := newBox(t)
	b.put(t, "a", "A")
	b.put(t, "b", "B")
	b.put(t, "d/x", "X")
	must(t, b.Rename(wire.RenameRequest{From: "a", To: "b"}))
	if b.get(t, "b") != "A" {
		t.Error("rename did not replace")
	}
	must(t, b.Rename(wire.RenameRequest{From: "b", To: "d/y"}))
	must(t, b.Rename(wire.RenameRequest{From: "d", To: "e"}))
	if b.get(t, "e/y") != "A" {
		t.Error("rename of a directory lost a file")
	}
	b.put(t, "full/z", "Z")
	wantKind(t, b.Rename(wire.RenameRequest{From: "e", To: "full"}), holdfast.KindConflict, `"full"`)
	wantKind(t, b.Rename(wire.RenameRequest{From: "none", To: "x"}), holdfast.KindNotFound, `"none"`)
	wantKind(t, b.Rename(wire.RenameRequest{From: "e", To: "no/x"}), holdfast.KindNotFound, `"no/x"`)
	wantKind(t, b.Rename(wire.RenameRequest{From: ".", To: "~/x"}), holdfast.KindDenied, "the workspace or the home")
	wantKind(t, b.Rename(wire.RenameRequest{From: "e", To: "~"}), holdfast.KindDenied, "the workspace or the home")
}

func TestList(t *testing.T) {
	b := newBox(t)
	for _, n := range []string{"c", "a", "B", "sub/x", ".hidden"} {
		b.put(t, n, n)
	}
	names := func(req wire.ListRequest) (out []string, more bool) {
		ans, err := b.List(req)
		must(t, err)
		for _, e := range ans.Entries {
			out = append(out, e.Path)
		}
		return out, ans.Truncated
	}
	if got, more := names(wire.ListRequest{}); strings.Join(got, " ") != ".hidden B a c sub" || more {
		t.Errorf("list: %q %v", got, more)
	}
	if got, more := names(wire.ListRequest{Limit: 2}); strings.Join(got, " ") != ".hidden B" || !more {
		t.Errorf("list of 2: %q %v", got, more)
	}
	_, err := b.List(wire.ListRequest{Path: "none"})
	wantKind(t, err, holdfast.KindNotFound, `"none"`)
	_, err = b.List(wire.ListRequest{Path: "a"})
	wantKind(t, err, holdfast.KindInvalid, "not a directory")
	_, err = b.List(wire.ListRequest{Limit: -1})
	wantKind(t, err, holdfast.KindInvalid, "-1")
}

// TestAnswersFitAFrame: long hostile names must not make an answer that cannot be sent.
func TestAnswersFitAFrame(t *testing.T) {
	b := newBox(t)
	name := strings.Repeat("\x01", 240)
	for i := range 300 {
		b.put(t, name+string(rune('a'+i%26))+string(rune('a'+i/26)), "needle\n")
	}
	fits := func(what string, v any, truncated bool, err error) {
		t.Helper()
		must(t, err)
		raw := mustJSON(t, v)
		if len(raw) > wire.MaxFrame || !truncated {
			t.Errorf("%s: %d bytes, truncated %v", what, len(raw), truncated)
		}
	}
	l, err := b.List(wire.ListRequest{})
	fits("list", l, l.Truncated, err)
	g, err := b.Glob(wire.GlobRequest{Pattern: "**"})
	fits("glob", g, g.Truncated, err)
	s, err := b.Grep(wire.GrepRequest{Pattern: "needle", Mode: "content"})
	fits("grep", s, s.Truncated, err)
}

// TestHintsForDirectories: for a directory instead of a file, the hint of a write is not that of a read.
func TestHintsForDirectories(t *testing.T) {
	b := newBox(t)
	b.put(t, "d/f", "x")
	_, read := b.Read(wire.ReadRequest{Path: "d"}, io.Discard)
	_, write := b.Write(wire.WriteRequest{Path: "d"}, strings.NewReader("x"))
	_, above := b.Write(wire.WriteRequest{Path: "d/.."}, strings.NewReader("x"))
	_, edit := b.Edit(wire.EditRequest{Path: "d", Old: "x", New: "y"})
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"read":        {read, "list the directory instead"},
		"write":       {write, nameFile},
		"write above": {above, nameFile},
		"edit":        {edit, nameFile},
	} {
		wantKind(t, c.err, holdfast.KindInvalid, "a directory, not a regular file")
		if got := holdfast.HintOf(c.err); got != c.want {
			t.Errorf("%s: hint %q, want %q", what, got, c.want)
		}
	}
}
