package check

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// on is a checker over a file system of links.
func on(t testing.TB, fs FS, s Settings) *Checker {
	t.Helper()
	c, err := New(s, Options{Cwd: "/project", Home: "/home/u", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantPaths asks about each path; the expected answers are in the map.
func wantPaths(t *testing.T, c *Checker, o Op, want map[string]bool) {
	t.Helper()
	for p, ok := range want {
		if v := c.Path(p, o); v.Allowed != ok {
			t.Errorf("%s %q: %+v", o, p, v)
		}
	}
}

func TestSDKK1_BothFormsOfThePathQuestion(t *testing.T) {
	c := checker(t, Settings{DeniedPaths: []string{"/etc"}, AllowedWritePaths: []string{"/project"}})
	for _, q := range []struct {
		path  string
		op    Op
		tool  string
		scope string
	}{{"/etc/shadow", Read, "Read", "deniedPaths"}, {"/var/x", Write, "Write", "allowedWritePaths"}} {
		var d *DeniedError
		err := c.CheckPath(q.path, q.op)
		if !errors.As(err, &d) || !holdfast.IsKind(err, holdfast.KindDenied) || c.Path(q.path, q.op).Allowed {
			t.Fatalf("%s: %v", q.path, err)
		}
		if d.Tool != q.tool || !strings.Contains(err.Error(), q.path) || !strings.Contains(d.Reason, q.scope) {
			t.Errorf("%s: tool %s, %v", q.path, d.Tool, err)
		}
	}
	if err := c.CheckPath("/project/x", Write); err != nil {
		t.Error(err)
	}
}

func TestSDKK2_NoRulesAllowEveryPath(t *testing.T) {
	for _, o := range []Op{Read, Write} {
		wantPaths(t, checker(t, Settings{DeniedCommands: []string{"rm"}}), o, map[string]bool{"/": true, "/etc/shadow": true, "": true, "../x": true})
	}
}

func TestSDKK3_BothSidesAreNormalised(t *testing.T) {
	fs := linkFS{"/lib": "/usr/lib", "/project/up": ".."}
	c := on(t, fs, Settings{DeniedPaths: []string{"/lib//x/../secret/"}, AllowedReadPaths: []string{"/usr/lib/", "/project"}})
	wantPaths(t, c, Read, map[string]bool{
		"/lib/secret": false, "/usr/lib/secret/k": false, "/lib/./secret": false, "/usr//lib///secret/": false, "/usr/lib/a/../secret/k": false,
		"/lib/open": true, "/usr/lib/open": true, "a": true, "./a/": true, "up/etc": false,
	})
}

func TestSDKK4_PrefixesEndAtSegments(t *testing.T) {
	for _, rule := range []string{"/project", "/project/"} {
		c := checker(t, Settings{AllowedReadPaths: []string{rule}})
		wantPaths(t, c, Read, map[string]bool{"/project": true, "/project/": true, "/project/a": true, "/projects": false, "/projectx/a": false, "/proj": false, "/": false})
	}
	wantPaths(t, checker(t, Settings{DeniedPaths: []string{"/"}}), Read, map[string]bool{"/": false, "/a": false})
}

func TestSDKK5_DenyFirstThenTheListOfTheOperation(t *testing.T) {
	c := checker(t, Settings{AllowedReadPaths: []string{"/project", "/data"}, AllowedWritePaths: []string{"/project/out"}, DeniedPaths: []string{"/project/out/keep"}})
	wantPaths(t, c, Read, map[string]bool{"a": true, "/data/x": true, "out/keep": false, "/etc": false})
	wantPaths(t, c, Write, map[string]bool{"a": false, "/data/x": false, "out/x": true, "out/keep/x": false})
}

func TestSDKK6_RelativePathsAreTheToolsOwn(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := checker(t, Settings{AllowedReadPaths: []string{"/project"}})
	wantPaths(t, c, Read, map[string]bool{"x": true, "../x": false, "..": false, wd: false})
}

func TestSDKK7_MissingTailsAndDanglingLinks(t *testing.T) {
	fs := linkFS{"/project/link": "/secret", "/project/dangling": "/secret/not/there", "/project/out": "/project/new/dir"}
	c := on(t, fs, Settings{AllowedWritePaths: []string{"/project"}, DeniedPaths: []string{"/secret"}})
	wantPaths(t, c, Write, map[string]bool{"link/new/file": false, "dangling": false, "dangling/x": false, "out/x/y": true, "not/there/yet": true})
}

func TestSDKK8_DotDotAfterLinks(t *testing.T) {
	fs := linkFS{"/project/link": "/data/deep/dir"}
	c := on(t, fs, Settings{AllowedReadPaths: []string{"/project", "/data/deep"}})
	wantPaths(t, c, Read, map[string]bool{"link/../x": true, "link/../../x": false, "a/../x": true})
}

func TestSDKK9_AnyReadingInADeniedTreeDenies(t *testing.T) {
	fs := linkFS{"/project/in": "/secret/x", "/secret/out": "/project/open", "/project/over": "/secret/out"}
	c := on(t, fs, Settings{DeniedPaths: []string{"/secret"}})
	wantPaths(t, c, Read, map[string]bool{
		"in": false, "/secret/out": false, "over": false, "/secret/../project/x": true, "/secret/./": false, "/project/../secret": false, "open": true,
	})
}

func TestSDKK10_CaseIsTheVolumes(t *testing.T) {
	s := Settings{DeniedPaths: []string{"/Secret"}}
	exact, err := New(s, Options{Cwd: "/project"})
	if err != nil {
		t.Fatal(err)
	}
	folded, err := New(s, Options{Cwd: "/project", FoldCase: true})
	if err != nil {
		t.Fatal(err)
	}
	if exact.opt.FoldCase {
		t.Skip("this system folds case")
	}
	wantPaths(t, exact, Read, map[string]bool{"/Secret/x": false, "/secret/x": true, "/SECRET": true})
	wantPaths(t, folded, Read, map[string]bool{"/Secret/x": false, "/secret/x": false, "/SECRET": false, "/other": true})
}

func TestSDKK11_TildeInBothReadings(t *testing.T) {
	wantPaths(t, checker(t, Settings{DeniedPaths: []string{"/home/u/.ssh"}}), Read, map[string]bool{"~/.ssh/id": false, "~/x": true, "~other/.ssh": true})
	wantPaths(t, checker(t, Settings{DeniedPaths: []string{"/project/~"}}), Read, map[string]bool{"~/x": false, "~": false})
	wantPaths(t, checker(t, Settings{AllowedReadPaths: []string{"/home/u"}}), Read, map[string]bool{"~/x": false})
}

func TestSDKK12_PathsThatCannotBeLocated(t *testing.T) {
	for _, s := range []Settings{{DeniedPaths: []string{"/etc"}}, {AllowedReadPaths: []string{"/"}}, {AllowedWritePaths: []string{"/a"}}} {
		wantPaths(t, checker(t, s), Read, map[string]bool{"": false, "a\x00b": false, "/a": true})
	}
}

func TestSDKK13_NormalisingIsAtRest(t *testing.T) {
	fs := linkFS{"/a/link": "../B"}
	for in, want := range map[string]string{"/": "/", "/A/b": "/A/b", "/a/link/C": "/B/C", "/a//./b/": "/a/b", "/Ä": "/Ä"} {
		r, err := Normalize(fs, in)
		if err != nil || r.Physical != want {
			t.Errorf("%q: %+v, %v", in, r, err)
		}
		if again, err := Normalize(fs, r.Physical); err != nil || again.Physical != want {
			t.Errorf("%q moves on to %q, %v", want, again.Physical, err)
		}
	}
	if clean("") != "" || clean("/") != "/" {
		t.Errorf("empty is %q, the root %q", clean(""), clean("/"))
	}
}

// The kernel's own links, once (SDK-K7, SDK-K9).
func TestPathsOnDisk(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"open", "secret"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(root, "open", "in")); err != nil {
		t.Fatal(err)
	}
	c, err := New(Settings{DeniedPaths: []string{root + "/secret"}}, Options{Cwd: root + "/open", FS: Host{}})
	if err != nil {
		t.Fatal(err)
	}
	wantPaths(t, c, Read, map[string]bool{"in/new": false, "in": false, "x": true, "../secret": false})
}
