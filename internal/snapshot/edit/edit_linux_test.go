package edit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file is an entry with a content.
func file(content string) edit.Entry {
	return edit.Entry{Type: edit.File, Mode: 0o644, Size: int64(len(content)), Open: func(context.Context) (io.Reader, error) {
		return strings.NewReader(content), nil
	}}
}

// editor returns an Editor of a new directory with a file a.
func editor(t *testing.T) *edit.Editor {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o644))
	return &edit.Editor{Tree: edit.Tree{Dir: dir}, UID: os.Getuid(), GID: os.Getgid(), Now: time.Now(), Tag: "t", At: func(string) {}}
}

func names(t *testing.T, dir string) (out []string) {
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// TestApplyAgain: a plan can be carried out again after it was done, and without what was staged.
func TestApplyAgain(t *testing.T) {
	e := editor(t)
	p := edit.Plan{Steps: []edit.Step{
		{Path: "a", Old: file("old"), New: file("new")},
		{Path: "d", New: edit.Entry{Type: edit.Dir, Mode: 0o750}},
		{Path: "d/b", New: file("b")},
		{Path: "d/l", New: edit.Entry{Type: edit.Symlink, Target: "b"}},
	}}
	conflicts, err := e.Check(t.Context(), p)
	if must(t, err); len(conflicts) > 0 {
		t.Fatalf("conflicts %q", conflicts)
	}
	must(t, e.Stage(t.Context(), p))
	must(t, e.Clean(e.Staged(p))) // as if a power cut had taken it
	for range 2 {
		left, err := e.Apply(t.Context(), p)
		if must(t, err); len(left) > 0 {
			t.Errorf("left %q", left)
		}
		for name, want := range map[string]string{"a": "new", "d/b": "b", "d/l": "b"} {
			if got, err := os.ReadFile(filepath.Join(e.Dir, name)); err != nil || string(got) != want {
				t.Errorf("%s has %q, %v", name, got, err)
			}
		}
		if got := names(t, e.Dir); !slices.Equal(got, []string{"a", "d"}) {
			t.Errorf("the directory has %q", got)
		}
	}
	info, err := os.Stat(filepath.Join(e.Dir, "d"))
	if must(t, err); info.Mode().Perm() != 0o750 {
		t.Errorf("d has the mode %s", info.Mode())
	}
}

// TestContentThatIsGone: a plan whose content cannot be read stages nothing that Clean does not remove, and changes nothing.
func TestContentThatIsGone(t *testing.T) {
	e := editor(t)
	gone := file("gone")
	gone.Open = func(context.Context) (io.Reader, error) { return nil, fmt.Errorf("damaged") }
	p := edit.Plan{Steps: []edit.Step{{Path: "a", Old: file("old"), New: gone}, {Path: "b", New: file("b")}}}
	if err := e.Stage(t.Context(), p); err == nil {
		t.Fatal("it was staged")
	}
	must(t, e.Clean(e.Staged(p)))
	if got := names(t, e.Dir); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the directory has %q", got)
	}
}

// TestCleanRemovesStagedAlone: Clean removes nothing that has another kind of name, lies elsewhere or is a directory with content.
func TestCleanRemovesStagedAlone(t *testing.T) {
	e := editor(t)
	must(t, os.MkdirAll(filepath.Join(e.Dir, edit.Prefix+"full", "x"), 0o755))
	outside := filepath.Join(filepath.Dir(e.Dir), edit.Prefix+"outside")
	must(t, os.WriteFile(outside, nil, 0o600))
	must(t, e.Clean([]string{"a", "../" + edit.Prefix + "outside", edit.Prefix + "full", "none/" + edit.Prefix + "x", "/"}))
	if got := names(t, e.Dir); !slices.Equal(got, []string{edit.Prefix + "full", "a"}) {
		t.Errorf("the directory has %q", got)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// TestRecord: a record names what was staged, whatever the names are; one that cannot be read is an error.
func TestRecord(t *testing.T) {
	dir, tree := t.TempDir(), editor(t).Dir
	staged := edit.Prefix + "\xff"
	must(t, os.WriteFile(filepath.Join(tree, staged), nil, 0o600))
	must(t, edit.Record{Kept: "k", To: "t"}.Write(dir, []string{staged}))
	r, err := edit.ReadRecord(dir)
	if must(t, err); r.Kept != "k" || r.To != "t" {
		t.Errorf("the record is %+v", r)
	}
	for range 2 {
		must(t, edit.Unstage(dir, edit.Tree{Dir: tree}))
	}
	if got := append(names(t, tree), names(t, dir)...); !slices.Equal(got, []string{"a"}) {
		t.Errorf("left: %q", got)
	}
	must(t, os.WriteFile(filepath.Join(dir, "rewinding"), []byte("{"), 0o600))
	if err := edit.Unstage(dir, edit.Tree{Dir: tree}); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("%v", err)
	}
}

// TestApplyNeedsDescriptors: an Apply for which the server has too few descriptors fails. It does not take a directory that it
// could not look at for one that is gone.
func TestApplyNeedsDescriptors(t *testing.T) {
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	for n := uint64(0); n < limit.Cur; n++ {
		e := editor(t)
		dir := filepath.Join(e.Dir, "d")
		must(t, os.Mkdir(dir, 0o755))
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: limit.Max}))
		left, err := e.Apply(t.Context(), edit.Plan{Steps: []edit.Step{{Path: "d", Old: edit.Entry{Type: edit.Dir}}}})
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		if err != nil {
			continue
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			t.Errorf("with %d descriptors the directory stays: %v, left %q", n, err, left)
		}
		return
	}
}
