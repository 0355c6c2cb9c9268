package boxd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// maxWriteMemory is how many bytes the data of a write may have to be held in memory. Longer data goes to a file.
	maxWriteMemory = 256 << 10
	// maxWrite is how many bytes the data of one write may have.
	maxWrite = 256 << 20
	// readChunk is how many bytes of a file serveRead reads at once.
	readChunk = wire.MaxFrame
)

// past is a time in the past. As a deadline it ends reads or writes that are blocked.
var past = time.Unix(1, 0)

// serveStream serves one stream of a server: it reads the request, which comes first, and carries it out.
func (s *Server) serveStream(p *peer, stream *yamux.Stream) {
	s.load.streams.Add(1)
	s.load.served.Add(1)
	defer s.load.streams.Add(-1)
	defer stream.Close()
	r := wire.NewReader(stream)
	t, payload, err := r.NextLong()
	if err != nil {
		if holdfast.KindOf(err) != holdfast.KindInternal {
			fail(stream, err)
		}
		return
	}
	var req wire.Request
	if t != wire.FrameRequest || json.Unmarshal(payload, &req) != nil {
		fail(stream, holdfast.Errorf(holdfast.KindInvalid, "boxd", "the first frame of a stream is not a request"))
		return
	}
	if req.Scope != nil && s.cfg.Scoped == nil {
		fail(stream, holdfast.Errorf(holdfast.KindInvalid, "boxd", "this box cannot limit file operations to a scope of paths"))
		return
	}
	if len(req.Release) > 0 {
		// Ignore the error, which means that another connection has replaced p: the operation returns it again.
		_ = s.led.release(p, req.Release)
	}
	c := &change{peer: p, s: s, ended: !req.Op.Changes()}
	defer c.end()
	switch req.Op {
	case wire.OpExec:
		err = s.serveExec(c, stream, r, req)
	case wire.OpRead:
		err = s.serveRead(p, stream, req)
	case wire.OpWrite:
		err = s.serveWrite(c, stream, r, req)
	case wire.OpPack:
		err = s.servePack(p, stream, req)
	case wire.OpUnpack:
		err = s.serveUnpack(c, stream, r, req)
	case wire.OpEdit, wire.OpRemove, wire.OpMkdir, wire.OpRename:
		err = s.serveMutation(c, stream, req)
	case wire.OpStop:
		err = s.serveStop(p, stream, req)
	default:
		var v any
		if v, err = s.query(p, req); err == nil {
			p.mux.Last(stream.StreamID())
			err = answer(stream, v)
		}
	}
	if err != nil {
		fail(stream, err, c.report(nil)...)
		if req.Op == wire.OpWrite || req.Op == wire.OpUnpack {
			// Read the rest of the data: the client sends all of it before it reads the error.
			_, _ = io.Copy(io.Discard, stream)
		}
	}
}

// answer sends v as the answer of a stream, after the frames in front. It ignores a failed write: the client went away.
func answer(w io.Writer, v any, front ...byte) error {
	buf, err := wire.AppendJSON(front, wire.FrameAnswer, v)
	if err == nil {
		_, _ = w.Write(buf)
	}
	return err
}

// fail sends an error as the answer of a stream, after the frames in front.
func fail(w io.Writer, err error, front ...byte) {
	if buf, jerr := wire.AppendJSON(front, wire.FrameError, wire.AsError(err)); jerr == nil {
		_, _ = w.Write(buf)
	}
}

// body decodes the body of a request. An unknown field is an error, so that an
// option that this boxd does not know is not ignored.
func body[T any](req wire.Request) (T, error) {
	var v T
	return v, decode(req.Op, req.Body, &v)
}

func decode(op wire.Op, raw []byte, v any) error {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if err := decodeStrict(raw, v); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd "+string(op), "the request %s is invalid: %s", holdfast.Quote(string(raw)), err.Error())
	}
	return nil
}

// query serves operations that change no file and start no process. It refuses them if p was replaced.
func (s *Server) query(p *peer, req wire.Request) (any, error) {
	if err := s.led.check(p); err != nil {
		return nil, err
	}
	switch req.Op {
	case wire.OpCalls:
		return wire.CallsAnswer{Boot: s.boot, Calls: s.led.states(req.Session)}, nil
	case wire.OpRelease:
		return wire.Empty{}, nil
	case wire.OpKill:
		return asked(req, func(b wire.KillRequest) (any, error) { return wire.Empty{}, s.serveKill(p, req.Session, b) })
	case wire.OpTake:
		return asked(req, func(b wire.TakeRequest) (any, error) { return wire.Empty{}, s.serveTake(p, req.Session, b) })
	case wire.OpStat:
		return look(s, req, FileOps.Stat)
	case wire.OpList:
		return look(s, req, FileOps.List)
	case wire.OpGlob:
		return look(s, req, FileOps.Glob)
	case wire.OpGrep:
		return look(s, req, FileOps.Grep)
	case wire.OpStats:
		return s.stats(p), nil
	case wire.OpWatch:
		return asked(req, s.serveWatch)
	case wire.OpPS:
		return s.processes()
	case wire.OpGate:
		return asked(req, func(b wire.GateRequest) (any, error) {
			return wire.Empty{}, s.gate.set(b.Closed, func(fn func()) error { return s.led.guard(p, fn) })
		})
	case wire.OpLeave:
		return asked(req, func(b wire.LeaveRequest) (any, error) { return wire.Empty{}, s.members.serveLeave(p, req.Session, b) })
	case wire.OpListen:
		return asked(req, func(b wire.ListenRequest) (out any, err error) {
			if gerr := s.led.guard(p, func() { out, err = s.links.listen(req.Session, b) }); gerr != nil {
				err = gerr
			}
			return out, err
		})
	}
	return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd", "boxd does not know the operation %s", holdfast.Quote(string(req.Op)))
}

