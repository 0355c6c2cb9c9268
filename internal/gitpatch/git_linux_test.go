package gitpatch

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
)

// repo is an empty git repository.
type repo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED LOUDLY: there is no git")
	}
	dir, err := os.MkdirTemp("/dev/shm", "hf-patch")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	r := repo{t, dir}
	r.git("", "init", "-q", "--template=")
	return r
}

// try runs git without any settings of the machine.
func (r repo) try(stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(stdin)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, errs.String())
	}
	return string(out), err
}

func (r repo) git(stdin string, args ...string) string {
	r.t.Helper()
	out, err := r.try(stdin, args...)
	must(r.t, err)
	return out
}

// fill replaces the files of the work tree.
func (r repo) fill(tree files) {
	r.t.Helper()
	r.clear()
	for path, n := range tree {
		at := filepath.Join(r.dir, path)
		must(r.t, os.MkdirAll(filepath.Dir(at), 0o755))
		if n.mode == Symlink {
			must(r.t, os.Symlink(n.data, at))
			continue
		}
		must(r.t, os.WriteFile(at, []byte(n.data), fs.FileMode(n.mode)&0o777))
	}
}

func (r repo) clear() {
	entries, err := os.ReadDir(r.dir)
	must(r.t, err)
	for _, e := range entries {
		if e.Name() != ".git" {
			must(r.t, os.RemoveAll(filepath.Join(r.dir, e.Name())))
		}
	}
}

// read returns the files of the work tree.
func (r repo) read() files {
	r.t.Helper()
	out := files{}
	must(r.t, filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		rel, _ := filepath.Rel(r.dir, path)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			out[rel] = link(target)
			return err
		}
		data, err := os.ReadFile(path)
		must(r.t, err)
		info, err := d.Info()
		out[rel] = node{Regular | Mode(info.Mode()&0o111), string(data)}
		return err
	}))
	return out
}

// applies reports whether git apply of the patch on from gives to, and git apply -R gives from back.
func (r repo) applies(from, to files, patch string) {
	r.t.Helper()
	if patch == "" {
		return // git apply refuses it
	}
	r.fill(from)
	r.git(patch, "apply", "--whitespace=nowarn")
	r.holds(to)
	r.git(patch, "apply", "--whitespace=nowarn", "-R")
	r.holds(from)
}

// holds checks the files of the work tree.
func (r repo) holds(want files) {
	r.t.Helper()
	if got := r.read(); !maps.Equal(got, want) {
		r.t.Errorf("another tree: %.4000s", cmp.Diff(want, got, cmp.AllowUnexported(node{})))
	}
}

// tree stores files in the repository.
func (r repo) tree(tree files) string {
	r.t.Helper()
	r.fill(tree)
	r.git("", "add", "-A", "-f")
	return strings.TrimSpace(r.git("", "write-tree"))
}

// TestAsGit: names, table and patch of the golden cases are those of git, byte for byte, and git apply takes the
// patches. Patches of binary files are compared without their contents, because git compresses otherwise.
func TestAsGit(t *testing.T) {
	r := newRepo(t)
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			r := repo{t, r.dir}
			r.applies(c[0], c[1], patchOf(t, c[0], c[1]))
			if name == "names-not-git" {
				return // git writes a patch that git apply refuses
			}
			from, to := r.tree(c[0]), r.tree(c[1])
			names, _ := output(t, c[0], c[1], Options{Format: holdfast.DiffNames})
			if diff := cmp.Diff(r.git("", "diff", "--no-renames", "--name-only", from, to), names); diff != "" {
				t.Errorf("the names differ from those of git: %s", diff)
			}
			patch, _ := output(t, c[0], c[1], Options{NoLiterals: true})
			got := statOf(t, c[0], c[1]) + "\n" + patch
			if diff := cmp.Diff(r.git("", "diff", "--no-renames", "--full-index", "--stat=100", "--patch", from, to), strings.TrimPrefix(got, "\n")); diff != "" {
				t.Errorf("the table or the patch differs from that of git: %s", diff)
			}
		})
	}
}

