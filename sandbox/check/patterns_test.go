package check

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// treeFS is a file system of directories ("/"), files (""), links (their targets) and directories that can neither be
// searched nor listed ("locked").
type treeFS map[string]string

func (f treeFS) Readlink(name string) (string, error) {
	if f[path.Dir(name)] == "locked" {
		return "", fs.ErrPermission
	}
	switch at, ok := f[name]; {
	case !ok:
		return "", fs.ErrNotExist
	case at == "/" || at == "" || at == "locked":
		return "", syscall.EINVAL
	default:
		return at, nil
	}
}

func (f treeFS) ReadDir(name string) (out []Entry, err error) {
	r, err := Normalize(f, name)
	if err != nil {
		return nil, err
	}
	switch f[r.Physical] {
	case "locked":
		return nil, fs.ErrPermission
	case "/":
	default:
		return nil, syscall.ENOTDIR
	}
	for at, what := range f {
		if path.Dir(at) == r.Physical && at != "/" {
			dir := what == "/" || what == "locked"
			out = append(out, Entry{Name: path.Base(at), Link: !dir && what != "", Dir: dir})
		}
	}
	return out, nil
}

// TestLinksBehindPatterns: a pattern is followed through links on its way, into the directory itself and its parent,
// and into all directories that ** stands for.
func TestLinksBehindPatterns(t *testing.T) {
	tree := treeFS{
		"/": "/", "/project": "/", "/project/data": "/", "/project/data/key": "", "/project/data/other": "",
		"/project/link": "data", "/project/many": "/", "/project/many/link": "/project/data", "/project/sub": "/",
		"/project/sub/deep": "/", "/project/sub/deep/down": "/project/data/key", "/project/locked": "locked",
		"/project/open": "/", "/project/open/file": "", "/project/open/more": "/",
	}
	c, err := New(Settings{DeniedPaths: []string{"/project/data/key"}}, Options{Cwd: "/project", FS: tree})
	if err != nil {
		t.Fatal(err)
	}
	for cmd, allowed := range map[string]bool{
		"cat link/k*":                    false,
		"cat link/o*":                    true,
		"cat open/../data/k*":            false,
		"cat many/*/k*":                  false,
		"cat many/*/o*":                  true,
		"cd open; cat .*/data/key":       false,
		"cd open; cat .?/data/key":       false,
		"cat .*/data/key":                false,
		"cd open; cat .*/data/other":     true,
		"cat .*rc":                       true,
		"cat **/down":                    false,
		"cat sub/**":                     false,
		"cat sub/**/deep/*":              false,
		"cat open/**":                    true,
		"cat open/**/file":               true,
		"cat locked/*":                   false,
		"cat locked/file":                false,
		"cat locked":                     true,
		"grep -r x sub/.*/data":          false,
		"ln -s data l; cat open/*; cd /": true,
	} {
		if v := c.Command(cmd); v.Allowed != allowed || strings.Contains(v.Reason, "runtime error") {
			t.Errorf("%q: %+v", cmd, v)
		}
	}
}

// TestManyLinksOfTheLine: a line that makes more links than are followed is denied.
func TestManyLinksOfTheLine(t *testing.T) {
	c := checker(t, Settings{DeniedPaths: []string{"/etc"}})
	line := ""
	for i := range maxAliases {
		line += fmt.Sprintf("ln -s a l%d; ", i)
	}
	if v := c.Command(line + "cat l1"); !v.Allowed {
		t.Errorf("%d links: %+v", maxAliases, v)
	}
	if v := c.Command(line + "ln -s / x; cat x/etc/passwd"); v.Allowed {
		t.Error("the link after the last one that is followed leads to a denied path")
	}
}

// unseenFS fails every lookup.
type unseenFS struct{}

func (unseenFS) Readlink(string) (string, error) { return "", ErrUnseen }

func (unseenFS) ReadDir(string) ([]Entry, error) { return nil, ErrUnseen }

// TestDeniedCommandsWithoutLookups: when links cannot be looked up any more, a command that is given as a path may be a
// link to a denied one.
func TestDeniedCommandsWithoutLookups(t *testing.T) {
	for _, s := range []Settings{{DeniedCommands: []string{"rm"}}, {AllowedCommands: []string{"ls"}}} {
		c, err := New(s, Options{Cwd: "/project", FS: unseenFS{}})
		if err != nil {
			t.Fatal(err)
		}
		if v := c.Command("./ls x"); v.Allowed {
			t.Errorf("%+v: %+v", s, v)
		}
	}
}

// TestAnEmptyDirectoryHasFewNames: Host lists an empty directory, and a pattern in it is allowed.
func TestAnEmptyDirectoryHasFewNames(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := New(Settings{DeniedPaths: []string{"/etc"}}, Options{Cwd: dir, FS: Host{}})
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Command("cat empty/*"); !v.Allowed {
		t.Errorf("%+v", v)
	}
}

// TestPatternsThroughNamesOfTheLine: ** stands for any number of directories, so that a
// pattern with it may be shorter or longer than the name that it reaches.
func TestPatternsThroughNamesOfTheLine(t *testing.T) {
	c := checker(t, Settings{DeniedPaths: []string{"/etc"}})
	for cmd, allowed := range map[string]bool{
		"ln 0** 0":                               true,
		"ln -s / a/b/c; cat **/etc/passwd":       false,
		"ln -s / a/b/c; cat **/b/c/etc/passwd":   false,
		"ln -s / a/b/c; cat **":                  false,
		"ln -s /etc a/b; cat */b/passwd":         false,
		"ln -s /project/d a/b; cat */b/passwd":   true,
		"ln -s /project/d a/b/c; cat */b/passwd": true,
	} {
		if v := c.Command(cmd); v.Allowed != allowed || strings.Contains(v.Reason, "runtime error") {
			t.Errorf("%q: %+v", cmd, v)
		}
	}
}

// TestPatternsThatMatchNothing: bash leaves such a word as it stands, and a program may find a
// file name in any part of it.
func TestPatternsThatMatchNothing(t *testing.T) {
	c := checker(t, Settings{DeniedPaths: []string{"/a[x]b", "/up/down"}, AllowedReadPaths: []string{"/"}, AllowedWritePaths: []string{"/project"}})
	for cmd, allowed := range map[string]bool{
		"cat /a[x]b/key":                  false,
		"cat < /a[x]b/key":                false,
		"cd /; cat a[x]b/key":             false,
		"cat /a[x]b*":                     true,
		"cat /axb/key":                    true,
		"cat /[x]b":                       true,
		"dd if=/a[x]b/key":                false,
		"dd if=/a*/key":                   false,
		"dd if=/a'[x]'b/k$((1))":          false,
		"tool --file=/a[x]b/key":          false,
		"tool -f/a[x]b/key":               false,
		"tool --file=/a?x?b/key":          false,
		"tool --file=/c*/key":             true,
		"tool file:///a[x]b/key*":         false,
		"curl -F 'c[d]=@/a['*/key x":      false,
		"curl -F 'c[d]=@/project'/*.go x": true,
		"grep -r x /u*":                   false,
		"grep x /u*":                      true,
		"grep -r x /c*":                   true,
		"export A=/a[x]b/*":               false,
	} {
		if v := c.Command(cmd); v.Allowed != allowed {
			t.Errorf("%q: %+v", cmd, v)
		}
	}
}
