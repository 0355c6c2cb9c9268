package boxproc

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// maxSocketPath is the longest path that a Unix socket address can hold on every supported system
// (104 bytes with the terminator on darwin, 108 on Linux).
const maxSocketPath = 103

// ListenAt makes a listening socket for boxd at a path in the directory, and replaces a former
// one. The path is that of the box's Socket, or of a file that is renamed to it later. The socket
// file stays when the listener is closed, because boxd has the socket and outlives the server.
func ListenAt(path string) (*os.File, error) {
	l, err := listenAt(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.listen", "cannot make a socket for boxd: %w", err)
	}
	return f, nil
}

func listenAt(path string) (*net.UnixListener, error) {
	_ = os.Remove(path)
	addr, done, err := address(path)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.listen", "cannot make a socket for boxd: %w", err)
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.listen", "cannot make a socket for boxd: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// Dial connects to the box's socket; not_found if no boxd listens there.
func (d *Dir) Dial(ctx context.Context, box holdfast.BoxID) (net.Conn, error) {
	addr, done, err := address(d.Socket(box))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.dial", "cannot connect to the box: %w", err)
	}
	defer done()
	c, err := new(net.Dialer).DialContext(ctx, "unix", addr)
	if err != nil {
		if ctx.Err() != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.dial", "cannot connect to the box: %w", err)
		}
		return nil, holdfast.Errorf(holdfast.KindNotFound, "boxproc.dial", "box %s is not running: %w", holdfast.Quote(string(box)), err)
	}
	return c, nil
}

// address returns a path to the same file that is short enough for a socket address: instead of a long path,
// one that goes through an open descriptor of the file's directory (HZ-16). The caller calls done after use.
func address(path string) (addr string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path)), func() { _ = unix.Close(fd) }, nil
}
