package boxd

import (
	"errors"
	"io"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// trees returns the operations on directory trees for a request, limited to its scope if it has one.
func (s *Server) trees(req wire.Request) (TreeOps, error) {
	ops, ok := s.files(req).(TreeOps)
	if !ok {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd "+string(req.Op), "this box cannot copy directory trees")
	}
	return ops, nil
}

// servePack sends a file or directory tree as an archive.
func (s *Server) servePack(p *peer, stream *yamux.Stream, req wire.Request) error {
	b, err := body[wire.PackRequest](req)
	if err != nil {
		return err
	}
	ops, err := s.trees(req)
	if err != nil {
		return err
	}
	if err := s.led.check(p); err != nil {
		return err
	}
	go untilGone(stream)
	out := &framed{stream: stream}
	sum, err := ops.Pack(b, out, s.members.doOf(req))
	switch {
	case out.err != nil:
		return nil // the client went away
	case err != nil:
		return err
	}
	return answer(stream, sum)
}

// framed is a writer that sends bytes in data frames. err is the error of the first write that failed.
type framed struct {
	stream io.Writer
	err    error
}

func (f *framed) Write(p []byte) (n int, err error) {
	for n < len(p) && f.err == nil {
		piece := p[n:min(len(p), n+wire.MaxFrame)]
		if f.err = wire.WriteFrame(f.stream, wire.FrameData, piece); f.err == nil {
			n += len(piece)
		}
	}
	return n, f.err
}

// serveUnpack receives an archive and unpacks it. It fails if another connection replaces this one meanwhile.
func (s *Server) serveUnpack(of *change, stream *yamux.Stream, r *wire.Reader, req wire.Request) error {
	b, err := body[wire.UnpackRequest](req)
	if err != nil {
		return err
	}
	ops, err := s.trees(req)
	if err != nil {
		return err
	}
	in := &unframed{r: r, check: func() error { return s.led.check(of.peer) }}
	sum, err := ops.Unpack(b, in, s.boot[:8], s.members.doOf(req))
	switch {
	case in.gone:
		return nil
	case err != nil:
		return err
	}
	return answer(stream, sum, of.report(nil)...)
}

// unframed is a reader of the bytes in data frames, up to the frame that ends them. It calls check before each frame.
type unframed struct {
	r     *wire.Reader
	check func() error
	rest  []byte
	ended bool
	// gone is true if the client went away before the end of the data.
	gone bool
}

func (u *unframed) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		if u.ended {
			return 0, io.EOF
		}
		if err := u.check(); err != nil {
			return 0, err
		}
		t, payload, err := u.r.Next()
		switch {
		case err != nil && holdfast.KindOf(err) != holdfast.KindInternal:
			return 0, err
		case err != nil:
			u.gone = true
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		case t == wire.FrameEOF:
			u.ended = true
		case t != wire.FrameData:
			return 0, holdfast.Errorf(holdfast.KindInvalid, "boxd unpack", "boxd got an unexpected frame of type %q in an upload", byte(t))
		default:
			u.rest = payload
		}
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}
