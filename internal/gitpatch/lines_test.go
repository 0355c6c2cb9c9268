package gitpatch

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

// rebuild makes the new text from the old one and a comparison.
func rebuild(t testing.TB, old, now string) *comparison {
	t.Helper()
	d := compare([]byte(old), []byte(now))
	out, at := "", -d.before
	for _, e := range d.edits {
		if e.a0 < at || e.a1 < e.a0 || e.b1 < e.b0 || e.a0 == e.a1 && e.b0 == e.b1 {
			t.Fatalf("wrong edits: %v", d.edits)
		}
		out += old[d.old.at(at):d.old.at(e.a0)] + now[d.now.at(e.b0):d.now.at(e.b1)]
		at = e.a1
	}
	if out += old[d.old.at(at):]; out != now {
		t.Fatalf("%q and %q: the edits %v give %q", old, now, d.edits, out)
	}
	return d
}

func FuzzCompare(f *testing.F) {
	for _, s := range []string{"", "a", "a\n", "a\nb", "b\na\n", "\n\n\na\n\n", "x\na\nb\nc\ny\na\nb\nc\n", "a\r\nb\r\n"} {
		for _, other := range []string{"", "a\n", "b\na", "a\n\n", "c\na\nb\n"} {
			f.Add(s, other)
		}
	}
	f.Fuzz(func(t *testing.T, old, now string) {
		rebuild(t, old, now)
		rebuild(t, now, old)
	})
}

// TestShortEdits: a change of single lines in a long text is found line by line, even if there are many.
func TestShortEdits(t *testing.T) {
	for _, n := range []int{1, 10, 60, 500, 3000} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		all, want := numbers(20_000), map[int]bool{}
		for i := range all {
			if i%3 == 0 {
				all[i] = "}" // as in programs, many lines are equal
			}
		}
		old := joined(all)
		for range n {
			i := r.IntN(len(all))
			all[i], want[i] = fmt.Sprint("changed ", i), true
		}
		added, removed := rebuild(t, old, joined(all)).count()
		if added != len(want) || removed != len(want) {
			t.Errorf("%d lines changed: +%d -%d", len(want), added, removed)
		}
	}
}

// hardTexts are pairs of texts that are hard to compare.
func hardTexts(size int) map[string][2]string {
	r := rand.New(rand.NewPCG(1, 1))
	random := func(kinds int) string {
		var b strings.Builder
		for b.Len() < size {
			fmt.Fprintf(&b, "%d\n", r.IntN(kinds))
		}
		return b.String()[:size]
	}
	prefixed := func(p string) string { return joined(strings.Split(strings.TrimSpace(random(1<<30)), "\n"))[1:] + p }
	reversed := func(s string) string {
		l := strings.Split(s, "\n")
		for i, j := 0, len(l)-1; i < j; i, j = i+1, j-1 {
			l[i], l[j] = l[j], l[i]
		}
		return strings.Join(l, "\n")
	}
	ruler := func(by int) string {
		var b strings.Builder
		for i := by; b.Len() < size; i++ {
			fmt.Fprintf(&b, "%d\n", i&-i)
		}
		return b.String()
	}
	unique := prefixed("")
	return map[string][2]string{
		"all lines changed": {prefixed("a"), prefixed("b")},
		"two kinds":         {random(2), random(2)},
		"a hundred kinds":   {random(100), random(100)},
		"most lines twice":  {random(size / 10), random(size / 10)},
		"reversed":          {unique, reversed(unique)},
		"ruler":             {ruler(1), ruler(12345)},
		"only newlines":     {"a" + strings.Repeat("\n", size-2) + "b", "b" + strings.Repeat("\n\n", size/2-1) + "a"},
		"one line":          {strings.Repeat("a", size), strings.Repeat("a", size-1) + "b"},
	}
}

// TestHardTexts: the time and the memory for any two texts have a bound.
func TestHardTexts(t *testing.T) {
	for name, c := range hardTexts(20_000) {
		t.Run(name+", short", func(t *testing.T) { rebuild(t, c[0], c[1]) })
	}
	all := hardTexts(3 << 19) // most of them have nearly as many lines as are compared
	fill := func(s string) string { return strings.Repeat(s, LargeFile/len(s)-1) }
	all["long, only newlines"] = [2]string{"a" + fill("\n"), "b" + fill("\n") + "b"}
	all["long, short lines"] = [2]string{"a\n" + fill("1\n2\n3\n") + "a\n", fill("2\n3\n4\n")}
	all["long, one line"] = [2]string{fill("a") + "b", fill("a") + "c"}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			from, to := texts(c[0]), texts(c[1])
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := Write(t.Context(), io.Discard, changes(from, to), Options{})
			must(t, err)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			// At no time more memory was in use than was allocated in total.
			held := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%s, %d MiB", took, held)
			if took > 20*time.Second || held > 64 {
				t.Errorf("it took %s and %d MiB", took, held)
			}
		})
	}
}

// TestManyFiles: memory is used again for each file, and a literal needs memory for a part of a file only.
func TestManyFiles(t *testing.T) {
	big := func(n int64) File {
		return File{Regular, n, func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), n) }}
	}
	var all []Change
	for i := range 5 {
		all = append(all, Change{Path: fmt.Sprint(i), Old: big(LargeFile - int64(i)), New: big(LargeFile - 1 - int64(i))})
	}
	all = append(all, Change{Path: "x", New: big(3 * LargeFile)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var n counter
	_, err := Write(t.Context(), &n, list(all), Options{})
	must(t, err)
	runtime.ReadMemStats(&after)
	if held := (after.TotalAlloc - before.TotalAlloc) >> 20; held > 24 || n < 12*LargeFile {
		t.Errorf("%d MiB for %d MiB of a patch", held, n>>20)
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func BenchmarkAllLinesChanged(b *testing.B) {
	c := hardTexts(1 << 20)["all lines changed"]
	from, to := texts(c[0]), texts(c[1])
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		var out bytes.Buffer
		_, err := Write(b.Context(), &out, changes(from, to), Options{})
		must(b, err)
	}
}

// BenchmarkHardTexts measures texts of 1 MiB that are hard to compare.
func BenchmarkHardTexts(b *testing.B) {
	for name, c := range hardTexts(1 << 20) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compare([]byte(c[0]), []byte(c[1]))
			}
		})
	}
}
