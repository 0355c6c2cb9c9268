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

// Listen makes the box's socket in place of a former one. Closing the listener
// leaves the file: boxd inherits the socket and outlives us.
func (d *Dir) Listen(box holdfast.BoxID) (*net.UnixListener, error) {
	return listenAt(d.Socket(box))
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
