package gitpatch

import (
	"regexp"
	"strings"
)

// quote returns a prefix and a path as git writes them: in double quotes with escapes if the path has a control
// character, a quote, a backslash or a byte above 127, else as they are. In a patch, where the prefix is not empty,
// it also quotes a directory whose name ends with a space, because git apply does not find the end of the path otherwise.
func quote(prefix, path string) string {
	special := strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r >= 0x7f || r == '"' || r == '\\' })
	if !special && (prefix == "" || !strings.Contains(path, " /")) {
		return prefix + path
	}
	b := append([]byte{'"'}, prefix...)
	for i := range len(path) {
		c := path[i]
		switch at := strings.IndexByte(escaped, c); {
		case at >= 0:
			b = append(b, '\\', escapes[at])
		case c < ' ' || c >= 0x7f:
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}

// escaped are the bytes that git writes as a backslash and a letter; escapes has their letters in the same order.
const (
	escaped = "\a\b\t\n\v\f\r\"\\"
	escapes = `abtnvfr"\`
)

var (
	// dotGit matches the names that git takes for .git on some file system.
	dotGit = regexp.MustCompile(`(?is)^(\.git|git~1)[. ]*($|:)`)
	// dotGitmodules matches the names that git takes for .gitmodules on some file system. Such a file must not be a symlink.
	dotGitmodules = regexp.MustCompile(`(?is)^(\.gitmodules|gitmod~[1-4]|(gi7eba|gi7eb|gi7e|gi7|gi|g|)~[1-9][0-9]*)[. ]*($|:)`)
)

// refused reports whether git apply and git add refuse a path.
func refused(path string, link bool) bool {
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if dotGit.MatchString(name) || link && dotGitmodules.MatchString(name) {
			return true
		}
	}
	return false
}
