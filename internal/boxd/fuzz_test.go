package boxd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// idle is a machine on which nothing can be done: what a fuzzer may drive.
type idle struct{}

var errIdle = holdfast.Errorf(holdfast.KindNotFound, "idle", "nothing is here")

func (idle) Start(boxd.StartSpec) (boxd.Process, error)   { return nil, errIdle }
func (idle) Signal(boxd.Process, int) error               { return nil }
func (idle) KillAll(uint64)                               {}
func (idle) Left(uint64) []wire.Process                   { return nil }
func (idle) Alive() int                                   { return 0 }
func (idle) Processes() ([]wire.Process, error)           { return nil, nil }
func (idle) Do(fn func() error) error                     { return fn() }
func (idle) Gate(bool)                                    {}
func (idle) Stats() wire.Stats                            { return wire.Stats{OOMKills: -1} }
func (idle) OpenPTY() (master, slave *os.File, err error) { return nil, nil, errIdle }
func (idle) Read(r wire.ReadRequest, w io.Writer) (wire.ReadAnswer, error) {
	if r.Path == "panic" {
		panic("a bug")
	}
	n, err := w.Write(make([]byte, min(r.Limit, 3<<20)))
	return wire.ReadAnswer{Size: 3 << 20, Sent: int64(n)}, err
}

func (idle) Write(_ wire.WriteRequest, data io.Reader) (wire.WriteAnswer, error) {
	n, err := io.Copy(io.Discard, data)
	return wire.WriteAnswer{Size: n}, err
}
func (idle) Edit(wire.EditRequest) (wire.EditAnswer, error) { return wire.EditAnswer{}, errIdle }
func (idle) Stat(wire.PathRequest) (wire.FileInfo, error)   { return wire.FileInfo{}, errIdle }
func (idle) List(wire.ListRequest) (wire.ListAnswer, error) { return wire.ListAnswer{}, errIdle }
func (idle) Glob(wire.GlobRequest) (wire.GlobAnswer, error) { return wire.GlobAnswer{}, errIdle }
func (idle) Grep(wire.GrepRequest) (wire.GrepAnswer, error) { return wire.GrepAnswer{}, errIdle }
func (idle) Remove(wire.RemoveRequest) error                { return errIdle }
func (idle) Mkdir(wire.MkdirRequest) error                  { return errors.New("plain") }
func (idle) Rename(wire.RenameRequest) error                { panic("a bug") }

