package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

const op = "agent.deploy"

// checker judges the files of a folder one by one, for both sides: PackDir
// before the upload, Deploy after it.
type checker struct {
	files   []holdfast.AgentFile
	bytes   int64
	entries int
	// folded maps each path and directory, lower case, to how it was spelled.
	folded map[string]string
	// dirs are the directories that files lie in.
	dirs map[string]bool
}

func newChecker() *checker {
	return &checker{folded: map[string]string{}, dirs: map[string]bool{}}
}

// name judges a path as it stands in a tar or on disk.
func (c *checker) name(name string) error {
	bad := func(why string) error {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the path %s %s", holdfast.Quote(name), why)
	}
	if c.entries++; c.entries > maxEntries {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the folder has more than %d entries", maxEntries)
	}
	switch {
	case !utf8.ValidString(name):
		return bad("is not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return bad("holds a control character")
	case strings.HasPrefix(name, "/"):
		return bad("is absolute")
	case slices.Contains(strings.Split(name, "/"), ".."):
		return bad(`holds ".."`)
	case !fs.ValidPath(name) || name == ".":
		return bad("is not clean")
	case len(name) > maxPath:
		return bad(fmt.Sprintf("is longer than %d bytes", maxPath))
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return bad(fmt.Sprintf("has a name of more than %d bytes", maxName))
		}
	}
	return c.fold(name)
}

// fold refuses two spellings of one path, which some file systems take for the same.
func (c *checker) fold(name string) error {
	for p := name; p != "."; p = path.Dir(p) {
		low := strings.ToLower(p)
		if have, ok := c.folded[low]; ok && have != p {
			return holdfast.Errorf(holdfast.KindInvalid, op, "the paths %s and %s differ in case only", holdfast.Quote(have), holdfast.Quote(p)).
				WithHint("rename one of them")
		}
		c.folded[low] = p
	}
	return nil
}

// dir takes a directory. Empty ones are not kept.
func (c *checker) dir(name string) error { return c.name(name) }

// file takes a file's name and size, before its content is read.
func (c *checker) file(name string, size int64) error {
	if err := c.name(name); err != nil {
		return err
	}
	if len(c.files) == MaxFiles {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the folder has more than %d files", MaxFiles).
			WithHint("deploy instructions, settings and skills; let a session fetch the rest")
	}
	if size < 0 || size > MaxBytes-c.bytes {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the folder has more than %d MB, at %s", MaxBytes>>20, holdfast.Quote(name)).
			WithHint("deploy instructions, settings and skills; let a session fetch the rest")
	}
	c.bytes += size
	return nil
}

// add takes a file whose content is known.
func (c *checker) add(f holdfast.AgentFile) {
	c.files = append(c.files, f)
	for d := path.Dir(f.Path); d != "."; d = path.Dir(d) {
		c.dirs[d] = true
	}
}

// finish judges the whole and sorts the files by path.
func (c *checker) finish() error {
	slices.SortFunc(c.files, func(a, b holdfast.AgentFile) int { return strings.Compare(a.Path, b.Path) })
	for i, f := range c.files {
		if c.dirs[f.Path] {
			return holdfast.Errorf(holdfast.KindInvalid, op, "%s is a file and a directory", holdfast.Quote(f.Path))
		}
		if i > 0 && c.files[i-1].Path == f.Path {
			return holdfast.Errorf(holdfast.KindInvalid, op, "%s is there twice", holdfast.Quote(f.Path))
		}
	}
	if c.has(instructions[0]) || c.has(instructions[1]) {
		return nil
	}
	e := holdfast.Errorf(holdfast.KindInvalid, op, "the folder holds neither CLAUDE.md nor AGENTS.md")
	for _, f := range c.files {
		base := path.Base(f.Path)
		for _, want := range instructions {
			switch {
			case base == want:
				return e.WithHint("%s is there: deploy the folder %s itself", f.Path, path.Dir(f.Path))
			case strings.EqualFold(f.Path, want):
				return e.WithHint("rename %s to %s", f.Path, want)
			}
		}
	}
	return e.WithHint("write the agent's instructions to CLAUDE.md in the root of the folder")
}

func (c *checker) has(name string) bool {
	_, ok := slices.BinarySearchFunc(c.files, name, func(f holdfast.AgentFile, n string) int { return strings.Compare(f.Path, n) })
	return ok
}

// contentID is the version id of files sorted by path: the hash of every path,
// mode and content hash. A path holds no control character, so lines are unambiguous.
func contentID(files []holdfast.AgentFile) holdfast.VersionID {
	h := sha256.New()
	fmt.Fprintf(h, "holdfast agent 1\n")
	for _, f := range files {
		fmt.Fprintf(h, "%04o %s %d %s\n", f.Mode, f.SHA256, f.Size, f.Path)
	}
	return holdfast.VersionID("sha256:" + hex.EncodeToString(h.Sum(nil)))
}
