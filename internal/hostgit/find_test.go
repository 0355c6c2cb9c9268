package hostgit

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	r := &Reader{Dir: dir}
	if !r.Look() || r.Look() {
		t.Error("the first look changes the result, the second does not")
	}
	if got, err := r.Held(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func sh(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", "git() { command git -c safe.directory=* -c user.name=a -c user.email=a@example.com \"$@\"; }; "+script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+filepath.Join(dir, "nohome"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

const link = `gitlink() { git -C $1 update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,$2; }; `

// TestHeld: of each layout of repositories, what git obeys is found.
func TestHeld(t *testing.T) {
	for name, c := range map[string]struct {
		make string
		at   string
		want []string
	}{
		"plain":         {make: `git init -q .`},
		"nothing":       {make: `:`, want: []string{"HEAD"}},
		"placeholder":   {make: `mkdir .git`, want: []string{"HEAD"}},
		"not a git":     {make: `git init -q .; rmdir .git/refs/heads .git/refs/tags .git/refs`, want: []string{"HEAD"}},
		"bad head":      {make: `git init -q .; echo refs/heads/x > .git/HEAD`, want: []string{"HEAD"}},
		"pipe":          {make: `mkfifo .git`, want: []string{"HEAD"}},
		"a file HEAD":   {make: `echo x > HEAD`, want: []string{"HEAD"}},
		"a HEAD of git": {make: `echo ref: refs/heads/x > HEAD`, want: []string{"."}},
		"a linked HEAD": {make: `ln -s refs/heads/x HEAD`, want: []string{"."}},
		"bare":          {make: `git init -q --bare .`, want: []string{"."}},
		"detached":      {make: `git init -q .; echo 1111111111111111111111111111111111111111 > .git/HEAD`},
		"separate":      {make: `git init -q --separate-git-dir=store .`, want: []string{"store"}},
		"to come":       {make: `echo gitdir: a/b > .git`, want: []string{"a/b"}},
		"elsewhere":     {make: `git init -q --separate-git-dir=../store .`},
		"bare inside":   {make: `git init -q --bare .bare; echo gitdir: ./.bare > .git`, want: []string{".bare"}},
		"common": {
			make: `git init -q x; mkdir real; mv x/.git/objects x/.git/refs real; mv x/.git .; echo ../real > .git/commondir`, want: []string{"real"},
		},
		"worktree": {
			make: `git init -q ../main; git -C ../main commit -q --allow-empty -m x; git -C ../main worktree add -q $PWD/w; ` + link + `gitlink w sub`,
			at:   "w", want: []string{"sub"},
		},
		"above":     {make: `git init -q .; mkdir -p in; ` + link + `gitlink . in/sub; gitlink . other`, at: "in", want: []string{"HEAD", "sub"}},
		"submodule": {make: `git init -q .; ` + link + `gitlink . in/sub; gitlink . other; git init -q in/sub; git -C in/sub config a.b c`, want: []string{"in/sub/.git", "other"}},
		"itself":    {make: `git init -q .; mkdir in; ` + link + `gitlink . in`, at: "in", want: []string{"HEAD"}},
		"nested": {
			make: link + `git init -q .; gitlink . a; mkdir -p .git/modules; git init -q --separate-git-dir=.git/modules/a a; gitlink a b; git init -q a/b; gitlink a/b c`,
			want: []string{"a/.git", "a/b/.git", "a/b/c"},
		},
		"store of a submodule": {make: link + `git init -q .; gitlink . a; git init -q --separate-git-dir=s a`, want: []string{"a/.git", "s"}},
		"across a symlink":     {make: link + `git init -q .; git init -q ../out; gitlink ../out x; ln -s ../out a; gitlink . a`, want: []string{"a/.git"}},
		"loop":                 {make: link + `git init -q .; gitlink . a; mkdir a; echo gitdir: ../.git > a/.git`, want: []string{"a/.git", "a/a"}},
		"split":                {make: link + `git init -q .; gitlink . a; git update-index --split-index; gitlink . b`, want: []string{"a", "b"}},
		"conflict": {
			make: `git init -q .; printf '160000 1111111111111111111111111111111111111111 2\ta\n' | git update-index --index-info`, want: []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			sh(t, dir, c.make)
			holds(t, filepath.Join(dir, c.at), c.want...)
		})
	}
}

// TestNotKnown: what cannot be read is an error, which names no path of the host and has a hint.
func TestNotKnown(t *testing.T) {
	for name, script := range map[string]string{
		"damaged":   `git init -q .; echo DIRC > .git/index`,
		"pipe":      `git init -q .; mkfifo .git/index`,
		"nested":    link + `git init -q .; gitlink . a; git init -q a; echo x > a/.git/index`,
		"no shared": link + `git init -q .; gitlink . a; git update-index --split-index; rm .git/sharedindex.*`,
		"replaced":  link + `git init -q .; gitlink . a; git update-index --split-index; git update-index --cacheinfo 160000,2222222222222222222222222222222222222222,a`,
		"deep":      `git init -q .; ` + strings.Repeat(link+`gitlink . a; mkdir a; cd a; git init -q .; `, maxDepth),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			sh(t, dir, script)
			r := &Reader{Dir: dir}
			r.Look()
			if _, err := r.Held(); err == nil || holdfast.HintOf(err) == "" || strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, hint %q", err, holdfast.HintOf(err))
			}
		})
	}
	r := &Reader{Dir: filepath.Join(t.TempDir(), "none")}
	if r.Look(); !errors.Is(r.err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", r.err)
	}
}

// TestLookAgain: what the user does to the repository while a session lives is noticed.
func TestLookAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &Reader{Dir: dir}
	for _, step := range []struct {
		script string
		want   []string
	}{
		{`:`, []string{"HEAD"}},
		{`git init -q .`, nil},
		{link + `gitlink . a`, []string{"a"}},
		{`git init -q a`, []string{"a/.git"}},
		{link + `gitlink a b`, []string{"a/.git", "a/b"}},
		{`rm -r a/.git; git init -q --separate-git-dir=.cache a`, []string{".cache", "a/.git"}},
		{`git rm -q --cached a`, nil},
		{`rm .git/HEAD`, []string{"HEAD"}},
		{`rm -r .git; echo ref: refs/heads/x > HEAD`, []string{"."}},
	} {
		sh(t, dir, step.script)
		if !r.Look() {
			t.Errorf("%s: no change", step.script)
		}
		if got, err := r.Held(); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, %v; want %q", step.script, got, err, step.want)
		}
	}
}

// TestHeldNeedsTheDisk: if an error of the disk hides what git obeys, Held fails, and the next Look looks again.
func TestHeldNeedsTheDisk(t *testing.T) {
	dir := t.TempDir()
	sh(t, dir, `git init -q .; mv .git/HEAD head; ln -s /proc/self/mem .git/HEAD`) // a regular file of which each read is EIO
	r := &Reader{Dir: dir}
	for range 2 {
		r.Look()
		if held, err := r.Held(); !holdfast.IsKind(err, holdfast.KindConflict) {
			t.Errorf("%q, %v", held, err)
		}
	}
	sh(t, dir, `mv head .git/HEAD`)
	if !r.Look() {
		t.Error("the next look does not look again")
	}
	if held, err := r.Held(); err != nil || len(held) > 0 {
		t.Errorf("%q, %v", held, err)
	}
}
