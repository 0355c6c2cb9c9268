package check

import (
	"reflect"
	"strings"
	"testing"
)

// A root of deniedWritePaths may be read but not written, also if allowedWritePaths
// names a root above it or the root itself.
func TestDeniedWritePaths(t *testing.T) {
	fs := linkFS{"/project/link": "/project/.git"}
	c := on(t, fs, Settings{AllowedWritePaths: []string{"/project", "/project/.git"}, DeniedWritePaths: []string{"/project/.git", "~/.ssh"}})
	wantPaths(t, c, Read, map[string]bool{".git": true, ".git/config": true, "link/config": true, "~/.ssh/id": true})
	wantPaths(t, c, Write, map[string]bool{
		".git": false, ".git/config": false, ".git/new/file": false, "link/config": false, "link": false, "a/../.git/x": false,
		"~/.ssh/id": false, ".gitignore": true, "a": true,
	})
	wantCommands(t, c, map[string]bool{
		`cat .git/config`: true, `ls .git`: true, `cat .g*/config`: true, `echo a > b`: true, `cp .git/config b`: true,
		`echo x > .git/config`: false, `>> .git/hooks/x`: false, `tee .git/config`: false, `cp b .git/hooks/pre-commit`: false,
		`rm -r .git`: false, `rm -r .gi*`: false, `touch link/x`: false, `cd .git && touch x`: false,
	})
	only := checker(t, Settings{DeniedWritePaths: []string{"/project/.git"}})
	wantPaths(t, only, Write, map[string]bool{".git/x": false, "b": true, "/etc/x": true})
	if v := only.Path(".git/x", Write); v.Code != CodeDeniedPath || !strings.Contains(v.Reason, "/project/.git") || !strings.Contains(v.Reason, "deniedWritePaths") {
		t.Errorf("%+v does not name the rule", v)
	}
	s := Settings{DeniedPaths: []string{"/b"}, DeniedWritePaths: []string{"~/a"}}
	if got := s.Scope(Read, "/home/u", Scope{}).Denied; !reflect.DeepEqual(got, []string{"/b"}) {
		t.Errorf("a reading tool is kept from %q", got)
	}
	if got := s.Scope(Write, "/home/u", Scope{}).Denied; !reflect.DeepEqual(got, []string{"/b", "/home/u/a"}) {
		t.Errorf("an editing tool is kept from %q", got)
	}
	idle := Settings{DeniedPaths: []string{"/b/"}, DeniedWritePaths: []string{"/a", "/b/c"}}.Lint()
	if len(idle) != 1 || !strings.HasPrefix(idle[0], "deniedWritePaths[1] has no effect") {
		t.Errorf("%q", idle)
	}
}
