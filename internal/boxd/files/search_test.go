package files

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return raw
}

// rel is the answer's paths below the workspace.
func (b box) rel(paths []string) string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = strings.TrimPrefix(p, b.ws+"/")
	}
	return strings.Join(out, " ")
}

func TestGlobNewestFirst(t *testing.T) {
	b := newBox(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, n := range []string{"b.go", "d/a.go", "a.go", "d/e/c.go", "x.txt", ".git/hooks/h.go", "d/.hid.go"} {
		must(t, os.Chtimes(b.put(t, n, ""), at, at.Add(time.Duration(i)*time.Hour)))
	}
	must(t, os.Chtimes(b.path("a.go"), at, at.Add(3*time.Hour))) // as old as d/e/c.go
	must(t, os.Symlink("d", b.path("link")))
	must(t, os.Symlink("b.go", b.path("l.go")))
	glob := func(req wire.GlobRequest) string {
		t.Helper()
		ans, err := b.Glob(req)
		must(t, err)
		return b.rel(ans.Paths)
	}
	for _, c := range []struct {
		req  wire.GlobRequest
		want string
	}{
		{wire.GlobRequest{Pattern: "**/*.go"}, "l.go d/.hid.go a.go d/e/c.go d/a.go b.go"},
		{wire.GlobRequest{Pattern: "*.go"}, "l.go a.go b.go"},
		{wire.GlobRequest{Pattern: "*.go", Path: "d"}, "d/.hid.go d/a.go"},
		{wire.GlobRequest{Pattern: "d/*/*.go"}, "d/e/c.go"},
		{wire.GlobRequest{Pattern: b.ws + "/d/*.go"}, "d/.hid.go d/a.go"},
		{wire.GlobRequest{Pattern: "../b.go", Path: "d"}, "b.go"},
		{wire.GlobRequest{Pattern: "d/a.go"}, "d/a.go"},
		{wire.GlobRequest{Pattern: ".git/**"}, ".git/hooks/h.go"},
		{wire.GlobRequest{Pattern: "**/.git/**"}, ".git/hooks/h.go"},
		{wire.GlobRequest{Pattern: "nothing/**"}, ""},
		{wire.GlobRequest{Pattern: "b.go/*"}, ""},
		{wire.GlobRequest{Pattern: "link/*"}, "d/.hid.go d/a.go"},
	} {
		got := glob(c.req)
		if c.req.Pattern == "link/*" {
			got = strings.ReplaceAll(got, "link/", "d/") // named by the caller: followed
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.req, got, c.want)
		}
	}
	ans, err := b.Glob(wire.GlobRequest{Pattern: "**/*.go", Limit: 2})
	must(t, err)
	if b.rel(ans.Paths) != "l.go d/.hid.go" || !ans.Truncated {
		t.Errorf("limit 2: %+v", ans)
	}
	_, err = b.Glob(wire.GlobRequest{Pattern: "*", Path: "none"})
	wantKind(t, err, holdfast.KindNotFound, `"none"`)
}

func TestWalkIsBounded(t *testing.T) {
	b := newBox(t)
	for i := range 30 {
		b.put(t, fmt.Sprintf("d%02d/f", i), "needle")
	}
	few := New(Config{Workspace: b.ws, Home: b.home, MaxEntries: 40})
	g, err := few.Glob(wire.GlobRequest{Pattern: "**"})
	must(t, err)
	if !g.Truncated || len(g.Paths) == 0 || len(g.Paths) > 11 {
		t.Errorf("glob over 40 entries: %d, truncated %v", len(g.Paths), g.Truncated)
	}
	s, err := few.Grep(wire.GrepRequest{Pattern: "needle"})
	must(t, err)
	if !s.Truncated || len(s.Matches) == 0 || len(s.Matches) > 11 {
		t.Errorf("grep over 40 entries: %d, truncated %v", len(s.Matches), s.Truncated)
	}
	now := time.Now()
	late := New(Config{Workspace: b.ws, Home: b.home, MaxTime: 10 * time.Second, Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}})
	s, err = late.Grep(wire.GrepRequest{Pattern: "needle"})
	must(t, err)
	if !s.Truncated || len(s.Matches) > 11 {
		t.Errorf("grep out of time: %d, truncated %v", len(s.Matches), s.Truncated)
	}
	b.put(t, "one", strings.Repeat("hay\n", 10_000)+"needle\n")
	s, err = late.Grep(wire.GrepRequest{Pattern: "needle|pin", Path: "one"})
	must(t, err)
	if !s.Truncated || len(s.Matches) > 0 {
		t.Errorf("grep out of time in one file: %d, truncated %v", len(s.Matches), s.Truncated)
	}
}

