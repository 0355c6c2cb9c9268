package hostgit

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"strings"
)

// Bounds of a git index file. The user's git writes it, but the paths that it lists may come from anybody.
const (
	maxIndex = 1 << 30 // bytes of an index file
	maxName  = 4096    // bytes of a path; no system call takes a longer one
	maxLinks = 1000    // how many submodules a directory may have, nested ones included
)

// modeLink is the mode of a submodule, which git calls a gitlink. modeKind are the bits of a mode that tell the kind of
// entry.
const (
	modeLink = 0o160000
	modeKind = 0o170000
)

var (
	errIndex = errors.New("the git index cannot be read: it is damaged, or a newer git wrote it")
	errLinks = errors.New("the directory has more than 1,000 git submodules")
	errSplit = errors.New("the git index is split, and its newer part replaces the entry of a submodule")
)

// index is what this package needs of a git index file.
type index struct {
	// links are the paths of submodules.
	links []string
	// shared is empty unless the index is split. Then the file sharedindex.HASH has the other entries, and shared is this
	// hash.
	shared string
}

// readIndex reads an index file of version 2, 3 or 4. The hashes in the file have 20 bytes (SHA-1) or 32 (SHA-256), but
// the file does not say which. readIndex tries both: with the wrong length the file does not parse to its end.
func readIndex(r io.ReaderAt, size int64) (index, error) {
	if size > maxIndex {
		return index{}, errIndex
	}
	var first error
	for _, hash := range []int{20, 32} {
		p := &parser{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 64<<10), left: size, hash: hash}
		out, err := p.index()
		if err == nil || !errors.Is(err, errIndex) {
			return out, err
		}
		first = err
	}
	return index{}, first
}

// parser reads an index from its start to its end.
type parser struct {
	r    *bufio.Reader
	left int64 // how many bytes are left to the end of the file
	hash int   // length of a hash in bytes: 20 or 32
	name []byte
	buf  [64]byte
}

// bytes returns the next n bytes; n is at most 64. The bytes are valid until the next call.
func (p *parser) bytes(n int) ([]byte, error) {
	b := p.buf[:n]
	if int64(n) > p.left {
		return nil, errIndex
	}
	if _, err := io.ReadFull(p.r, b); err != nil {
		return nil, errIndex
	}
	p.left -= int64(n)
	return b, nil
}

func (p *parser) index() (out index, err error) {
	head, err := p.bytes(12)
	if err != nil || string(head[:4]) != "DIRC" {
		return out, errIndex
	}
	version, count := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
	if version < 2 || version > 4 {
		return out, errIndex
	}
	nameless := false
	for range count {
		mode, err := p.entry(version)
		switch {
		case err != nil:
			return out, err
		case mode&modeKind != modeLink:
		case len(p.name) == 0:
			nameless = true
		case !valid(string(p.name)):
			return out, errIndex
		case len(out.links) == 0 || out.links[len(out.links)-1] != string(p.name):
			if len(out.links) == maxLinks {
				return out, errLinks
			}
			out.links = append(out.links, string(p.name))
		}
	}
	if err := p.extensions(&out); err != nil {
		return out, err
	}
	if nameless && out.shared == "" {
		return out, errIndex
	}
	if nameless {
		return out, errSplit
	}
	return out, nil
}

// entry reads one entry of the index: it sets p.name to the entry's path, and returns the entry's mode.
func (p *parser) entry(version uint32) (mode uint32, err error) {
	b, err := p.bytes(40)
	if err != nil {
		return 0, err
	}
	mode = binary.BigEndian.Uint32(b[24:])
	if b, err = p.bytes(p.hash + 2); err != nil {
		return 0, err
	}
	flags, size := binary.BigEndian.Uint16(b[p.hash:]), 40+p.hash+2
	if flags&0x4000 != 0 {
		if version < 3 {
			return 0, errIndex
		}
		if _, err := p.bytes(2); err != nil {
			return 0, err
		}
		size += 2
	}
	if version < 4 {
		p.name = p.name[:0]
	} else if err := p.strip(); err != nil {
		return 0, err
	}
	rest, err := p.r.ReadSlice(0)
	if p.left -= int64(len(rest)); err != nil || p.left < 0 || len(p.name)+len(rest) > maxName {
		return 0, errIndex
	}
	p.name = append(p.name, rest[:len(rest)-1]...)
	if n := int(flags & 0xfff); n != min(len(p.name), 0xfff) {
		return 0, errIndex
	}
	if version == 4 {
		return mode, nil
	}
	// Zeros, one to eight of them, fill an entry up to a multiple of eight bytes. The first zero has been read already.
	pad, err := p.bytes(7 - (size+len(p.name))%8)
	if err == nil && len(bytes.Trim(pad, "\x00")) > 0 {
		err = errIndex
	}
	return mode, err
}

// strip reads how many bytes of the last entry's path the next one does not share, and removes these from p.name. Only
// indexes of version 4 have this number.
func (p *parser) strip() error {
	n := 0
	for i := 0; ; i++ {
		b, err := p.bytes(1)
		if err != nil {
			return err
		}
		if n = n<<7 | int(b[0]&0x7f); n > len(p.name) || i == 4 {
			return errIndex
		}
		if b[0]&0x80 == 0 {
			break
		}
		n++
	}
	p.name = p.name[:len(p.name)-n]
	return nil
}

// extensions reads the rest of the file: extensions, then a hash of the whole.
func (p *parser) extensions(out *index) error {
	for p.left != int64(p.hash) {
		b, err := p.bytes(8)
		if err != nil {
			return err
		}
		name, size := string(b[:4]), int64(binary.BigEndian.Uint32(b[4:]))
		if size > p.left-int64(p.hash) {
			return errIndex
		}
		switch {
		case name == "link" && out.shared == "" && size >= int64(p.hash):
			if b, err = p.bytes(p.hash); err != nil {
				return err
			}
			if size -= int64(p.hash); len(bytes.Trim(b, "\x00")) > 0 {
				out.shared = hex.EncodeToString(b)
			}
		case name == "sdir":
		case name[0] < 'A' || name[0] > 'Z':
			return errIndex // git refuses an unknown extension whose name does not begin with a capital letter
		}
		if _, err := io.CopyN(io.Discard, p.r, size); err != nil {
			return errIndex
		}
		p.left -= size
	}
	return nil
}

// valid reports whether git accepts a path in an index: it must be relative and clean, with no element named .git.
func valid(name string) bool {
	if name == "." || path.IsAbs(name) || path.Clean(name) != name {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || strings.EqualFold(part, ".git") {
			return false
		}
	}
	return true
}