// maxMillis is one year in milliseconds, the longest duration in a request. boxd treats a longer one as one year.
const maxMillis = int64(365 * 24 * time.Hour / time.Millisecond)

func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), maxMillis)) * time.Millisecond
}

// checkCall returns an error if the call id of a mutating request is invalid, or if its argument hash is not want.
func checkCall(req wire.Request, want string) error {
	op := "boxd " + string(req.Op)
	id, err := holdfast.Parse[holdfast.CallID](string(req.Call))
	if err != nil {
		return err
	}
	if id != req.Call {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the call id %s is not in lower case", holdfast.Quote(string(req.Call)))
	}
	if req.Hash != want {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the request's hash %s does not match its arguments", holdfast.Quote(req.Hash))
	}
	return nil
}

// serveMutation serves the operations edit, remove, mkdir and rename.
func (s *Server) serveMutation(of *change, stream *yamux.Stream, req wire.Request) error {
	if err := checkCall(req, wire.ArgumentHash(req.Op, req.Body)); err != nil {
		return err
	}
	act, err := s.mutation(req)
	if err != nil {
		return err
	}
	return s.once(of, stream, req, act)
}

// once runs act if the call of the request is new. Then it sends the call's outcome, unless the connection has ended.
func (s *Server) once(of *change, stream *yamux.Stream, req wire.Request, act func() (any, error)) error {
	c, fresh, err := s.led.begin(of.peer, req, nil)
	if err != nil {
		return err
	}
	if fresh {
		v, err := act()
		s.led.finish(c, v, err)
	}
	select {
	case <-c.done:
	case <-of.done:
		return nil
	}
	return sendOutcome(of, stream, c)
}

// sendOutcome sends the outcome of a finished call as the last frame of the stream.
func sendOutcome(of *change, stream *yamux.Stream, c *call) error {
	buf, err := of.report(nil), error(nil)
	if c.err != nil {
		buf, err = wire.AppendJSON(buf, wire.FrameError, c.err)
	} else {
		buf, err = wire.AppendLong(buf, wire.FrameAnswer, c.answer)
	}
	if err == nil {
		of.mux.Last(stream.StreamID())
		_, _ = stream.Write(buf)
	}
	return err
}

// do runs a file operation with the rights of a tool. It turns a panic in the operation into an error.
func (s *Server) do(fn func() error) error { return guarded(s.cfg.Hands.Do, fn) }

func guarded(do func(func() error) error, fn func() error) error {
	return do(func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = holdfast.Errorf(holdfast.KindInternal, "boxd", "a file operation panicked: %s", fmt.Sprint(r))
			}
		}()
		return fn()
	})
}

// files returns the file operations for a request. They are limited to the scope of the request, if it has one.
func (s *Server) files(req wire.Request) FileOps {
	if req.Scope == nil {
		return s.cfg.Files
	}
	return s.cfg.Scoped(*req.Scope)
}

func (s *Server) mutation(req wire.Request) (func() (any, error), error) {
	switch req.Op {
	case wire.OpEdit:
		return onFiles(s, req, FileOps.Edit)
	case wire.OpRemove:
		return onFiles(s, req, silent(FileOps.Remove))
	case wire.OpMkdir:
		return onFiles(s, req, silent(FileOps.Mkdir))
	default:
		return onFiles(s, req, silent(FileOps.Rename))
	}
}

// silent turns a file operation that returns only an error into one that also returns a wire.Empty.
func silent[Q any](fn func(FileOps, Q) error) func(FileOps, Q) (wire.Empty, error) {
	return func(f FileOps, q Q) (wire.Empty, error) { return wire.Empty{}, fn(f, q) }
}

// onFiles decodes the body of a request, and returns a function that runs the file operation fn with it.
func onFiles[Q, A any](s *Server, req wire.Request, fn func(FileOps, Q) (A, error)) (func() (any, error), error) {
	b, err := body[Q](req)
	return func() (any, error) {
		var a A
		err := s.members.do(req.Session, func() (err error) { a, err = fn(s.files(req), b); return err })
		return a, err
	}, err
}

// look decodes the body of a request and runs the file operation fn, which changes nothing.
func look[Q, A any](s *Server, req wire.Request, fn func(FileOps, Q) (A, error)) (any, error) {
	act, err := onFiles(s, req, fn)
	if err != nil {
		return nil, err
	}
	return act()
}