// grep renders an answer like grep -n does: path:line:text, path-line-text for context.
func (b box) grep(t *testing.T, req wire.GrepRequest) string {
	t.Helper()
	ans, err := b.Grep(req)
	must(t, err)
	var out []string
	for _, m := range ans.Matches {
		s := strings.TrimPrefix(m.Path, b.ws+"/")
		switch {
		case m.Count > 0:
			s += fmt.Sprintf("=%d", m.Count)
		case m.Context:
			s += fmt.Sprintf("-%d-%s", m.Line, m.Text)
		case m.Line > 0:
			s += fmt.Sprintf(":%d:%s", m.Line, m.Text)
		}
		out = append(out, s)
	}
	if ans.Truncated {
		out = append(out, "…")
	}
	return strings.Join(out, "|")
}

func TestGrep(t *testing.T) {
	b := newBox(t)
	b.put(t, "a.txt", "one\ntwo needle\nthree\nfour\nneedle five\nsix needle")
	b.put(t, "b.go", "func Needle() {}\r\nreturn\r\n")
	b.put(t, "sub/c.go", "// needle\n")
	b.put(t, "sub/bin", "needle\x00\n")
	b.put(t, ".git/needle", "needle\n")
	b.put(t, "empty", "")
	b.put(t, "big", "needle\n"+strings.Repeat("x", maxGrep))
	must(t, os.Symlink("a.txt", b.path("z")))
	for _, c := range []struct {
		req  wire.GrepRequest
		want string
	}{
		{wire.GrepRequest{Pattern: "needle"}, "a.txt|sub/c.go"},
		{wire.GrepRequest{Pattern: "needle", Mode: "count"}, "a.txt=3|sub/c.go=1"},
		{wire.GrepRequest{Pattern: "needle", IgnoreCase: true}, "a.txt|b.go|sub/c.go"},
		{wire.GrepRequest{Pattern: "needle", Mode: "content"}, "a.txt:2:two needle|a.txt:5:needle five|a.txt:6:six needle|sub/c.go:1:// needle"},
		{wire.GrepRequest{Pattern: "^needle", Mode: "content"}, "a.txt:5:needle five"},
		{wire.GrepRequest{Pattern: "needle$", Path: "a.txt", Mode: "content", Before: 1}, "a.txt-1-one|a.txt:2:two needle|a.txt-5-needle five|a.txt:6:six needle"},
		{wire.GrepRequest{Pattern: "t(w|hre)", Path: "a.txt", Mode: "content", Before: 1, After: 1}, "a.txt-1-one|a.txt:2:two needle|a.txt:3:three|a.txt-4-four"},
		{wire.GrepRequest{Pattern: "one", Path: "a.txt", Mode: "content", After: 9}, "a.txt:1:one|a.txt-2-two needle|a.txt-3-three|a.txt-4-four|a.txt-5-needle five|a.txt-6-six needle"},
		{wire.GrepRequest{Pattern: "needle", Glob: "*.go"}, "sub/c.go"},
		{wire.GrepRequest{Pattern: "needle", Glob: "sub/*.go"}, "sub/c.go"},
		{wire.GrepRequest{Pattern: "needle", Glob: "*.{txt,md}"}, "a.txt"},
		{wire.GrepRequest{Pattern: "(?i)needle", Glob: "/*.go"}, "b.go"},
		{wire.GrepRequest{Pattern: "}$", Path: "b.go", Mode: "content"}, "b.go:1:func Needle() {}"},
		{wire.GrepRequest{Pattern: "three.*needle", Mode: "content", Multiline: true}, "a.txt:3:three|a.txt:4:four|a.txt:5:needle five|a.txt:6:six needle"},
		{wire.GrepRequest{Pattern: `o\nt`, Mode: "content", Multiline: true, After: 1}, ""},
		{wire.GrepRequest{Pattern: `e\nt`, Mode: "content", Multiline: true, After: 1}, "a.txt:1:one|a.txt:2:two needle|a.txt:3:three|a.txt-4-four"},
		{wire.GrepRequest{Pattern: `^f.*?e$`, Mode: "count", Multiline: true}, "a.txt=1"},
		{wire.GrepRequest{Pattern: "needle", Mode: "content", Limit: 2}, "a.txt:2:two needle|a.txt:5:needle five|…"},
		{wire.GrepRequest{Pattern: "needle", Limit: 1}, "a.txt|…"},
		{wire.GrepRequest{Pattern: "needle", Path: "sub/bin"}, ""},
		{wire.GrepRequest{Pattern: "x*", Path: "empty"}, ""},
	} {
		if got := b.grep(t, c.req); got != c.want {
			t.Errorf("%+v:\n got %q\nwant %q", c.req, got, c.want)
		}
	}
}