// TestRandomPatches: git apply of the patch between random trees gives the second tree from the first. Ten pairs of trees
// lie side by side in one repository, because starting git takes most of the time.
func TestRandomPatches(t *testing.T) {
	r := newRepo(t)
	for seed := range uint64(21) {
		g := &grower{rand.New(rand.NewPCG(seed, 7))}
		from, to := files{}, files{}
		for n := range 10 {
			a := files{}
			g.change(a, 5+g.r.IntN(25))
			b := maps.Clone(a)
			g.change(b, 1+g.r.IntN(25))
			for path, node := range a {
				from[fmt.Sprint(n, "/", path)] = node
			}
			for path, node := range b {
				to[fmt.Sprint(n, "/", path)] = node
			}
		}
		patch, sum := output(t, from, to, Options{})
		r.applies(from, to, patch)
		if sum.Omitted+sum.Refused+sum.EmptyDirs != 0 {
			t.Errorf("left out: %+v", sum)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestNamesThatGitRefuses: a patch leaves out exactly the names that git does not take.
func TestNamesThatGitRefuses(t *testing.T) {
	r := newRepo(t)
	id := strings.TrimSpace(r.git("x", "hash-object", "-w", "--stdin"))
	index, want := "", map[string]bool{}
	for i, n := range []struct {
		path string
		mode Mode
		want bool
	}{
		{".git/config", Regular, true},
		{"a/.git/config", Regular, true},
		{"a/.git", Regular, true},
		{".GiT/x", Regular, true},
		{"git~1/x", Regular, true},
		{".git ./x", Regular, true},
		{".git::$INDEX/x", Regular, true},
		{`a\.git/x`, Regular, true},
		{`a\.git\x`, Regular, true},
		{".gitmodules", Symlink, true},
		{"a/.GITmodules .", Symlink, true},
		{"gitmod~2", Symlink, true},
		{"gi7eba~1", Symlink, true},
		{".gitmodules", Regular, false},
		{".gitignore", Symlink, false},
		{".git\n/x", Regular, false},
		{".gitx/x", Regular, false},
		{"x.git/x", Regular, false},
		{"git~2/x", Regular, false},
		{"git/x", Regular, false},
		{`a\b`, Regular, false},
	} {
		path := fmt.Sprint(i, "/", n.path)
		index += fmt.Sprintf("%o %s\t%s\x00", n.mode, id, path)
		want[path] = !n.want
		text, sum := output(t, files{}, files{path: {n.mode, "x"}}, Options{})
		if (sum.Refused == 1) != n.want || (text == "") != n.want || sum.Files+sum.Refused != 1 {
			t.Errorf("%q: %+v\n%s", path, sum, text)
		}
	}
	r.git(index, "update-index", "-z", "--add", "--index-info")
	taken := r.git("", "ls-files", "-z")
	for path, ok := range want {
		if strings.Contains("\x00"+taken, "\x00"+path+"\x00") != ok {
			t.Errorf("git takes %q: %t", path, !ok)
		}
	}
}

// TestPatchWithoutAContent: git apply refuses a patch that does not hold a file, as a whole.
func TestPatchWithoutAContent(t *testing.T) {
	r := newRepo(t)
	large := strings.Repeat("a line\n", LargeFile/7+1)
	for name, c := range map[string]struct {
		from, to files
		o        Options
	}{
		"large":   {files{"a": file("a\n"), "b": file(large)}, files{"a": file("A\n"), "b": file(large + "more\n")}, Options{}},
		"new":     {files{"a": file("a\n")}, files{"a": file("A\n"), "b": file(large)}, Options{}},
		"deleted": {files{"a": file("a\n"), "b": file(large)}, files{"a": file("A\n")}, Options{}},
		"none":    {files{"a": file("a\n"), "b": file("\x00")}, files{"a": file("A\n"), "b": file("\x00b")}, Options{NoLiterals: true}},
	} {
		patch, sum := output(t, c.from, c.to, c.o)
		r.fill(c.from)
		if _, err := r.try(patch, "apply"); err == nil || sum.Omitted != 1 {
			t.Errorf("%s: git apply takes a patch without a content: %v %+v", name, err, sum)
		}
		r.holds(c.from)
	}
}

// grower makes random trees. Their symlinks lead into no loop and to no name that is too long: git apply
// refuses to put a directory in the place of such a link.
type grower struct{ r *rand.Rand }

var someNames = []string{"a", "b", "a.b", "a b", "ü", "\xff\xfe", "-", "*", "x\ny", "t\tb", `"`, `\`, " ", "a ", "z\x01", "b/", "dev", strings.Repeat("n", 200)}

func (g *grower) path() string {
	path := ""
	for range 1 + g.r.IntN(3) {
		path = filepath.Join(path, someNames[g.r.IntN(len(someNames))])
	}
	return path
}

func (g *grower) node() node {
	switch g.r.IntN(10) {
	case 0:
		return link([]string{"gone", "../x", "no\nlf\n", "/etc/passwd", strings.Repeat("long/", 600)}[g.r.IntN(5)])
	case 1:
		return file("")
	case 2:
		return script(g.text() + "\x00" + g.text())
	case 3:
		b := make([]byte, g.r.IntN(3000))
		for i := range b {
			b[i] = byte(g.r.Uint32())
		}
		return file(string(b))
	case 4:
		return script(g.text())
	case 5:
		// git looks for a NUL at the start only, so this is a text.
		return file(strings.Repeat("a line\r\n", 1000) + g.text() + "\x00\n" + g.text())
	}
	return file(g.text())
}

// text returns lines, many of them equal.
func (g *grower) text() string {
	out, kinds := "", 1+g.r.IntN(400)
	for range g.r.IntN(300) {
		out += []string{"", "x", "\t", "--- ", "+", "\r", "\xff", "func "}[g.r.IntN(8)] + fmt.Sprint(g.r.IntN(kinds)) + "\n"
	}
	if g.r.IntN(4) == 0 {
		out += "no newline"
	}
	return out
}

// edit changes some lines of a text.
func (g *grower) edit(text string) string {
	all := strings.SplitAfter(text, "\n")
	for range 1 + g.r.IntN(1+g.r.IntN(60)) {
		at := g.r.IntN(len(all))
		switch g.r.IntN(3) {
		case 0:
			all[at] = g.text()
		case 1:
			all = slices.Insert(all, at, all[g.r.IntN(len(all))])
		case 2:
			all[at] = ""
		}
	}
	return strings.Join(all, "")
}

// change makes n changes. Whatever is in the way of a new path goes.
func (g *grower) change(tree files, n int) {
	for range n {
		known := slices.Sorted(maps.Keys(tree))
		if len(known) > 0 && g.r.IntN(2) == 0 {
			path := known[g.r.IntN(len(known))]
			old := tree[path]
			switch {
			case g.r.IntN(4) == 0:
				delete(tree, path)
			case g.r.IntN(4) == 0:
				tree[path] = g.node()
			case old.mode != Symlink && g.r.IntN(4) == 0:
				tree[path] = node{Regular + Executable - old.mode, old.data}
			case old.mode != Symlink:
				tree[path] = node{old.mode, g.edit(old.data)}
			}
			continue
		}
		path := g.path()
		for other := range tree {
			if strings.HasPrefix(other, path+"/") || strings.HasPrefix(path, other+"/") {
				delete(tree, other)
			}
		}
		tree[path] = g.node()
	}
}
