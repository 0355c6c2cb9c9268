package gitpatch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast"
)

func list(all []Change) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for _, c := range all {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// TestEmptyDirs: empty directories are counted and left out; what takes their place, or had it, is in the patch.
func TestEmptyDirs(t *testing.T) {
	dir, a := File{Mode: EmptyDir}, file("a\n").file()
	var out bytes.Buffer
	sum, err := Write(t.Context(), &out, list([]Change{
		{Path: "gone", Old: dir},
		{Path: "new", New: dir},
		{Path: "kept", Old: dir, New: dir, Same: true},
		{Path: "file", Old: dir, New: a},
		{Path: "was", Old: a, New: dir},
		{Path: "full"},
	}), Options{Format: holdfast.DiffNames})
	must(t, err)
	if out.String() != "file\nwas\n" || sum != (Summary{Files: 2, EmptyDirs: 4}) {
		t.Errorf("%q %+v", &out, sum)
	}
}

// TestEqualContents: what git does not see is not a change, although it is listed.
func TestEqualContents(t *testing.T) {
	same := Change{Path: "a", Old: file("a\n").file(), New: file("a\n").file(), Same: true}
	for _, f := range []holdfast.DiffFormat{holdfast.DiffNames, holdfast.DiffStat, holdfast.DiffPatch} {
		var out bytes.Buffer
		sum, err := Write(t.Context(), &out, list([]Change{same}), Options{Format: f})
		if err != nil || out.Len() != 0 || sum != (Summary{}) {
			t.Errorf("%s: %q %+v %v", f, &out, sum, err)
		}
	}
}

// TestLargeFiles: a large file is named with its sizes, and not read.
func TestLargeFiles(t *testing.T) {
	large := func(n int64) File {
		return File{Regular, n, func() io.Reader { return iotest.ErrReader(errors.New("it is read")) }}
	}
	c := []Change{
		{Path: "both", Old: large(LargeFile + 1), New: large(1 << 40)},
		{Path: "ge\trn", Old: large(LargeFile + 1)},
		{Path: "new", Old: File{}, New: large(LargeFile + 1)},
	}
	want := map[holdfast.DiffFormat]string{
		holdfast.DiffPatch: "diff --git a/both b/both\nold mode 100644\nnew mode 100644\nBinary files a/both (8388609 bytes) and b/both (1099511627776 bytes) differ\n" +
			"diff --git \"a/ge\\trn\" \"b/ge\\trn\"\ndeleted file mode 100644\nBinary files \"a/ge\\trn\" (8388609 bytes) and /dev/null differ\n" +
			"diff --git a/new b/new\nnew file mode 100644\nBinary files /dev/null and b/new (8388609 bytes) differ\n",
		holdfast.DiffStat: " both     | Bin 8388609 -> 1099511627776 bytes\n \"ge\\trn\" | Bin 8388609 -> 0 bytes\n" +
			" new      | Bin 0 -> 8388609 bytes\n 3 files changed, 0 insertions(+), 0 deletions(-)\n",
		holdfast.DiffNames: "both\n\"ge\\trn\"\nnew\n",
	}
	for f, want := range want {
		var out bytes.Buffer
		sum, err := Write(t.Context(), &out, list(c), Options{Format: f})
		if err != nil || out.String() != want || sum.Files != 3 || (sum.Omitted == 3) != (f == holdfast.DiffPatch) {
			t.Errorf("%s: %v %+v\n%s", f, err, sum, &out)
		}
	}
}

// TestLongTable: a table has a bound; the sums count all files.
func TestLongTable(t *testing.T) {
	name := strings.Repeat("x", rowBytesMost/8)
	var all []Change
	for i := range 10 {
		all = append(all, Change{Path: name + string(rune('a'+i)), New: file("a\n").file()})
	}
	var out bytes.Buffer
	_, err := Write(t.Context(), &out, list(all), Options{Format: holdfast.DiffStat})
	if got := out.String(); err != nil || strings.Count(got, " | ") != 7 || !strings.HasSuffix(got, "\n ... and 3 more\n 10 files changed, 10 insertions(+)\n") {
		t.Errorf("%v %s", err, got[max(0, len(got)-200):])
	}
}

// TestErrors: Write returns what goes wrong, and looks at the context before each file.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	ended, end := context.WithCancel(t.Context())
	end()
	reads := func(r io.Reader, size int64) iter.Seq2[Change, error] {
		return list([]Change{{Path: "a", New: File{Regular, size, func() io.Reader { return r }}}})
	}
	for name, c := range map[string]struct {
		ctx     context.Context
		w       io.Writer
		changes iter.Seq2[Change, error]
		o       Options
		is      error
		kind    holdfast.Kind
	}{
		"changes":     {changes: func(yield func(Change, error) bool) { yield(Change{}, broken) }, is: broken},
		"content":     {changes: reads(iotest.ErrReader(broken), 5), is: broken},
		"context":     {ctx: ended, changes: reads(strings.NewReader("a\n"), 2), is: context.Canceled},
		"writer":      {w: failing{broken}, changes: reads(strings.NewReader("a\n"), 2), is: broken},
		"short":       {changes: reads(strings.NewReader("a\n"), 3), kind: holdfast.KindInternal},
		"no content":  {changes: reads(strings.NewReader(""), 3), kind: holdfast.KindInternal},
		"long":        {changes: reads(strings.NewReader("a\nb"), 2), kind: holdfast.KindInternal},
		"format":      {changes: list(nil), o: Options{Format: "html"}, kind: holdfast.KindInvalid},
		"table":       {w: failing{broken}, changes: reads(strings.NewReader("a\n"), 2), o: Options{Format: holdfast.DiffStat}, is: broken},
		"long output": {w: failing{broken}, changes: reads(strings.NewReader(strings.Repeat("a\n", 1<<20)), 2<<20), is: broken},
	} {
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		if c.w == nil {
			c.w = io.Discard
		}
		_, err := Write(c.ctx, c.w, c.changes, c.o)
		if c.is != nil && !errors.Is(err, c.is) || c.is == nil && !holdfast.IsKind(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// FuzzQuote: a quoted name is one line of printable ASCII, and is read back as it was.
func FuzzQuote(f *testing.F) {
	for _, s := range append([]string{"a", "a b", "a\nb", `a"b\`, "\a\b\t\n\v\f\r", "\x00\x01\x7f\x80\xff", "ü"}, "a /b") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.HasPrefix(path, `"`) && quote("", path) == path {
			t.Fatalf("%q stays as it is", path)
		}
		for _, prefix := range []string{"", "a/"} {
			q := quote(prefix, path)
			back, err := unquote(q)
			if err != nil || back != prefix+path {
				t.Fatalf("%q becomes %s, which is %q: %v", path, q, back, err)
			}
			if strings.ContainsFunc(q, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q becomes %q", path, q)
			}
		}
	})
}

// FuzzLiteral: a literal is read back as it was, in lines that git takes.
func FuzzLiteral(f *testing.F) {
	for _, n := range []int{0, 1, 3, 4, 26, 27, 51, 52, 53, 104, 1000} {
		f.Add(bytes.Repeat([]byte{0xff, 0, 7}, n)[:n])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		_, err := Write(t.Context(), &out, list([]Change{{Path: "a", New: file("\x00" + string(data)).file()}}), Options{})
		must(t, err)
		_, text, _ := strings.Cut(out.String(), "GIT binary patch\n")
		back, rest, err := decode(text)
		if err != nil || back != "\x00"+string(data) {
			t.Fatalf("%q becomes %q: %v", data, back, err)
		}
		if back, rest, err = decode(rest); err != nil || back != "" || rest != "" {
			t.Fatalf("the old content is %q, followed by %q: %v", back, rest, err)
		}
	})
}
