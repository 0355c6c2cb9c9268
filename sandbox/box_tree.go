package sandbox

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Pack writes a file, or a directory with everything below it, to w as a tar archive. If the
// path is a symlink, Pack follows it. It returns an error of w unchanged.
func (b *Box) Pack(ctx context.Context, req wire.PackRequest, w io.Writer) (holdfast.Copied, error) {
	return download[holdfast.Copied](ctx, b, wire.OpPack, req, w)
}

// download writes what boxd sends for a request to w, and returns the answer that follows.
func download[A any](ctx context.Context, b *Box, op wire.Op, body any, w io.Writer) (A, error) {
	var a A
	c, err := b.begin(ctx, op, body, b.link.patience.operation())
	if err != nil {
		return a, err
	}
	defer c.close()
	return a, c.data(w, &a)
}

// begin sends a request whose outcome boxd does not store under a call id, and returns the operation in progress.
func (b *Box) begin(ctx context.Context, op wire.Op, body any, o owed) (*conv, error) {
	q, err := request(op, body)
	if err != nil {
		return nil, err
	}
	return b.link.open(ctx, b.session, q, nil, o)
}

// Unpack extracts the tar archive in r into the box. It reads r to its end unless the box
// refuses the archive earlier. If Unpack fails, nothing was changed in the box, unless the kind
// is unavailable: then the answer was lost, and the archive may have been extracted.
func (b *Box) Unpack(ctx context.Context, req wire.UnpackRequest, r io.Reader) (holdfast.Copied, error) {
	var sum holdfast.Copied
	// After the archive boxd syncs the files to disk, which may take any time.
	c, err := b.begin(ctx, wire.OpUnpack, req, b.link.patience.process(0))
	if err != nil {
		return sum, err
	}
	defer c.close()
	answered := make(chan error, 1)
	go func() {
		answered <- c.answer(&sum)
		// A box that has answered may no longer read the archive: end a blocked write.
		_ = c.stream.SetWriteDeadline(past)
	}()
	if err := c.feed(r, answered); err != nil {
		interrupt(c.stream)
		<-answered
		return sum, err
	}
	return sum, <-answered
}

// feed sends r as the data frames of an operation, followed by the frame that ends them. It stops
// without an error if boxd has answered already.
func (c *conv) feed(r io.Reader, answered chan error) error {
	buf := make([]byte, writePiece)
	var frame []byte
	for {
		c.watch.sign(true)
		n, rerr := r.Read(buf)
		if len(answered) > 0 {
			return nil
		}
		frame = frame[:0]
		if n > 0 {
			frame, _ = wire.AppendFrame(frame, wire.FrameData, buf[:n])
		}
		ended := errors.Is(rerr, io.EOF)
		if ended {
			frame, _ = wire.AppendFrame(frame, wire.FrameEOF, nil)
		} else if rerr != nil {
			return rerr
		}
		if _, err := c.stream.Write(frame); err != nil && len(answered) == 0 {
			return c.fail(err)
		}
		c.watch.sign(false)
		if ended {
			return nil
		}
	}
}

// data copies the payloads of data frames to w until boxd's answer comes, and decodes the answer.
func (c *conv) data(w io.Writer, answer any) error {
	for {
		t, payload, err := c.next(c.r.Next)
		if err != nil {
			return c.fail(err)
		}
		if t != wire.FrameData {
			return c.decode(t, payload, answer)
		}
		c.watch.sign(true)
		if _, err := w.Write(payload); err != nil {
			return err
		}
		c.watch.sign(false)
	}
}
