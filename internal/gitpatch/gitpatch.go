package gitpatch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/klauspost/compress/zlib"

	"github.com/holdfast-run/holdfast"
)

// LargeFile is the size in bytes above which a file is not compared by lines, whatever it holds.
const LargeFile = 8 << 20

// Mode says what a File is. The values are the modes of git.
type Mode uint32

// The modes of files. git has no other modes of files, and does not store empty directories.
const (
	Absent     Mode = 0
	EmptyDir   Mode = 0o040000
	Regular    Mode = 0o100644
	Executable Mode = 0o100755
	Symlink    Mode = 0o120000
)

// File is one side of a change. The zero File is absent.
type File struct {
	Mode Mode
	// Size is the length of the content in bytes; the content of a symlink is its target.
	Size int64
	// Open returns a reader of the content, from its start. It may be called more than once. It is nil for what has
	// no content.
	Open func() io.Reader
}

// Change is a path whose file differs between two trees.
type Change struct {
	// Path is relative and clean, with any bytes but NUL.
	Path     string
	Old, New File
	// Same says that Old and New have the same content. If it is false, the contents or the modes differ.
	Same bool
}

// Options says how Write shows the changes. With the zero Options it writes a patch.
type Options struct {
	Format holdfast.DiffFormat
	// NoLiterals leaves the contents of binary files out of a patch. Otherwise a patch holds the old and the new content
	// of each binary file of up to LargeFile bytes, compressed. For a binary file without its content a patch has only
	// the name, and git apply refuses the patch.
	NoLiterals bool
}

// Summary counts what Write wrote.
type Summary struct {
	// Files counts the paths. Insertions and Deletions count lines of text files; they are 0 for names.
	Files, Insertions, Deletions int
	// Omitted counts the files of a patch whose content it does not hold, so that git apply refuses the patch.
	Omitted int
	// EmptyDirs counts the empty directories that one tree has and the other does not. They are left out.
	EmptyDirs int
	// Refused counts the changes that are left out because git refuses their names, such as those in a .git directory.
	Refused int
}

// Write writes changes to w. The paths are in the order of changes, which must not name a path twice. Write
// returns invalid for a format that it does not know, internal for a file that is not as long as its Size, and
// the errors of changes, of contents, of w and of ctx as they are. After an error the output is incomplete.
func Write(ctx context.Context, w io.Writer, changes iter.Seq2[Change, error], o Options) (Summary, error) {
	p := &writer{out: bufio.NewWriterSize(w, 32<<10), noLiterals: o.NoLiterals}
	var one func(Change) error
	switch o.Format {
	case holdfast.DiffPatch, "":
		one = p.patch
	case holdfast.DiffStat:
		one = p.measure
	case holdfast.DiffNames:
		one = p.name
	default:
		return Summary{}, holdfast.Errorf(holdfast.KindInvalid, "diff", "%s is not a format of a diff", holdfast.Quote(string(o.Format))).
			WithHint("use the format patch, stat or names")
	}
	for c, err := range changes {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return p.sum, err
		}
		if !p.known(&c) {
			continue
		}
		p.sum.Files++
		if err := one(c); err != nil {
			return p.sum, err
		}
	}
	if o.Format == holdfast.DiffStat {
		p.table()
	}
	return p.sum, p.out.Flush()
}

// writer is the state of one Write.
type writer struct {
	// out remembers its first error: Flush and the checks of it in long loops return this error.
	out        *bufio.Writer
	noLiterals bool
	sum        Summary
	old, now   content
	zip        *zlib.Writer
	rows       []row
	rowBytes   int
}

// known reports whether git sees a difference in a change and accepts its path. It turns an empty directory, which git
// does not know, into an absent file.
func (p *writer) known(c *Change) bool {
	if (c.Old.Mode == EmptyDir) != (c.New.Mode == EmptyDir) {
		p.sum.EmptyDirs++
	}
	for _, f := range []*File{&c.Old, &c.New} {
		if f.Mode == EmptyDir {
			*f = File{}
		}
	}
	if c.Old.Mode == c.New.Mode && (c.Same || c.Old.Mode == Absent) {
		return false
	}
	if refused(c.Path, c.Old.Mode == Symlink || c.New.Mode == Symlink) {
		p.sum.Refused++
		return false
	}
	return true
}

func (p *writer) name(c Change) error {
	_, err := fmt.Fprintln(p.out, quote("", c.Path))
	return err
}
