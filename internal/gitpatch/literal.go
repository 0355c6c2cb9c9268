package gitpatch

import (
	"bufio"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zlib"

	"github.com/holdfast-run/holdfast"
)

// digits are the digits of git's base 85.
const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// lineBytes is how many bytes a line of a literal holds at most.
const lineBytes = 52

// base85 writes bytes as the lines of a literal: the number of bytes as a letter, then five digits for every four bytes,
// the last of which are filled up with zeros.
type base85 struct {
	out  *bufio.Writer
	line [lineBytes]byte
	n    int
	text []byte
}

func (b *base85) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := copy(b.line[b.n:], rest)
		rest = rest[n:]
		if b.n += n; b.n == lineBytes {
			if err := b.flush(); err != nil {
				return len(data) - len(rest), err
			}
		}
	}
	return len(data), nil
}

// flush writes the collected bytes as one line; nothing if there are none.
func (b *base85) flush() error {
	if b.n == 0 {
		return nil
	}
	clear(b.line[b.n:])
	text := append(b.text[:0], lengthDigit(b.n))
	for i := 0; i < b.n; i += 4 {
		v := binary.BigEndian.Uint32(b.line[i:])
		var five [5]byte
		for d := 4; d >= 0; d-- {
			five[d] = digits[v%85]
			v /= 85
		}
		text = append(text, five[:]...)
	}
	b.n, b.text = 0, append(text, '\n')
	_, err := b.out.Write(b.text)
	return err
}

// lengthDigit returns the letter that stands for a number of bytes from 1 to 52.
func lengthDigit(n int) byte {
	if n <= 26 {
		return byte('A' + n - 1)
	}
	return byte('a' + n - 27)
}

// literal writes the content of a file, compressed.
func (p *writer) literal(data []byte) error {
	fmt.Fprintf(p.out, "literal %d\n", len(data))
	lines := &base85{out: p.out}
	if p.zip == nil {
		p.zip = zlib.NewWriter(lines)
	} else {
		p.zip.Reset(lines)
	}
	_, err := p.zip.Write(data)
	if err == nil {
		err = p.zip.Close()
	}
	if err == nil {
		err = lines.flush()
	}
	if err != nil {
		return err
	}
	return p.out.WriteByte('\n')
}

func wrongSize(n, size int64) error {
	return holdfast.Errorf(holdfast.KindInternal, "diff", "a file of the diff has %d bytes or more instead of the expected %d", n, size)
}
