package tree

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/gitpatch"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// tame removes from a tree what git apply cannot replace, and makes everything readable.
func tame(t *testing.T, dir string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		info, err := os.Lstat(path)
		must(t, err)
		target, err := os.Readlink(path)
		switch {
		case err != nil:
			readable := fs.FileMode(0o600)
			if d.IsDir() {
				readable = 0o700
			}
			return os.Chmod(path, info.Mode()|readable)
		case target == "a" || len(target) > 255:
			return os.Remove(path)
		}
		return nil
	}))
}

// gitFiles returns what git sees of a tree, without what has a part of its name called .git.
func gitFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		rel, _ := filepath.Rel(dir, path)
		if d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		if target, err := os.Readlink(path); err == nil {
			out[rel] = "link to " + target
			return nil
		}
		info, err := d.Info()
		must(t, err)
		data, err := os.ReadFile(path)
		must(t, err)
		out[rel] = fmt.Sprintf("%o %q", info.Mode()&0o100, data)
		return nil
	}))
	return out
}

// gitTree restores a tree and makes it a repository without empty directories.
func gitTree(t *testing.T, p *place, root pack.ID) string {
	t.Helper()
	dir := elsewhere(t)
	must(t, Restore(t.Context(), p.store, root, dir, me()))
	// Directories become empty from the bottom up.
	var dirs []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		if d.Name() == ".git" {
			must(t, rooted.RemoveAll(path))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() && path != dir {
			dirs = append(dirs, path)
		}
		return nil
	}))
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = os.Remove(dirs[i])
	}
	git(t, dir, nil, "init", "-q", "--template=")
	return dir
}

func git(t *testing.T, dir string, stdin io.Reader, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, stdin
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%.2000s", args[0], err, out)
	}
}

// TestGitAppliesPatches: git apply of the patch between two random stored trees gives the files of the second from those
// of the first.
func TestGitAppliesPatches(t *testing.T) { gitAppliesPatches(t, 8) }

// TestGitAppliesPatchesLong does the same with more trees.
func TestGitAppliesPatchesLong(t *testing.T) {
	testkit.Long(t)
	gitAppliesPatches(t, 300)
}

// writeTexts replaces some text files, most of whose lines stay.
func writeTexts(p *place, r *rand.Rand) {
	for i := range 4 {
		text := ""
		for n := range 100 {
			text += fmt.Sprintln("line", n*(1+r.IntN(9)/8))
		}
		p.write(fmt.Sprint("texts/", i), text)
	}
}

func gitAppliesPatches(t *testing.T, n int) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED LOUDLY: there is no git")
	}
	var sum gitpatch.Summary
	for seed := range uint64(n) {
		p := quickPlace(t)
		g := &grower{t: t, r: rand.New(rand.NewPCG(seed, 5)), dir: p.dir}
		g.grow(40)
		tame(t, p.dir)
		writeTexts(p, g.r)
		a := p.scan()
		g.grow(1 + g.r.IntN(40))
		tame(t, p.dir)
		writeTexts(p, g.r)
		b := p.scan()
		want := gitFiles(t, p.dir)

		dir := gitTree(t, p, a.Root)
		var patch bytes.Buffer
		s, err := gitpatch.Write(t.Context(), &patch, Patch(t.Context(), p.store, a.Root, b.Root), gitpatch.Options{})
		must(t, err)
		if patch.Len() > 0 {
			git(t, dir, &patch, "apply", "--whitespace=nowarn")
		}
		if got := gitFiles(t, dir); !maps.Equal(got, want) {
			t.Fatalf("seed %d: git apply gives another tree: %.3000s", seed, cmp.Diff(want, got))
		}
		sum.Files += s.Files
		sum.Insertions += s.Insertions
		sum.EmptyDirs += s.EmptyDirs
		sum.Refused += s.Refused
	}
	if t.Logf("%+v", sum); sum.Files < 9*n || sum.Insertions < 40*n || sum.EmptyDirs < n || sum.Refused == 0 {
		t.Errorf("the trees differ too little: %+v", sum)
	}
}

// TestPatchOfAttributes: what git does not know is not a change, and no content is read for a change of the mode.
func TestPatchOfAttributes(t *testing.T) {
	p := newPlace(t)
	p.write("a", strings.Repeat("a\n", 200))
	p.write("b", "b\n")
	p.write("dir/c", "c\n")
	must(t, os.Mkdir(p.at("empty"), 0o755))
	must(t, os.Link(p.at("b"), p.at("z")))
	a := p.scan().Root
	must(t, os.Chtimes(p.at("a"), p.now, p.now))
	must(t, os.Chmod(p.at("b"), 0o4755))
	must(t, os.Chmod(p.at("dir/c"), 0o600))
	must(t, os.Chmod(p.at("empty"), 0o700))
	b := p.scan().Root
	must(t, os.RemoveAll(p.at("dir/c")))
	must(t, os.RemoveAll(p.at("empty")))
	must(t, os.Symlink("x", p.at("empty")))
	c := p.scan().Root

	write := func(from, to pack.ID) (string, gitpatch.Summary) {
		var out bytes.Buffer
		sum, err := gitpatch.Write(t.Context(), &out, Patch(t.Context(), p.store, from, to), gitpatch.Options{Format: holdfast.DiffPatch})
		must(t, err)
		return out.String(), sum
	}
	mode := "diff --git a/%[1]s b/%[1]s\nold mode 100644\nnew mode 100755\n"
	if got, sum := write(a, b); got != fmt.Sprintf(mode+strings.ReplaceAll(mode, "[1]", "[2]"), "b", "z") || sum != (gitpatch.Summary{Files: 2}) {
		t.Errorf("%+v\n%s", sum, got)
	}
	if got, sum := write(b, c); !strings.Contains(got, "deleted file mode 100644\n") || !strings.Contains(got, "new file mode 120000\n") ||
		sum != (gitpatch.Summary{Files: 2, Insertions: 1, Deletions: 1, EmptyDirs: 2}) {
		t.Errorf("%+v\n%s", sum, got)
	}
	if got, sum := write(b, b); got != "" || sum != (gitpatch.Summary{}) {
		t.Errorf("%+v\n%s", sum, got)
	}
	p.store.bad = c
	if _, err := gitpatch.Write(t.Context(), io.Discard, Patch(t.Context(), p.store, a, c), gitpatch.Options{}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("without the second tree: %v", err)
	}
}

// BenchmarkPatchTenOfTenThousand compares two trees of 10,000 files, ten of which differ.
func BenchmarkPatchTenOfTenThousand(b *testing.B) {
	p := newPacked(b)
	content := func(i int) string {
		text := ""
		for n := range 200 {
			text += fmt.Sprintf("line %d of file %d\n", n, i)
		}
		return text
	}
	for i := range 10_000 {
		p.write(fmt.Sprintf("dir%d/file%d", i%100, i), content(i))
	}
	from := p.scan().Root
	for i := range 10 {
		p.write(fmt.Sprintf("dir%d/file%d", i*7, i*700+i*7), strings.Replace(content(i*707), "line 100 ", "changed ", 1))
	}
	to := p.scan().Root
	b.ReportAllocs()
	for b.Loop() {
		src := p.packs.In(p.known)
		sum, err := gitpatch.Write(b.Context(), io.Discard, Patch(b.Context(), src, from, to), gitpatch.Options{})
		if err != nil || sum.Files != 10 || sum.Insertions != 10 {
			b.Fatalf("%+v %v", sum, err)
		}
	}
}
