package sandbox

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Calls lists the calls that boxd holds for the session.
func (b *Box) Calls(ctx context.Context) ([]wire.CallState, error) {
	a, err := query[wire.CallsAnswer](ctx, b, wire.OpCalls, wire.Empty{})
	return a.Calls, err
}

// Kill ends a running call and everything it started.
func (b *Box) Kill(ctx context.Context, req wire.KillRequest) error {
	_, err := query[wire.Empty](ctx, b, wire.OpKill, req)
	b.link.aged()
	return err
}

// Watch makes boxd list the files of the workspace and store the listing under a name. Watched compares the files with
// that listing later.
func (b *Box) Watch(ctx context.Context, name string) error {
	_, err := query[wire.Changes](ctx, b, wire.OpWatch, wire.WatchRequest{Name: name})
	return err
}

// Watched returns the files that differ from the listing that Watch stored under that name. If
// the comparison fails, the field Unseen of the result says why.
func (b *Box) Watched(ctx context.Context, name string) Changes {
	c, err := query[wire.Changes](ctx, b, wire.OpWatch, wire.WatchRequest{Name: name, End: true})
	if err != nil {
		return Changes{Unseen: err.Error()}
	}
	return changesOf(&c)
}

// Take lets boxd delete the output of a line protocol up to an offset. Exec does this itself.
func (b *Box) Take(ctx context.Context, req wire.TakeRequest) error {
	_, err := query[wire.Empty](ctx, b, wire.OpTake, req)
	return err
}

// Read copies bytes of a regular file to w.
func (b *Box) Read(ctx context.Context, req wire.ReadRequest, w io.Writer) (wire.ReadAnswer, error) {
	return download[wire.ReadAnswer](ctx, b, wire.OpRead, req, w)
}

// writePiece is how many bytes of a file are sent in one frame. It is small because the
// multiplexer of each box retains a buffer as large as the longest frame it ever carried.
const writePiece = 64 << 10

// Write creates or replaces a file with the bytes of data.
func (b *Box) Write(ctx context.Context, call Call, req wire.WriteRequest, data []byte) (wire.WriteAnswer, error) {
	var a wire.WriteAnswer
	if err := call.check(wire.OpWrite); err != nil {
		return a, err
	}
	q, err := request(wire.OpWrite, req)
	if err != nil {
		return a, err
	}
	q.Call, q.Hash = call.ID, wire.ArgumentHash(wire.OpWrite, q.Body, data)
	first := make([]byte, 0, min(len(data), writePiece)+2*wire.HeadLen)
	piece := func(buf []byte) []byte {
		n := min(len(data), writePiece)
		buf, _ = wire.AppendFrame(buf, wire.FrameData, data[:n])
		if data = data[n:]; len(data) == 0 {
			buf, _ = wire.AppendFrame(buf, wire.FrameEOF, nil)
		}
		return buf
	}
	first = piece(first)
	c, err := b.link.open(ctx, b.session, q, first, b.link.patience.operation())
	if err != nil {
		return a, err
	}
	defer c.close()
	for len(data) > 0 {
		first = piece(first[:0])
		if _, err := c.stream.Write(first); err != nil {
			return a, c.fail(err)
		}
		c.watch.sign(false)
	}
	return a, c.answer(&a)
}

// Edit replaces text in a file.
func (b *Box) Edit(ctx context.Context, call Call, req wire.EditRequest) (wire.EditAnswer, error) {
	return mutate[wire.EditAnswer](ctx, b, call, wire.OpEdit, req)
}

// Stat describes a path. A path that does not exist is not_found.
func (b *Box) Stat(ctx context.Context, req wire.PathRequest) (wire.FileInfo, error) {
	return query[wire.FileInfo](ctx, b, wire.OpStat, req)
}

// List lists a directory.
func (b *Box) List(ctx context.Context, req wire.ListRequest) (wire.ListAnswer, error) {
	return query[wire.ListAnswer](ctx, b, wire.OpList, req)
}

// Glob finds files by pattern.
func (b *Box) Glob(ctx context.Context, req wire.GlobRequest) (wire.GlobAnswer, error) {
	return query[wire.GlobAnswer](ctx, b, wire.OpGlob, req)
}

// Grep searches file contents.
func (b *Box) Grep(ctx context.Context, req wire.GrepRequest) (wire.GrepAnswer, error) {
	return query[wire.GrepAnswer](ctx, b, wire.OpGrep, req)
}

// Remove removes a file or tree.
func (b *Box) Remove(ctx context.Context, call Call, req wire.RemoveRequest) error {
	_, err := mutate[wire.Empty](ctx, b, call, wire.OpRemove, req)
	return err
}

// Mkdir makes a directory with its parents.
func (b *Box) Mkdir(ctx context.Context, call Call, req wire.MkdirRequest) error {
	_, err := mutate[wire.Empty](ctx, b, call, wire.OpMkdir, req)
	return err
}

// Rename renames a file or directory within the box.
func (b *Box) Rename(ctx context.Context, call Call, req wire.RenameRequest) error {
	_, err := mutate[wire.Empty](ctx, b, call, wire.OpRename, req)
	return err
}

// Stats returns how much memory and processor time the box uses, its number of processes and
// calls, and how often it met a limit.
func (b *Box) Stats(ctx context.Context) (wire.Stats, error) {
	s, err := query[wire.Stats](ctx, b, wire.OpStats, wire.Empty{})
	if err == nil {
		b.link.heard(s.Alive)
	}
	return s, err
}

// Processes lists the box's processes.
func (b *Box) Processes(ctx context.Context) ([]wire.Process, error) {
	a, err := query[wire.PSAnswer](ctx, b, wire.OpPS, wire.Empty{})
	return a.Processes, err
}

// Gate closes or opens boxd's gate: while it is closed, calls that would start a process wait,
// so that no start is half-way when the box is frozen.
func (b *Box) Gate(ctx context.Context, closed bool) error {
	_, err := query[wire.Empty](ctx, b, wire.OpGate, wire.GateRequest{Closed: closed})
	return err
}

// Listen opens a proxy listener inside the box. Connections that it accepts are served by
// Dialer.Accepted. It returns the listener's address, with its port. Opening the same listener again is not an error.
func (b *Box) Listen(ctx context.Context, req wire.ListenRequest) (address string, err error) {
	a, err := query[wire.ListenAnswer](ctx, b, wire.OpListen, req)
	return a.Address, err
}

// Stop ends all processes in the box, writes the outcomes of calls to disk, and ends boxd.
func (b *Box) Stop(ctx context.Context, req wire.StopRequest) (wire.StopAnswer, error) {
	return query[wire.StopAnswer](ctx, b, wire.OpStop, req)
}

// Leave ends the session's part of a shared box: its processes, listeners and place. It returns
// when they are gone. A session that has no place has left already. Outcomes of its calls stay
// until they are released. It needs a Box of that session (Of).
func (b *Box) Leave(ctx context.Context, req wire.LeaveRequest) error {
	_, err := query[wire.Empty](ctx, b, wire.OpLeave, req)
	return err
}

// Release lets boxd forget finished calls. It does not wait for an answer. If the connection
// breaks before the release arrives, the Welcome of the next connection lists the call again,
// and the caller has to release it again.
func (b *Box) Release(calls ...holdfast.CallID) {
	if len(calls) == 0 {
		return
	}
	b.link.gather(func(l *link) {
		for _, c := range calls {
			l.releases = append(l.releases, wire.Released{Call: c, Session: b.session})
		}
	})
}
