package boxproc

import (
	"context"
	"net"
	"os"

	"github.com/holdfast-run/holdfast"
)

// maxSocketPath is the longest path a Unix socket address holds on every system
// we run on (104 bytes with the terminator on darwin, 108 on Linux).
const maxSocketPath = 103

// ListenAt makes a socket at a path of the directory, in place of a former one, for
// boxd alone: a box's Socket, or one that Dir.Dial finds once it was renamed to it.
// The file stays when the listener is closed: boxd has the socket and outlives us.
func ListenAt(path string) (*os.File, error) {
	l, err := listenAt(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.listen", "%w", err)
	}
	return f, nil
}

func listenAt(path string) (*net.UnixListener, error) {
	_ = os.Remove(path)
	addr, done, err := address(path)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.listen", "%w", err)
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.listen", "%w", err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// Dial connects to the box's socket: not_found when nobody listens.
func (d *Dir) Dial(ctx context.Context, box holdfast.BoxID) (net.Conn, error) {
	addr, done, err := address(d.Socket(box))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.dial", "%w", err)
	}
	defer done()
	c, err := new(net.Dialer).DialContext(ctx, "unix", addr)
	if err != nil {
		if ctx.Err() != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.dial", "%w", err)
		}
		return nil, holdfast.Errorf(holdfast.KindNotFound, "boxproc.dial", "box %s does not run: %w", holdfast.Quote(string(box)), err)
	}
	return c, nil
}
