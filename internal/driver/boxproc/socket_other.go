//go:build !linux

package boxproc

import "github.com/holdfast-run/holdfast"

func address(path string) (addr string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	return "", nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc", "the path %s of the socket has %d bytes, more than %d", holdfast.Quote(path), len(path), maxSocketPath).
		WithHint("use a shorter data directory: holdfast serve --data DIR")
}