func TestGrepFailures(t *testing.T) {
	b := newBox(t)
	b.put(t, "big", strings.Repeat("x", maxGrep+1))
	for _, c := range []struct {
		req  wire.GrepRequest
		kind holdfast.Kind
		part string
	}{
		{wire.GrepRequest{}, holdfast.KindInvalid, "empty"},
		{wire.GrepRequest{Pattern: "(a"}, holdfast.KindInvalid, "missing closing )"},
		{wire.GrepRequest{Pattern: "(?=a)"}, holdfast.KindInvalid, "invalid or unsupported"},
		{wire.GrepRequest{Pattern: `a\nb`}, holdfast.KindInvalid, "line end"},
		{wire.GrepRequest{Pattern: "a", Mode: "lines"}, holdfast.KindInvalid, `"lines"`},
		{wire.GrepRequest{Pattern: "a", Before: -1}, holdfast.KindInvalid, "-1"},
		{wire.GrepRequest{Pattern: "a", Limit: -1}, holdfast.KindInvalid, "-1"},
		{wire.GrepRequest{Pattern: "a", Glob: "["}, holdfast.KindInvalid, "not closed"},
		{wire.GrepRequest{Pattern: strings.Repeat("a", 20000)}, holdfast.KindInvalid, "20000"},
		{wire.GrepRequest{Pattern: "a", Path: "none"}, holdfast.KindNotFound, `"none"`},
		{wire.GrepRequest{Pattern: "a", Path: "big"}, holdfast.KindTooLarge, `"big"`},
	} {
		_, err := b.Grep(c.req)
		wantKind(t, err, c.kind, c.part)
	}
}

func TestGrepLongLines(t *testing.T) {
	b := newBox(t)
	b.put(t, "min.js", strings.Repeat("é", 40_000)+"needle"+strings.Repeat("y", 40_000)+"\nshort\n")
	ans, err := b.Grep(wire.GrepRequest{Pattern: "needle", Mode: "content"})
	must(t, err)
	if len(ans.Matches) != 1 || len(ans.Matches[0].Text) > maxLine+6 || !strings.Contains(ans.Matches[0].Text, "needle") {
		t.Errorf("a long line: %d matches", len(ans.Matches))
	}
	b.put(t, "latin", "caf\xe9 needle\n")
	ans, err = b.Grep(wire.GrepRequest{Pattern: "needle", Mode: "content", Path: "latin"})
	must(t, err)
	if got := ans.Matches[0].Text; got != "caf\uFFFD needle" {
		t.Errorf("a line that is not UTF-8: %q", got)
	}
}

// TestGrepPrefilter: the text looked for first is in every match.
func TestGrepPrefilter(t *testing.T) {
	for pattern, want := range map[string]string{
		"needle": "needle", "a+needle.*b": "needle", "(needle)x?": "needle", "a|b": "", "(?i)needle": "",
		"(abc){2,3}d": "abc", "x*": "", "\ufffd": "", "[ab]c": "c", "(?:foo)+": "foo",
	} {
		m, err := newMatcher("grep", wire.GrepRequest{Pattern: pattern})
		must(t, err)
		if string(m.lit) != want {
			t.Errorf("%s: prefilter %q, want %q", pattern, m.lit, want)
		}
	}
}

func FuzzGrep(f *testing.F) {
	f.Add("a.c", "xabc\nabc\n\nd", false)
	f.Add("(ab)+c$", "ababc\r\nabc", false)
	f.Add("b\nc", "ab\ncd\nb\nc", true)
	f.Fuzz(func(t *testing.T, pattern, data string, multi bool) {
		if len(data) == 0 || len(pattern) > 50 {
			return
		}
		m, err := newMatcher("grep", wire.GrepRequest{Pattern: pattern, Multiline: multi})
		if err != nil {
			return
		}
		lines := strings.Split(strings.TrimSuffix(data, "\n"), "\n")
		var got []int
		m.each([]byte(data), func(start, end, no int) bool {
			if data[start:end] != lines[no-1] {
				t.Fatalf("line %d is %q, want %q", no, data[start:end], lines[no-1])
			}
			if len(got) > 0 && no <= got[len(got)-1] {
				t.Fatalf("line %d after %d", no, got[len(got)-1])
			}
			got = append(got, no)
			return true
		})
		if len(got) > 0 && !m.possible([]byte(data)) {
			t.Fatal("the prefilter would pass over a match")
		}
		if multi {
			return
		}
		var want []int
		for i, line := range lines {
			if m.re.MatchString(strings.TrimSuffix(line, "\r")) {
				want = append(want, i+1)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("pattern %q in %q: lines %v, want %v", pattern, data, got, want)
		}
	})
}

// TestFoundIsBounded: matches end at the limit and context does not count; the room of an
// answer ends both.
func TestFoundIsBounded(t *testing.T) {
	f := found{limit: 2, room: 10_000}
	for _, m := range []wire.GrepMatch{{Line: 1}, {Line: 2, Context: true}, {Line: 3}, {Line: 4, Context: true}} {
		f.add(m)
	}
	if f.full || len(f.out) != 4 {
		t.Errorf("full %v with %d lines", f.full, len(f.out))
	}
	if f.add(wire.GrepMatch{Line: 5}); !f.full || len(f.out) != 4 {
		t.Errorf("full %v with %d lines", f.full, len(f.out))
	}
	f = found{limit: 9, room: 200}
	f.add(wire.GrepMatch{Line: 1})
	if f.add(wire.GrepMatch{Text: strings.Repeat("x", 100), Context: true}); !f.full || len(f.out) != 1 {
		t.Errorf("full %v with %d lines", f.full, len(f.out))
	}
}
