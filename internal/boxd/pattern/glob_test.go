package pattern

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// refused expects a pattern to be invalid, with a part of the reason.
func refused(t *testing.T, err error, part string) {
	t.Helper()
	if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v (kind %q), want %q in it", err, holdfast.KindOf(err), part)
	}
}

// TestBracesWriteABoundedAmount: few alternatives can still be much text, and groups of
// one option write all of it again for each group.
func TestBracesWriteABoundedAmount(t *testing.T) {
	many := strings.Repeat("{,}", 9)
	for name, p := range map[string]string{
		"long":          many + strings.Repeat("x", 4000),
		"single groups": many + strings.Repeat("{a}", 1300),
		"nested":        strings.Repeat("{", 2000) + "a" + strings.Repeat("}", 2000),
	} {
		b := braces{left: maxExpansion}
		if why := b.expand(p); !strings.Contains(why, "256 KiB") {
			t.Errorf("%s: %d patterns, %q", name, len(b.texts), why)
		}
		written := 0
		for _, text := range b.texts {
			written += len(text)
		}
		if written > maxExpansion {
			t.Errorf("%s: %d bytes", name, written)
		}
		_, err := Compile("glob", p)
		refused(t, err, "256 KiB")
	}
	if p, err := Compile("glob", strings.Repeat("{ab,cd}", 9)+strings.Repeat("x", 20)); err != nil || len(p.alts) != 512 {
		t.Errorf("512 short patterns: %v", err)
	}
}

// TestPlacesAreThereOnce: with many ** each directory is at many segments' places, but
// at none of them twice.
func TestPlacesAreThereOnce(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("**/*/", 300) + "x", strings.Repeat("**/", 300) + "x", "{**/a,*/**/a,**}/{**/*/**,a}/**/*/b", strings.Repeat("*/**/*/", 100) + "a",
	} {
		p, err := Compile("glob", text)
		if err != nil {
			t.Fatal(err)
		}
		at := p.Start()
		for range 400 {
			at, _ = p.Step(at, "a")
			seen := map[Place]bool{}
			for _, have := range at {
				if seen[have] {
					t.Fatalf("%.40s: alternative %d, segment %d is there twice", text, have.alt, have.seg)
				}
				seen[have] = true
			}
		}
	}
}

func TestGlobPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, yes, no string
	}{
		{"*.go", "a.go .go é.go", "a.goo d/a.go go"},
		{"**/*.go", "a.go d/a.go d/e/a.go", "a.c d/a.c"},
		{"d/**", "d/a d/e/f", "d a x/d/a"},
		{"**", "a d/e", ""},
		{"**/d/**/x", "d/x a/d/x a/d/b/c/x", "x d a/x"},
		{"a?c", "abc aéc a\xffc", "ac abbc a/c"},
		{"[a-c]x", "ax bx cx", "dx x aax"},
		{"[!a-c]x", "dx éx", "ax"},
		{"[^a]", "b", "a"},
		{"[]]", "]", "a"},
		{"[a-]", "a -", "b"},
		{`[\]]`, "]", `\`},
		{"{a,b}.{c,d}", "a.c b.d", "a.b c.d"},
		{"{a,{b,c}/d}", "a b/d c/d", "b a/d"},
		{"src/{,lib/}*.c", "src/x.c src/lib/x.c", "src/a/x.c"},
		{`\*\{`, "*{", "a{"},
		{"a**b", "ab axb", "a/b"},
		{"./a//b", "a/b", "a"},
		{"[{]a", "{a", "a"},
		{"a}", "a}", "a"},
		{"{a}", "a", "{a}"},
		{"*a*b*c*", "abc xaxbxcx aabbcc", "acb ab"},
	} {
		p, err := Compile("glob", c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, s := range strings.Fields(c.yes) {
			if !p.Match(s) {
				t.Errorf("%s does not match %q", c.pattern, s)
			}
		}
		for _, s := range strings.Fields(c.no) {
			if p.Match(s) {
				t.Errorf("%s matches %q", c.pattern, s)
			}
		}
	}
}

func TestGlobBadPatterns(t *testing.T) {
	for pattern, part := range map[string]string{
		"":                          "no path component",
		"/":                         "no path component",
		"[a":                        "[ is not closed",
		"[a/b]":                     "[ is not closed",
		"[z-a]":                     "wrong way round",
		"{a,b":                      "{ is not closed",
		`a\`:                        "escapes nothing",
		"*/../x":                    `".."`,
		strings.Repeat("{a,b}", 20): "more than 1000",
		strings.Repeat("a", 5000):   "4096",
	} {
		_, err := Compile("glob", pattern)
		refused(t, err, part)
	}
}

// TestGlobIsLinear: the classic pattern that takes naive matchers for ever.
func TestGlobIsLinear(t *testing.T) {
	p, err := Compile("glob", strings.Repeat("*a", 60)+"b")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	go func() { done <- p.Match(strings.Repeat("a", 250)) }()
	select {
	case got := <-done:
		if got {
			t.Error("it matched")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("matching takes exponential time")
	}
}

// slowMatch is the obvious recursive matcher of one segment.
func slowMatch(items []item, name string) bool {
	if len(items) == 0 {
		return name == ""
	}
	if items[0].star {
		for i := 0; ; {
			if slowMatch(items[1:], name[i:]) {
				return true
			}
			if i == len(name) {
				return false
			}
			_, n := char(name[i:])
			i += n
		}
	}
	if name == "" {
		return false
	}
	r, n := char(name)
	return items[0].matches(r) && slowMatch(items[1:], name[n:])
}

// slowPath is the obvious recursive matcher of a path.
func slowPath(segs []segment, parts []string) bool {
	if len(segs) == 0 {
		return len(parts) == 0
	}
	if segs[0].deep {
		return slowPath(segs[1:], parts) || len(parts) > 0 && slowPath(segs, parts[1:])
	}
	return len(parts) > 0 && slowMatch(segs[0].items, parts[0]) && slowPath(segs[1:], parts[1:])
}

func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{
		{"**/*.go", "a/b.go"}, {"{a,b}/[!x-z]?", "a/bc"}, {"*a*", "bab"}, {`\{[]]`, "{]"}, {"a/**/b/**", "a/b/c"}, {"[\xff-\xff]", "\xff"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(pattern) > 40 || len(path) > 20 {
			return
		}
		p, err := Compile("glob", pattern)
		if err != nil {
			if !holdfast.IsKind(err, holdfast.KindInvalid) {
				t.Fatalf("%q: %v", pattern, err)
			}
			return
		}
		want := false
		for _, segs := range p.alts {
			want = want || slowPath(segs, strings.Split(path, "/"))
		}
		if got := p.Match(path); got != want {
			t.Fatalf("pattern %q, path %q: %v, want %v", pattern, path, got, want)
		}
	})
}
