package boxproc

import (
	"context"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Lent makes b a helper that never becomes a box (see wire.Config.Lend): its boxd clones a mount, and Lent
// returns the clone.
func (b *Boot) Lent(ctx context.Context, m wire.Mount) (*os.File, error) {
	if err := b.Hand(ctx, &Handover{Config: wire.Config{Lend: &m}}); err != nil {
		return nil, err
	}
	in := &withFiles{UnixConn: b.Control}
	defer func() {
		for _, f := range in.files {
			_ = f.Close()
		}
	}()
	if _, err := b.status(ctx, in); err != nil {
		return nil, err
	}
	if len(in.files) != 1 {
		return nil, io.ErrUnexpectedEOF
	}
	f := in.files[0]
	in.files = nil
	return f, nil
}

// withFiles reads a socket and keeps the open files that come with the bytes.
type withFiles struct {
	*net.UnixConn
	files []*os.File
}

func (w *withFiles) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*8))
	n, m, _, _, err := w.ReadMsgUnix(p, oob)
	messages, perr := unix.ParseSocketControlMessage(oob[:m])
	for _, c := range messages {
		fds, _ := unix.ParseUnixRights(&c)
		for _, fd := range fds {
			w.files = append(w.files, os.NewFile(uintptr(fd), "lent"))
		}
	}
	switch {
	case err == nil && perr != nil:
		err = perr
	case err == nil && n == 0:
		err = io.EOF
	}
	return n, err
}