// asked decodes the body of a request, calls answer with it, and returns the result.
func asked[Q, A any](req wire.Request, answer func(Q) (A, error)) (any, error) {
	b, err := body[Q](req)
	if err != nil {
		return nil, err
	}
	return answer(b)
}

// serveRead sends a file in pieces. It reads each piece on a thread with the identity of a tool and sends
// it on another one, so that the first does not wait for the client.
func (s *Server) serveRead(p *peer, stream *yamux.Stream, req wire.Request) error {
	b, err := body[wire.ReadRequest](req)
	if err != nil {
		return err
	}
	if b.Offset < 0 || b.Limit < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd read", "the offset %d or the limit %d of a read is negative", b.Offset, b.Limit)
	}
	if err := s.led.check(p); err != nil {
		return err
	}
	go untilGone(stream)
	total := wire.ReadAnswer{}
	for {
		piece := wire.ReadRequest{Path: b.Path, Offset: b.Offset + total.Sent, Limit: readChunk, Where: b.Where && total.Sent == 0}
		if b.Limit > 0 {
			piece.Limit = min(piece.Limit, b.Limit-total.Sent)
		}
		var data bytes.Buffer
		var got wire.ReadAnswer
		if err := s.members.do(req.Session, func() (err error) { got, err = s.files(req).Read(piece, &data); return err }); err != nil {
			return err
		}
		total.Size = got.Size
		if piece.Where {
			total.Below = got.Below
		}
		total.Sent += int64(data.Len())
		n := int64(data.Len())
		for data.Len() > 0 {
			if err := wire.WriteFrame(stream, wire.FrameData, data.Next(wire.MaxFrame)); err != nil {
				return nil
			}
		}
		if n < piece.Limit || b.Limit > 0 && total.Sent >= b.Limit || b.Offset+total.Sent >= got.Size {
			return answer(stream, total)
		}
	}
}

// untilGone waits until the client closes its side of the stream, and then ends a blocked write to the stream.
func untilGone(stream *yamux.Stream) {
	_, _ = io.Copy(io.Discard, stream)
	_ = stream.SetWriteDeadline(past)
}

// serveWrite first receives all data of a write, and then writes the file with the rights of a tool. If the
// client goes away before the end of the data, nothing is written.
func (s *Server) serveWrite(of *change, stream *yamux.Stream, r *wire.Reader, req wire.Request) error {
	b, err := body[wire.WriteRequest](req)
	if err != nil {
		return err
	}
	in := &incoming{file: s.state.unlinked, sum: sha256.New()}
	defer in.close()
	in.sum.Write([]byte(req.Op))
	in.sum.Write([]byte{0})
	in.sum.Write(req.Body)
	for {
		t, payload, err := r.Next()
		if err != nil {
			return nil // the client went away before the end of the data: nothing was written
		}
		if t == wire.FrameEOF {
			break
		}
		if t != wire.FrameData {
			return holdfast.Errorf(holdfast.KindInvalid, "boxd write", "boxd got an unexpected frame of type %q in the data of a write", byte(t))
		}
		in.add(payload)
	}
	if in.err != nil {
		return in.err
	}
	if err := checkCall(req, hex.EncodeToString(in.sum.Sum(nil))); err != nil {
		return err
	}
	return s.once(of, stream, req, func() (any, error) {
		var a wire.WriteAnswer
		data, err := in.reader()
		if err != nil {
			return a, err
		}
		err = s.members.do(req.Session, func() (err error) { a, err = s.files(req).Write(b, data); return err })
		return a, err
	})
}

// incoming collects the data of a write, long data in a file without a name. After an error it drops further data.
type incoming struct {
	file func() (*os.File, error)
	sum  hash.Hash
	mem  []byte
	f    *os.File
	size int64
	err  error
}

func (in *incoming) add(p []byte) {
	if in.err != nil {
		return
	}
	in.sum.Write(p)
	in.size += int64(len(p))
	if in.size > maxWrite {
		in.err = holdfast.Errorf(holdfast.KindTooLarge, "boxd write", "the data to write to a file is longer than %d bytes", maxWrite)
		in.mem = nil
		return
	}
	if in.f == nil && in.size <= maxWriteMemory {
		in.mem = append(in.mem, p...)
		return
	}
	if in.f == nil {
		if in.f, in.err = in.file(); in.err == nil {
			_, in.err = in.f.Write(in.mem)
			in.mem = nil
		}
	}
	if in.err == nil {
		_, in.err = in.f.Write(p)
	}
	if in.err != nil {
		in.err = holdfast.Errorf(holdfast.KindUnavailable, "boxd write", "cannot buffer the data to write to a file: %w", in.err)
	}
}

func (in *incoming) reader() (io.Reader, error) {
	if in.f == nil {
		return bytes.NewReader(in.mem), nil
	}
	if _, err := in.f.Seek(0, io.SeekStart); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxd write", "cannot read back the buffered data to write to a file: %w", err)
	}
	return in.f, nil
}

func (in *incoming) close() {
	if in.f != nil {
		_ = in.f.Close()
	}
}