func idleServer(t testing.TB) *boxd.Server {
	s, err := boxd.New(boxd.Config{Config: wire.Config{State: t.TempDir(), Workspace: "/"}, Hands: idle{}, Files: idle{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(0, "") })
	return s
}

func idleSession(t testing.TB, s *boxd.Server, token uint64) *yamux.Session {
	t.Helper()
	ours, theirs := net.Pipe()
	s.ServeConn(theirs)
	if w := rawHello(t, ours, token); w.Err != nil {
		t.Fatal(w.Err)
	}
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive = false
	cfg.LogOutput = io.Discard
	session, err := yamux.Client(ours, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func rawHello(t testing.TB, conn net.Conn, token uint64) wire.Welcome {
	t.Helper()
	if err := wire.WriteJSON(conn, wire.FrameHello, wire.Hello{Version: wire.Version, Token: token}); err != nil {
		t.Fatal(err)
	}
	_, payload, err := wire.ReadFrame(conn)
	if err != nil {
		t.Fatal(err)
	}
	var w wire.Welcome
	if err := json.Unmarshal(payload, &w); err != nil {
		t.Fatal(err)
	}
	return w
}

func frames(parts ...any) []byte {
	var out []byte
	for i := 0; i < len(parts); i += 2 {
		out, _ = wire.AppendJSON(out, parts[i].(wire.FrameType), parts[i+1])
	}
	return out
}

func requestOf(op wire.Op, body any, data ...[]byte) wire.Request {
	b, _ := json.Marshal(body)
	return wire.Request{Op: op, Call: "01890a5d-ac96-774b-bcce-b302099a8057", Hash: wire.ArgumentHash(op, b, data...), Body: b}
}

func seedStreams() [][]byte {
	exec, _ := json.Marshal(wire.ExecRequest{Shell: "x", Stdin: true})
	execReq := requestOf(wire.OpExec, wire.ExecBody{Exec: exec})
	execReq.Hash = wire.ArgumentHash(wire.OpExec, exec)
	seeds := [][]byte{
		nil, []byte("Q"), []byte("?\x00\x00\x00\x00"), []byte("Q\xff\xff\xff\xff"),
		frames(wire.FrameRequest, "no object"),
		frames(wire.FrameHello, wire.Hello{Version: 1, Token: 9}),
		frames(wire.FrameRequest, wire.Request{Op: "unknown"}),
		frames(wire.FrameRequest, wire.Request{Op: wire.OpStat, Body: []byte(`{"unknown":1}`)}),
		frames(wire.FrameRequest, execReq, wire.FrameStdin, "x", wire.FrameSignal, wire.Signal{Signal: 2}, wire.FrameResize, wire.Size{Rows: 1}),
		frames(wire.FrameData, "piece", wire.FrameRequest, wire.Request{Op: wire.OpCalls}),
		append(frames(wire.FrameRequest, requestOf(wire.OpWrite, wire.WriteRequest{Path: "f"}, []byte(`"d"`)), wire.FrameData, "d"), 'Z', 0, 0, 0, 0),
		frames(wire.FrameRequest, requestOf(wire.OpWrite, wire.WriteRequest{Path: "f"}), wire.FrameStdin, "d"),
		frames(wire.FrameRequest, wire.Request{Op: wire.OpRead, Body: []byte(`{"path":"panic"}`)}),
		frames(wire.FrameRequest, wire.Request{Op: wire.OpRead, Body: []byte(`{"path":"f"}`)}),
		frames(wire.FrameRequest, requestOf(wire.OpRename, wire.RenameRequest{From: "a", To: "b"})),
	}
	for _, op := range []wire.Op{wire.OpCalls, wire.OpStats, wire.OpPS, wire.OpWatch, wire.OpStat, wire.OpList, wire.OpGlob, wire.OpGrep, wire.OpEdit, wire.OpRemove, wire.OpMkdir, wire.OpListen, wire.OpKill, wire.OpRelease, wire.OpStop} {
		seeds = append(seeds, frames(wire.FrameRequest, requestOf(op, struct{}{})))
	}
	return append(seeds, frames(wire.FrameRequest, requestOf(wire.OpGate, wire.GateRequest{Closed: true})), frames(wire.FrameRequest, requestOf(wire.OpGate, wire.GateRequest{})))
}

// FuzzStream: whatever a stream holds, boxd answers with well-formed frames and
// at most one end, and goes on serving.
func FuzzStream(f *testing.F) {
	for _, s := range seedStreams() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s := idleServer(t)
		session := idleSession(t, s, 1)
		defer session.Close()
		stream, err := session.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = stream.Write(in)
			_ = stream.Close()
		}()
		_ = stream.SetReadDeadline(time.Now().Add(20 * time.Second))
		ends := 0
		for {
			ft, payload, err := wire.ReadFrame(stream)
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break // our side ended: boxd may take it for a client that went away
			}
			if err != nil {
				if bytes.Contains(in, []byte(`stop`)) {
					return // the box may be gone
				}
				t.Fatalf("answer: %v", err)
			}
			if ft == wire.FrameAnswer || ft == wire.FrameError {
				if ends++; ends > 1 || !json.Valid(payload) {
					t.Fatalf("%d ends, %q", ends, payload)
				}
			}
		}
		if bytes.Contains(in, []byte(`stop`)) {
			return
		}
		next := idleSession(t, s, 2)
		defer next.Close()
		check, err := next.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.WriteJSON(check, wire.FrameRequest, wire.Request{Op: wire.OpCalls}); err != nil {
			t.Fatal(err)
		}
		_ = check.SetReadDeadline(time.Now().Add(20 * time.Second))
		if ft, _, err := wire.ReadFrame(check); err != nil || ft != wire.FrameAnswer {
			t.Fatalf("after %q boxd answers %q, %v", in, ft, err)
		}
	})
}

// FuzzConnection: whatever comes instead of a hello, the next server is served.
func FuzzConnection(f *testing.F) {
	f.Add([]byte{})
	f.Add(frames(wire.FrameHello, wire.Hello{Version: 1, Token: 3}))
	f.Add(append(frames(wire.FrameHello, wire.Hello{Version: 1, Token: 3}), 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0))
	f.Add(frames(wire.FrameHello, wire.Hello{Version: wire.Version, Token: 3}))
	f.Add(frames(wire.FrameRequest, wire.Request{Op: wire.OpStop}))
	f.Add([]byte("H\x00\x00\x00\x02[]"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := idleServer(t)
		ours, theirs := net.Pipe()
		s.ServeConn(theirs)
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		_ = ours.SetWriteDeadline(time.Now().Add(20 * time.Second))
		_, _ = ours.Write(in)
		_ = ours.Close()
		_ = idleSession(t, s, 1<<63).Close()
	})
}
