package check

import (
	"strings"
	"testing"
)

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
