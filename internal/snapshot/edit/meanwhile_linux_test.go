package edit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/snapshot/edit"
)

// save writes a file as editors do: under another name first.
func save(t *testing.T, file, content string) {
	t.Helper()
	must(t, os.WriteFile(file+"~", []byte(content), 0o644))
	must(t, os.Rename(file+"~", file))
}

// has fails the test unless a directory has exactly these entries. A directory, or a symlink to nothing, has the content "/".
func has(t *testing.T, dir, when string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, name := range names(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if got[name] = string(b); err != nil {
			got[name] = "/"
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: the directory has %q, want %q", when, got, want)
	}
}

// meanwhile are plans for the path a, each with what is there before and the point at which somebody else is quicker.
var meanwhile = []struct {
	name, point string
	old, next   edit.Entry
	put         func(t *testing.T, a string)
}{
	{"a file is replaced", "placing", file("old"), file("new"), func(t *testing.T, a string) { save(t, a, "old") }},
	{"a file is made", "placing", edit.Entry{}, file("new"), func(*testing.T, string) {}},
	{"a file is removed", "removing", file("old"), edit.Entry{}, func(t *testing.T, a string) { save(t, a, "old") }},
	{
		"a file becomes a symlink", "placing", file("old"),
		edit.Entry{Type: edit.Symlink, Target: "b"},
		func(t *testing.T, a string) { save(t, a, "old") },
	},
	{
		"a symlink becomes a file", "placing",
		edit.Entry{Type: edit.Symlink, Target: "b"},
		file("new"),
		func(t *testing.T, a string) { must(t, os.Symlink("b", a)) },
	},
	{
		"a file becomes a directory", "removing", file("old"),
		edit.Entry{Type: edit.Dir, Mode: 0o755},
		func(t *testing.T, a string) { save(t, a, "old") },
	},
	{
		"a directory is made", "placing",
		edit.Entry{},
		edit.Entry{Type: edit.Dir, Mode: 0o755},
		func(*testing.T, string) {},
	},
	{
		"a directory becomes a file", "placing",
		edit.Entry{Type: edit.Dir},
		file("new"),
		func(t *testing.T, a string) { must(t, os.Mkdir(a, 0o755)) },
	},
}

// staging returns an Editor of a new directory in which a plan of one step, for the path a, is staged.
func staging(t *testing.T, old, next edit.Entry, put func(*testing.T, string)) (*edit.Editor, edit.Plan, string) {
	t.Helper()
	e := editor(t)
	a := filepath.Join(e.Dir, "a")
	must(t, os.Remove(a))
	put(t, a)
	p := edit.Plan{Steps: []edit.Step{{Path: "a", Old: old, New: next}}}
	must(t, e.Stage(t.Context(), p))
	return e, p, a
}

type killed struct{}

// killAt carries out a plan, and ends it at the nth point that it passes. at is called at each.
func killAt(t *testing.T, e *edit.Editor, p edit.Plan, n int, at func(point string)) (left []string, ended bool) {
	t.Helper()
	passed := 0
	e.At = func(point string) {
		at(point)
		if passed++; passed > n {
			panic(killed{})
		}
	}
	defer func() {
		e.At = func(string) {}
		if r := recover(); r != nil {
			if _, ended = r.(killed); !ended {
				panic(r)
			}
		}
	}()
	left, err := e.Apply(t.Context(), p)
	must(t, err)
	return left, false
}

// TestSaveMeanwhile: a file that somebody saves between the last look at its path and the change stays, under its name, and is
// reported, wherever the plan is interrupted and carried out again. Nothing staged is left. (I-47)
func TestSaveMeanwhile(t *testing.T) {
	for _, c := range meanwhile {
		t.Run(c.name, func(t *testing.T) {
			for n := 0; ; n++ {
				e, p, a := staging(t, c.old, c.next, c.put)
				saved := false
				left, ended := killAt(t, e, p, n, func(point string) {
					if point == c.point && !saved {
						saved = true
						save(t, a, "precious")
					}
				})
				when := fmt.Sprintf("ended after %d points", n)
				for ended {
					left, ended = killAt(t, e, p, 1000, func(string) {})
				}
				if !saved {
					continue
				}
				has(t, e.Dir, when, map[string]string{"a": "precious"})
				if !slices.Equal(left, []string{"a"}) {
					t.Errorf("%s: left %q", when, left)
				}
				if t.Failed() || n > 20 {
					return
				}
			}
		})
	}
}

// TestApplyCrash: a plan that is interrupted at any point can be carried out again, also without the newer renames.
func TestApplyCrash(t *testing.T) {
	points := map[string]bool{}
	for _, plain := range []bool{false, true} {
		for n := 0; ; n++ {
			e := editor(t)
			save(t, filepath.Join(e.Dir, "r"), "removed")
			save(t, filepath.Join(e.Dir, "f"), "becomes a directory")
			p := edit.Plan{Steps: []edit.Step{
				{Path: "a", Old: file("old"), New: file("new")},
				{Path: "b", New: file("b")},
				{Path: "f", Old: file("becomes a directory"), New: edit.Entry{Type: edit.Dir, Mode: 0o755}},
				{Path: "l", New: edit.Entry{Type: edit.Symlink, Target: "b"}},
				{Path: "r", Old: file("removed")},
			}}
			if plain {
				e.Plain()
			}
			must(t, e.Stage(t.Context(), p))
			must(t, os.Remove(filepath.Join(e.Dir, e.Staged(p)[1]))) // as if a power cut had taken it
			left, ended := killAt(t, e, p, n, func(point string) { points[point] = true })
			whole := !ended
			for ended {
				left, ended = killAt(t, e, p, 1000, func(string) {})
			}
			has(t, e.Dir, fmt.Sprintf("ended after %d points", n), map[string]string{"a": "new", "b": "b", "f": "/", "l": "b"})
			if len(left) > 0 {
				t.Errorf("ended after %d points: left %q", n, left)
			}
			if whole || t.Failed() {
				break
			}
		}
	}
	for _, want := range []string{"written", "removing", "aside", "removed", "placing", "exchanged", "placed"} {
		if !points[want] {
			t.Errorf("the plan never passed %s", want)
		}
	}
}

// TestSavedTwiceMeanwhile: of two files that somebody saves during a rewind none is lost, and both are reported: the newer one
// keeps the name.
func TestSavedTwiceMeanwhile(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		second string
		kill   bool
	}{
		"in one go":                   {"returning", false},
		"after the server was killed": {"exchanged", true},
	} {
		t.Run(name, func(t *testing.T) {
			e, p, a := staging(t, file("old"), file("new"), func(t *testing.T, a string) { save(t, a, "old") })
			n, passed := 1000, 0
			left, ended := killAt(t, e, p, n, func(point string) {
				switch passed++; point {
				case "placing":
					save(t, a, "first")
				case c.second:
					save(t, a, "second")
					if c.kill {
						panic(killed{})
					}
				}
			})
			if ended != c.kill {
				t.Fatalf("ended: %v after %d points", ended, passed)
			}
			waits := e.Staged(p)[0]
			for i := range 2 { // Apply may be repeated
				if ended || i > 0 {
					left, _ = killAt(t, e, p, n, func(string) {})
				}
				has(t, e.Dir, name, map[string]string{"a": "second", waits: "first"})
				if !slices.Equal(left, []string{waits, "a"}) {
					t.Errorf("left %q", left)
				}
			}
			must(t, edit.Record{Kept: "k", To: "t"}.Write(dir, e.Staged(p)))
			r, err := edit.ReadRecord(dir)
			must(t, err)
			_, err = r.Apply(t.Context(), dir, e, p)
			must(t, err)
			must(t, edit.Unstage(dir, e.Tree))
			if edit.Staged(dir) {
				t.Error("the record stays")
			}
			has(t, e.Dir, "after Unstage", map[string]string{"a": "second", waits: "first"})
			must(t, os.Remove(a))
			left, err = e.Settle(t.Context(), p)
			if must(t, err); !slices.Equal(left, []string{"a"}) {
				t.Errorf("left %q", left)
			}
			has(t, e.Dir, "after the name was free", map[string]string{"a": "first"})
		})
	}
}

// TestSettle: a plan that is given up in the middle gives back what it took from its place, and removes nothing else but its own.
func TestSettle(t *testing.T) {
	for _, c := range meanwhile {
		for n := range 8 {
			e, p, a := staging(t, c.old, c.next, c.put)
			saved := false
			_, _ = killAt(t, e, p, n, func(point string) {
				if point == c.point && !saved {
					saved = true
					save(t, a, "precious")
				}
			})
			_, err := e.Settle(t.Context(), p)
			must(t, err)
			if got := names(t, e.Dir); slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, edit.Prefix) }) {
				t.Errorf("%s, ended after %d points: the directory has %q", c.name, n, got)
			}
			if saved {
				has(t, e.Dir, c.name, map[string]string{"a": "precious"})
			}
		}
	}
}
