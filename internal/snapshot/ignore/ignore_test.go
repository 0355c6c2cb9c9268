package ignore_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/ignore"
)

// fixed are lines whose reading is easy to get wrong.
var fixed = []string{
	"a", "/a", "a/", "/a/", "*.o", "!x.o", "b*", "*b*", "a/b", "a/b/", "a/*", "a/**", "**/b", "**/b/", "a/**/b", "**", "*", "/*", "!/a", "!a/",
	"a**b", "a/b**", "a/**b", "x/a**/b", "a**/b", "**a", "***", "a/***/b", "**/**", "/**", "/**/b", "a//b", "//a", "!", "/", "!/", "\\!a", "\\#a", "#a",
	"a\\", "a\\b", "\\a", "[ab]", "[!ab]", "[^ab]", "[a-c].o", "[]a]", "[]-a]", "[a-]", "[-a]", "[\\]a]", "[a", "[", "a[/]b", "[a/b]", "a[a/b]", "[[:alpha:]]", "[[:digit:][:space:]x]",
	"[[:nope:]]", "[[:alpha]", "[[:alpha:]", "[a-\\c]", "?", "a?", "?/b", "a/?", "a ", "a\\ ", "a b", "a  ", " a", "\ta", "a\r", "a\x00b", "\xef\xbb\xbfa",
	"\\**", "*\\*", "**\\/b", "a/**\\/b", "a\\/b", "é", "?é", "[é]", "*é", "a/b/c", "a/*/c", "**/c/**", "c/**/", "!**/b", ".*", "!.a", "a.b", "x[[:upper:]-z]", "x[a-c-e]", "[z-a]",
}

var parts = []string{"a", "b", "c", "x", ".o", "*", "**", "?", "/", "/", "[ab]", "[!a]", "\\*", ".", "é", "ab", "!", " "}

func randomLine(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return fixed[r.IntN(len(fixed))]
	}
	var b strings.Builder
	for range 1 + r.IntN(5) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

var names = []string{"a", "b", "c", "x", "ab", "a.o", "x.o", "b.o", ".a", "a b", "a ", "é", "aé", "*", "a*", "[", "]", "-", "#a", "!a", "a\\", "X", "xA", "x1", "aXb", "axb", "1", "a\\b", " a"}

// makeTree writes a tree of directories with .gitignore files.
func makeTree(t *testing.T, r *rand.Rand, dir string, depth int) {
	t.Helper()
	if r.IntN(3) == 0 || depth == 0 {
		var lines []string
		for range 1 + r.IntN(4) {
			lines = append(lines, randomLine(r))
		}
		must(t, os.WriteFile(filepath.Join(dir, ignore.Name), []byte(strings.Join(lines, "\n")), 0o644))
	}
	for range 2 + r.IntN(8) {
		name := filepath.Join(dir, names[r.IntN(len(names))])
		if _, err := os.Lstat(name); err == nil {
			continue
		}
		switch {
		case depth < 3 && r.IntN(2) == 0:
			must(t, os.Mkdir(name, 0o755))
			makeTree(t, r, name, depth+1)
		case r.IntN(8) == 0:
			must(t, os.Symlink(".", name))
		default:
			must(t, os.WriteFile(name, nil, 0o644))
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reader reads the .gitignore files of a directory of the test.
func reader(dir string) func(string) []byte {
	return func(at string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, at, ignore.Name))
		if err != nil {
			return nil
		}
		return data
	}
}

// ignored lists the paths that ignore.Tree ignores, in the order of a walk.
func ignored(t *testing.T, dir string, paths []string) (out []string) {
	tree := ignore.New(reader(dir))
	for _, p := range paths {
		info, err := os.Lstat(filepath.Join(dir, p))
		must(t, err)
		if tree.Ignored(p, info.IsDir()) {
			out = append(out, p)
		}
	}
	must(t, tree.Err())
	return out
}

// TestAsGit: a tree with random .gitignore files has the ignored paths that git check-ignore says.
func TestAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	for seed := range 16 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		dir := t.TempDir()
		makeTree(t, r, dir, 0)
		wantAsGit(t, git, dir)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestLinesAsGit: each of the fixed lines alone, in the same tree, is read as git reads it.
func TestLinesAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	for _, a := range names {
		must(t, os.MkdirAll(filepath.Join(dir, "d", a), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, a+"_"), nil, 0o644))
		for _, b := range names {
			if a == "a" || a == "x" || a == "aXb" {
				must(t, os.MkdirAll(filepath.Join(dir, a, b), 0o755))
				must(t, os.WriteFile(filepath.Join(dir, a, b, "b"), nil, 0o644))
			}
		}
	}
	for _, line := range fixed {
		must(t, os.WriteFile(filepath.Join(dir, ignore.Name), []byte(line), 0o644))
		if wantAsGit(t, git, dir); t.Failed() {
			t.Fatalf("line %q", line)
		}
	}
}

func wantAsGit(t *testing.T, git, dir string) {
	t.Helper()
	var paths []string
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		must(t, err)
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		if e.Name() == ".git" {
			return filepath.SkipDir
		}
		if rel != "." {
			paths = append(paths, rel)
		}
		return nil
	}))
	run := func(in string, args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		out, err := cmd.Output()
		if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) {
			t.Fatalf("git %v: %v", args, err)
		}
		return out
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
		run("", "init", "-q")
	}
	out := run(strings.Join(paths, "\x00")+"\x00", "check-ignore", "--no-index", "-z", "--stdin")
	var want []string
	for p := range bytes.SplitSeq(out, []byte{0}) {
		if len(p) > 0 {
			want = append(want, string(p))
		}
	}
	got := ignored(t, dir, paths)
	slices.Sort(want)
	slices.Sort(got)
	for _, p := range paths {
		if slices.Contains(want, p) != slices.Contains(got, p) {
			t.Errorf("%q: git ignores it: %v", p, slices.Contains(want, p))
		}
	}
}

