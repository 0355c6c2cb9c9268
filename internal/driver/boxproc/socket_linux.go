package boxproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// maxSocketPath is the longest path that a Unix socket address can hold on every supported system
// (104 bytes with the terminator on darwin, 108 on Linux).
const maxSocketPath = 103

// ListenAt makes a listening socket for boxd at a path in the driver's directory, and replaces a file that exists
// there. The path is that of the box's Socket, or of a file that is renamed to it later. The socket
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

// queueTime is how long Dial waits for room in the queue of a boxd that accepts no connections.
const queueTime = 10 * time.Second

// Dial connects to the box's socket; not_found if no boxd listens there. An error of another kind says nothing
// about the box: busy if the server has no file descriptors left, otherwise unavailable.
func (d *Dir) Dial(ctx context.Context, box holdfast.BoxID) (net.Conn, error) {
	addr, done, err := address(d.Socket(box))
	var c net.Conn
	if err == nil {
		defer done()
		ctx, cancel := context.WithTimeout(ctx, queueTime)
		defer cancel()
		for {
			c, err = new(net.Dialer).DialContext(ctx, "unix", addr)
			// EAGAIN: the queue of connections that boxd has not accepted yet is full.
			if !errors.Is(err, unix.EAGAIN) || clock.Pause(ctx, pace) != nil {
				break
			}
		}
		if err == nil {
			return c, nil
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "boxproc.dial", "box %s is not running: %w", holdfast.Quote(string(box)), err)
	}
	return nil, holdfast.Errorf(failure(err), "boxproc.dial", "cannot connect to box %s: %w", holdfast.Quote(string(box)), err)
}

// address returns a path to the file path that is short enough for a socket address: path itself, or if that is too
// long, a path through an open descriptor of the file's directory (HZ-16). The caller calls done after use.
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
