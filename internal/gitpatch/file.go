package gitpatch

import (
	"bytes"
	"crypto/sha1" // git's ids of contents are SHA-1 sums; security does not depend on them here
	"fmt"
	"io"
	"slices"
	"strings"
)

// content is what is known of the content of one side of a change.
type content struct {
	file File
	// data is the whole content, unless the file is large. Its memory is used again for the next file.
	data []byte
	// id is git's id of the content; all zeros for an absent file, and if it is not known.
	id     [sha1.Size]byte
	binary bool
}

// binaryBytes is how many bytes at the start of a file git looks at for a NUL, which makes the file binary.
const binaryBytes = 8000

// load reads a file, unless it is large. It finds the id if needID is true.
func (c *content) load(f File, needID bool) error {
	*c = content{file: f, data: c.data[:0], binary: f.Size > LargeFile}
	if f.Mode == Absent || c.binary {
		return nil
	}
	if err := c.read(); err != nil {
		return err
	}
	if needID {
		h := sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.Size)
		h.Write(c.data)
		h.Sum(c.id[:0])
	}
	c.binary = bytes.IndexByte(c.data[:min(len(c.data), binaryBytes)], 0) >= 0
	return nil
}

// read reads the whole file into data.
func (c *content) read() error {
	if c.file.Open == nil {
		return nil
	}
	c.data = slices.Grow(c.data, int(c.file.Size)+1)[:c.file.Size+1]
	n, err := io.ReadFull(c.file.Open(), c.data)
	c.data = c.data[:n]
	switch {
	case err == nil || err == io.ErrUnexpectedEOF && int64(n) < c.file.Size || err == io.EOF && c.file.Size > 0:
		return wrongSize(int64(n), c.file.Size)
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return nil
	}
	return err
}

// patch writes the patch of one file.
func (p *writer) patch(c Change) error {
	if kindChanged(c) {
		// A git patch cannot turn a file into a symlink or a symlink into a file, so the patch deletes one and adds the other.
		if err := p.part(Change{Path: c.Path, Old: c.Old}); err != nil {
			return err
		}
		return p.part(Change{Path: c.Path, New: c.New})
	}
	return p.part(c)
}

// kindChanged reports whether a file became a symlink or a symlink a file.
func kindChanged(c Change) bool {
	return c.Old.Mode != Absent && c.New.Mode != Absent && (c.Old.Mode == Symlink) != (c.New.Mode == Symlink)
}

func (p *writer) part(c Change) error {
	fmt.Fprintf(p.out, "diff --git %s %s\n", quote("a/", c.Path), quote("b/", c.Path))
	switch old, now := c.Old.Mode, c.New.Mode; {
	case old == Absent:
		fmt.Fprintf(p.out, "new file mode %o\n", now)
	case now == Absent:
		fmt.Fprintf(p.out, "deleted file mode %o\n", old)
	case old != now:
		fmt.Fprintf(p.out, "old mode %o\nnew mode %o\n", old, now)
	}
	if c.Same {
		return p.err()
	}
	// git writes the ids of the old and the new content in the patch. If one of the contents is large, both ids are left
	// out, because computing one means reading the file.
	needID := c.Old.Size <= LargeFile && c.New.Size <= LargeFile
	if err := p.old.load(c.Old, needID); err != nil {
		return err
	}
	if err := p.now.load(c.New, needID); err != nil {
		return err
	}
	switch {
	case needID:
		fmt.Fprintf(p.out, "index %x..%x", p.old.id, p.now.id)
		if c.Old.Mode == c.New.Mode {
			fmt.Fprintf(p.out, " %o", c.New.Mode)
		}
		fmt.Fprintln(p.out)
	case c.Old.Mode == c.New.Mode:
		// Without an index line or mode lines here, git apply takes this file's header for text between two patches, ignores
		// it, and applies the other files' patches.
		fmt.Fprintf(p.out, "old mode %o\nnew mode %o\n", c.Old.Mode, c.New.Mode)
	}
	if p.old.binary || p.now.binary {
		return p.binary(c, needID)
	}
	return p.text(c)
}

// err returns the first error of writing to out.
func (p *writer) err() error {
	_, err := p.out.Write(nil)
	return err
}

// labels returns the names of the old and the new file for the lines --- and +++; /dev/null for an absent file.
func labels(c Change) (old, now string) {
	old, now = quote("a/", c.Path), quote("b/", c.Path)
	if c.Old.Mode == Absent {
		old = "/dev/null"
	}
	if c.New.Mode == Absent {
		now = "/dev/null"
	}
	return old, now
}

func (p *writer) text(c Change) error {
	d := compare(p.old.data, p.now.data)
	if len(d.edits) == 0 {
		return p.err()
	}
	old, now := labels(c)
	fmt.Fprintf(p.out, "--- %s%s\n+++ %s%s\n", old, tab(old), now, tab(now))
	added, removed := d.count()
	p.sum.Insertions += added
	p.sum.Deletions += removed
	return d.write(p.out)
}

// tab returns what git puts behind a file name with a space in it, a tab, so that other programs find the end of the
// name.
func tab(label string) string {
	if strings.Contains(label, " ") {
		return "\t"
	}
	return ""
}

// binary writes the new and the old content of a binary file (git apply -R needs the old one), or only a line that
// says that they differ.
func (p *writer) binary(c Change, known bool) error {
	if known && !p.noLiterals {
		fmt.Fprintln(p.out, "GIT binary patch")
		if err := p.literal(p.now.data); err != nil {
			return err
		}
		return p.literal(p.old.data)
	}
	p.sum.Omitted++
	old, now := labels(c)
	if !known {
		old, now = sized(old, c.Old), sized(now, c.New)
	}
	_, err := fmt.Fprintf(p.out, "Binary files %s and %s differ\n", old, now)
	return err
}

// sized appends the size of a file to its name, as in "NAME (12 bytes)".
func sized(label string, f File) string {
	if f.Mode == Absent {
		return label
	}
	return fmt.Sprintf("%s (%d bytes)", label, f.Size)
}
