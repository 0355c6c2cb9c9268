package files

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// parse decodes the records that getdents64 returned. A record consists of an inode number (8
// bytes), an offset (8 bytes), the length of the record (2 bytes), a type (1 byte) and a name that
// ends with a NUL byte.
func (l *lister) parse(b []byte) (out []entry) {
	const head = 19
	for len(b) > head {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= head || size > len(b) {
			return out
		}
		name, _, _ := bytes.Cut(b[head:size], []byte{0})
		if s := string(name); s != "." && s != ".." && s != "" {
			out = append(out, entry{s, kindOfType(b[18])})
		}
		b = b[size:]
	}
	return out
}

func kindOfType(t byte) kind {
	switch t {
	case unix.DT_REG:
		return kindFile
	case unix.DT_DIR:
		return kindDir
	case unix.DT_LNK:
		return kindLink
	case unix.DT_UNKNOWN:
		return kindUnsaid
	}
	return kindOther
}
