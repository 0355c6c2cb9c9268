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

// checker checks the files of an agent's folder one by one. PackDir uses it before an upload, Deploy while it
// unpacks the upload.
type checker struct {
	files   []holdfast.AgentFile
	bytes   int64
	entries int
	// folded maps each path and directory in lower case to its spelling.
	folded map[string]string
	// dirs are the directories that contain files.
	dirs map[string]bool
}

func newChecker() *checker {
	return &checker{folded: map[string]string{}, dirs: map[string]bool{}}
}

// name checks a path as it occurs in a tar or on disk.
func (c *checker) name(name string) error {
	bad := func(why string) error {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the path %s cannot be in an agent's folder: it %s", holdfast.Quote(name), why)
	}
	if c.entries++; c.entries > maxEntries {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the agent's folder has more than %d entries", maxEntries)
	}
	switch {
	case !utf8.ValidString(name):
		return bad("is not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return bad("contains a control character")
	case strings.HasPrefix(name, "/"):
		return bad("is absolute")
	case slices.Contains(strings.Split(name, "/"), ".."):
		return bad(`contains ".."`)
	case !fs.ValidPath(name) || name == ".":
		return bad("is not clean: it has empty or \".\" components")
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

// fold refuses paths that differ only in case, because some file systems treat them as one.
func (c *checker) fold(name string) error {
	for p := name; p != "."; p = path.Dir(p) {
		low := strings.ToLower(p)
		if have, ok := c.folded[low]; ok && have != p {
			return holdfast.Errorf(holdfast.KindInvalid, op, "the paths %s and %s in the agent's folder differ only in case", holdfast.Quote(have), holdfast.Quote(p)).
				WithHint("rename one of the two paths")
		}
		c.folded[low] = p
	}
	return nil
}

// dir checks a directory. Empty directories are not stored.
func (c *checker) dir(name string) error { return c.name(name) }

// file checks a file's name and size, before its content is read.
func (c *checker) file(name string, size int64) error {
	if err := c.name(name); err != nil {
		return err
	}
	if len(c.files) == MaxFiles {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the agent's folder has more than %d files", MaxFiles).
			WithHint("deploy instructions, settings and skills; let a session fetch all other files")
	}
	if size < 0 || size > MaxBytes-c.bytes {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the agent's folder has more than %d MB: the file %s exceeds the limit", MaxBytes>>20, holdfast.Quote(name)).
			WithHint("deploy instructions, settings and skills; let a session fetch all other files")
	}
	c.bytes += size
	return nil
}

// add adds a file whose content is known.
func (c *checker) add(f holdfast.AgentFile) {
	c.files = append(c.files, f)
	for d := path.Dir(f.Path); d != "."; d = path.Dir(d) {
		c.dirs[d] = true
	}
}

// finish checks the folder as a whole and sorts the files by path.
func (c *checker) finish() error {
	slices.SortFunc(c.files, func(a, b holdfast.AgentFile) int { return strings.Compare(a.Path, b.Path) })
	for i, f := range c.files {
		if c.dirs[f.Path] {
			return holdfast.Errorf(holdfast.KindInvalid, op, "the path %s in the agent's folder is used for a file and for a directory", holdfast.Quote(f.Path))
		}
		if i > 0 && c.files[i-1].Path == f.Path {
			return holdfast.Errorf(holdfast.KindInvalid, op, "the path %s occurs twice in the agent's folder", holdfast.Quote(f.Path))
		}
	}
	if c.has(instructions[0]) || c.has(instructions[1]) {
		return nil
	}
	e := holdfast.Errorf(holdfast.KindInvalid, op, "the agent's folder has neither CLAUDE.md nor AGENTS.md")
	for _, f := range c.files {
		base := path.Base(f.Path)
		for _, want := range instructions {
			switch {
			case base == want:
				return e.WithHint("the agent's folder has the file %s: deploy the folder %s itself", f.Path, path.Dir(f.Path))
			case strings.EqualFold(f.Path, want):
				return e.WithHint("rename the file %s to %s", f.Path, want)
			}
		}
	}
	return e.WithHint("write the agent's instructions to CLAUDE.md in the root of the folder")
}

func (c *checker) has(name string) bool {
	_, ok := slices.BinarySearchFunc(c.files, name, func(f holdfast.AgentFile, n string) int { return strings.Compare(f.Path, n) })
	return ok
}

// contentID returns the version id of files sorted by path: a hash over every path, mode, size and
// content hash. Paths contain no control characters, so the hashed lines are unambiguous.
func contentID(files []holdfast.AgentFile) holdfast.VersionID {
	h := sha256.New()
	fmt.Fprintf(h, "holdfast agent 1\n")
	for _, f := range files {
		fmt.Fprintf(h, "%04o %s %d %s\n", f.Mode, f.SHA256, f.Size, f.Path)
	}
	return holdfast.VersionID("sha256:" + hex.EncodeToString(h.Sum(nil)))
}
