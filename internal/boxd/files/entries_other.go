//go:build !linux

package files

import "golang.org/x/sys/unix"

func (l *lister) parse(b []byte) (out []entry) {
	_, _, names := unix.ParseDirent(b, -1, nil)
	for _, n := range names {
		out = append(out, entry{n, kindUnsaid})
	}
	return out
}