// TestCost: the cost of a pattern that is made to be slow grows with its length times that of the path, and a tree of
// such patterns ends with too_large and not with a hanging server.
func TestCost(t *testing.T) {
	slow := strings.Repeat("*a", 400) + "b\n" + strings.Repeat("**/", 300) + "b\n"
	tree := ignore.New(func(dir string) []byte {
		if dir == "." {
			return []byte(strings.Repeat(slow, 100))
		}
		return nil
	})
	path := strings.Repeat(strings.Repeat("a", 200)+"/", 10)
	for n := 0; tree.Err() == nil; n++ {
		if n > 100_000 {
			t.Fatal("the patterns cost nothing")
		}
		tree.Ignored(fmt.Sprint(path, n), false)
	}
	if err := tree.Err(); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Fatal(err)
	}
	if tree.Again(); tree.Err() != nil {
		t.Fatal("another walk begins with the cost of the last one")
	}
}

// TestRepeatedNames: of lines that name the same entry only the last ones count, so a file of such lines is kept, and
// searched for each entry of that name, as if each line were there once.
func TestRepeatedNames(t *testing.T) {
	ignores := func(data string, dir bool) bool {
		tree := ignore.New(func(string) []byte { return []byte(data) })
		return tree.Ignored("a", dir)
	}
	for lines, want := range map[string][2]bool{
		"a\n": {true, true}, "a/\n": {false, true}, "a\n!a\n": {false, false}, "a\n!a/\n": {true, false},
		"!a/\na\n": {true, true}, "!a\na/\n": {false, true}, "a/\na\n!a/\n": {true, false}, "*\n!a\n": {false, false},
		"!a\n*\n": {true, true}, "*\n!a/\n": {true, false}, "!a\n*/\n": {false, true},
	} {
		for _, data := range []string{lines, strings.Repeat(lines, 100)} {
			if got := [2]bool{ignores(data, false), ignores(data, true)}; got != want {
				t.Errorf("%d bytes of %q: file and directory %t, want %t", len(data), lines, got, want)
			}
		}
	}
	kept := func(times int) float64 {
		data := bytes.Repeat([]byte("a\n"), times)
		return testing.AllocsPerRun(3, func() { ignore.New(func(string) []byte { return data }).Ignored("a", false) })
	}
	if once, often := kept(1), kept(ignore.MaxFile/2); often > once {
		t.Errorf("%v allocations for %d lines, %v for one", often, ignore.MaxFile/2, once)
	}
}

// TestBounds: files that are too long count as empty, and many open ones are too_large.
func TestBounds(t *testing.T) {
	long := ignore.New(func(string) []byte { return bytes.Repeat([]byte("a\n"), ignore.MaxFile) })
	if long.Ignored("a", false) {
		t.Error("a file that is too long is read")
	}
	deep := ignore.New(func(string) []byte { return bytes.Repeat([]byte("zz\n"), ignore.MaxFile/3) })
	deep.Ignored(strings.Repeat("d/", 20)+"a", false)
	if !holdfast.IsKind(deep.Err(), holdfast.KindTooLarge) {
		t.Errorf("%v, want too_large", deep.Err())
	}
}

// FuzzIgnored: no input ends in a panic, and a match never costs more than its bound.
func FuzzIgnored(f *testing.F) {
	for _, line := range fixed {
		f.Add([]byte(line), "a/b/c", true)
	}
	f.Fuzz(func(t *testing.T, data []byte, path string, dir bool) {
		if !fs.ValidPath(path) || path == "." {
			return
		}
		tree := ignore.New(func(string) []byte { return data })
		tree.Ignored(path, dir)
	})
}

// TestSizesBeyondNumbers: if the sum of the sizes is more than an int64 holds, the tree counts as too large.
func TestSizesBeyondNumbers(t *testing.T) {
	most := ignore.Size{Entries: 10, Bytes: 1 << 62}
	c := ignore.NewSelection(t.Context(), t.TempDir(), func(string) bool { return false }, false, most)
	must(t, c.Admit(rooted.Entry{Mode: fs.ModeDir}))
	must(t, c.Admit(rooted.Entry{Depth: 1, Size: most.Bytes}))
	if err := c.Admit(rooted.Entry{Depth: 1, Size: math.MaxInt64}); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("%v, want too_large", err)
	}
}

// TestUnreadableRules: a .gitignore file that cannot be read ends a look at the tree: it could name secrets.
func TestUnreadableRules(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, ignore.Name), []byte("secret\n"), 0o644))
	c := ignore.NewSelection(t.Context(), dir, func(string) bool { return false }, true, ignore.Size{Entries: 10, Bytes: 10})
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max})) // each open is EMFILE
	ignored := c.Ignores("secret", false)
	err := c.Admit(rooted.Entry{Depth: 1})
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	if ignored || err == nil || !strings.Contains(err.Error(), ".gitignore") {
		t.Errorf("ignored: %v, %v", ignored, err)
	}
	c.Again()
	if ignored := c.Ignores("secret", false); !ignored {
		t.Error("another look does not read the file")
	}
	must(t, c.Admit(rooted.Entry{Depth: 1}))
}
