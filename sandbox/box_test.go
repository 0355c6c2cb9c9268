package sandbox_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// peer is the other end of a pipe, which may break every rule of the protocol.
type peer struct {
	t    testing.TB
	conn net.Conn
}

// pipe is a connected pair over a real socket.
func pipe(t testing.TB) (ours net.Conn, theirs *peer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	return ours, &peer{t: t, conn: other}
}

// welcome answers the hello and becomes a session whose streams go to serve.
func (p *peer) welcome(w wire.Welcome, serve func(req wire.Request, s *yamux.Stream)) {
	_, payload, err := wire.ReadFrame(p.conn)
	var h wire.Hello
	if err != nil || json.Unmarshal(payload, &h) != nil {
		return
	}
	w.Token = h.Token
	_ = wire.WriteJSON(p.conn, wire.FrameHello, w)
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard
	cfg.EnableKeepAlive = false
	session, err := yamux.Server(p.conn, cfg)
	if err != nil {
		return
	}
	for {
		s, err := session.AcceptStream()
		if err != nil {
			return
		}
		go func() {
			defer s.Close()
			_, payload, err := wire.ReadFrame(s)
			var req wire.Request
			if err == nil && json.Unmarshal(payload, &req) == nil {
				serve(req, s)
			}
		}()
	}
}

func good() wire.Welcome { return wire.Welcome{Version: wire.Version, Boot: "b1"} }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect is a Box whose peer serves streams with serve.
func connect(t testing.TB, serve func(req wire.Request, s *yamux.Stream)) *sandbox.Box {
	t.Helper()
	ours, theirs := pipe(t)
	go theirs.welcome(good(), serve)
	b, err := sandbox.Dial(t.Context(), "w-x", ours, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func wantKind(t testing.TB, err error, kind holdfast.Kind) {
	t.Helper()
	if holdfast.KindOf(err) != kind {
		t.Errorf("%v has kind %q, want %q", err, holdfast.KindOf(err), kind)
	}
}

var call = sandbox.Call{ID: "01890a5d-ac96-774b-bcce-b302099a8057"}

func TestDialJudgesTheWelcome(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(net.Conn)
		kind   holdfast.Kind
	}{
		"stale token":   {func(c net.Conn) { hello(c, wire.Welcome{Err: &wire.Error{Kind: holdfast.KindConflict, Msg: "stale"}}) }, holdfast.KindConflict},
		"other version": {func(c net.Conn) { hello(c, wire.Welcome{Version: 99}) }, holdfast.KindUnavailable},
		"no welcome":    {func(c net.Conn) { _ = wire.WriteJSON(c, wire.FrameAnswer, wire.Empty{}) }, holdfast.KindUnavailable},
		"no JSON":       {func(c net.Conn) { _ = wire.WriteFrame(c, wire.FrameHello, []byte("[")) }, holdfast.KindUnavailable},
		"other bytes":   {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }, holdfast.KindUnavailable},
		"closed":        {func(c net.Conn) { _ = c.Close() }, holdfast.KindUnavailable},
		"cut":           {func(c net.Conn) { _, _ = c.Write([]byte("H\x00\x00\x00\x20{")); _ = c.Close() }, holdfast.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pipe(t)
			go func() {
				_, _, _ = wire.ReadFrame(theirs.conn)
				tc.answer(theirs.conn)
			}()
			b, err := sandbox.Dial(t.Context(), "w-x", ours, 5, nil)
			if b != nil || holdfast.KindOf(err) != tc.kind {
				t.Errorf("%v", err)
			}
			if _, err := ours.Write([]byte("x")); err == nil {
				t.Error("the pipe was not closed")
			}
		})
	}
}

func hello(c net.Conn, w wire.Welcome) { _ = wire.WriteJSON(c, wire.FrameHello, w) }

// TestHZ10_DialEndsByItsContext: a frozen boxd accepts and says nothing.
func TestHZ10_DialEndsByItsContext(t *testing.T) {
	ours, _ := pipe(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := sandbox.Dial(ctx, "w-x", ours, 5, nil)
	wantKind(t, err, holdfast.KindUnavailable)
	if !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
	ours, _ = pipe(t)
	done, cancel2 := context.WithCancel(t.Context())
	cancel2()
	_, err = sandbox.Dial(done, "w-x", ours, 5, nil)
	wantKind(t, err, holdfast.KindUnavailable)
}

// TestHZ10_SilenceIsNotDeath: no keepalive ends a pipe whose other end stands still.
func TestHZ10_SilenceIsNotDeath(t *testing.T) {
	thaw := make(chan struct{})
	b := connect(t, func(_ wire.Request, s *yamux.Stream) {
		<-thaw
		_ = wire.WriteJSON(s, wire.FrameAnswer, wire.Stats{Pids: 3})
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := b.Stats(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	select {
	case <-b.Done():
		t.Fatal("the pipe ended")
	default:
	}
	close(thaw)
	if st, err := b.Stats(t.Context()); err != nil || st.Pids != 3 {
		t.Error(st, err)
	}
	if b.ID() != "w-x" || b.Boot() != "b1" || b.Welcome().Token != 5 {
		t.Errorf("%+v", b.Welcome())
	}
}

// TestBrokenPipeFailsEveryPendingCall: with one kind, and at once.
func TestBrokenPipeFailsEveryPendingCall(t *testing.T) {
	ours, theirs := pipe(t)
	var wg, begun sync.WaitGroup
	begun.Add(6)
	go theirs.welcome(good(), func(_ wire.Request, s *yamux.Stream) {
		begun.Done()
		_, _ = io.Copy(io.Discard, s)
	})
	b, err := sandbox.Dial(t.Context(), "w-x", ours, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, pending := range []func() error{
		func() error { _, err := b.Stats(ctx); return err },
		func() error { _, err := b.Read(ctx, wire.ReadRequest{}, io.Discard); return err },
		func() error { _, err := b.Write(ctx, call, wire.WriteRequest{}, make([]byte, 1<<20)); return err },
		func() error { return b.Mkdir(ctx, call, wire.MkdirRequest{}) },
		func() error {
			_, err := b.Exec(ctx, call, wire.ExecRequest{Shell: "x"}, sandbox.ExecOptions{Stdin: strings.NewReader("x")})
			return err
		},
		func() error { return b.Gate(ctx, true) },
	} {
		wg.Go(func() {
			if err := pending(); !holdfast.IsKind(err, holdfast.KindUnavailable) || !errors.Is(err, sandbox.ErrLost) || holdfast.HintOf(err) == "" {
				t.Errorf("%v", err)
			}
		})
	}
	begun.Wait()
	_ = theirs.conn.Close()
	wg.Wait()
	<-b.Done()
	_, err = b.Stats(ctx)
	wantKind(t, err, holdfast.KindUnavailable)
	_, err = b.Stop(ctx, wire.StopRequest{})
	wantKind(t, err, holdfast.KindUnavailable)
	b.Release(call.ID)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	_ = b.Close()
}

func TestAnswersOutOfTheProtocolAreErrors(t *testing.T) {
	for name, answer := range map[string]func(s *yamux.Stream){
		"no JSON":       func(s *yamux.Stream) { _ = wire.WriteFrame(s, wire.FrameAnswer, []byte("{")) },
		"broken error":  func(s *yamux.Stream) { _ = wire.WriteFrame(s, wire.FrameError, []byte("{")) },
		"other frame":   func(s *yamux.Stream) { _ = wire.WriteFrame(s, wire.FrameHello, nil) },
		"unknown frame": func(s *yamux.Stream) { _, _ = s.Write([]byte("?\x00\x00\x00\x00")) },
		"no answer":     func(*yamux.Stream) {},
		"cut":           func(s *yamux.Stream) { _, _ = s.Write([]byte("A\x00\x00")) },
		"output without offset": func(s *yamux.Stream) {
			_ = wire.WriteFrame(s, wire.FrameStdout, []byte("short"))
		},
		"broken started": func(s *yamux.Stream) { _ = wire.WriteFrame(s, wire.FrameStarted, []byte("{")) },
	} {
		t.Run(name, func(t *testing.T) {
			b := connect(t, func(_ wire.Request, s *yamux.Stream) { answer(s) })
			_, err := b.Exec(t.Context(), call, wire.ExecRequest{Shell: "x"}, sandbox.ExecOptions{})
			if k := holdfast.KindOf(err); k != holdfast.KindUnavailable && k != holdfast.KindInvalid {
				t.Errorf("exec: %v", err)
			}
			if _, err := b.Stats(t.Context()); err == nil {
				t.Error("stats took it")
			}
			if _, err := b.Read(t.Context(), wire.ReadRequest{}, io.Discard); err == nil {
				t.Error("read took it")
			}
		})
	}
}

func TestBoxdsRefusalKeepsKindAndHint(t *testing.T) {
	b := connect(t, func(_ wire.Request, s *yamux.Stream) {
		_ = wire.WriteJSON(s, wire.FrameError, wire.Error{Kind: holdfast.KindTooLarge, Msg: "too long", Hint: "shorten it"})
	})
	_, err := b.Edit(t.Context(), call, wire.EditRequest{})
	wantKind(t, err, holdfast.KindTooLarge)
	if holdfast.HintOf(err) != "shorten it" || err.Error() != "box edit: too long" {
		t.Error(err)
	}
	for name, f := range map[string]func(c sandbox.Call) error{
		"exec": func(c sandbox.Call) error {
			_, err := b.Exec(t.Context(), c, wire.ExecRequest{}, sandbox.ExecOptions{})
			return err
		},
		"write":  func(c sandbox.Call) error { _, err := b.Write(t.Context(), c, wire.WriteRequest{}, nil); return err },
		"edit":   func(c sandbox.Call) error { _, err := b.Edit(t.Context(), c, wire.EditRequest{}); return err },
		"remove": func(c sandbox.Call) error { return b.Remove(t.Context(), c, wire.RemoveRequest{}) },
		"mkdir":  func(c sandbox.Call) error { return b.Mkdir(t.Context(), c, wire.MkdirRequest{}) },
		"rename": func(c sandbox.Call) error { return b.Rename(t.Context(), c, wire.RenameRequest{}) },
	} {
		err := f(sandbox.Call{})
		wantKind(t, err, holdfast.KindInvalid)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestExecTellsOfGaps: a jump of offsets is output that the spool dropped.
func TestExecTellsOfGaps(t *testing.T) {
	b := connect(t, func(_ wire.Request, s *yamux.Stream) {
		_ = wire.WriteJSON(s, wire.FrameStarted, wire.Started{PID: 1})
		for _, f := range []struct {
			at   uint64
			data string
		}{{10, "abc"}, {13, "d"}, {100, "tail"}} {
			_ = wire.WriteFrame(s, wire.FrameStdout, append(binary.BigEndian.AppendUint64(nil, f.at), f.data...))
		}
		_ = wire.WriteJSON(s, wire.FrameAnswer, wire.ExecResult{Class: holdfast.ExitOK, StdoutDropped: 86})
	})
	var out gaps
	res, err := b.Exec(t.Context(), call, wire.ExecRequest{Shell: "x"}, sandbox.ExecOptions{Stdout: &out, StdoutFrom: 10})
	if err != nil || res.StdoutDropped != 86 || out.text.String() != "abcd[14-100]tail" {
		t.Errorf("%+v %v %q", res, err, out.text.String())
	}
}

// TestStreamsEnd: an answered stream ends with the next request, or soon without one;
// one that is given up ends at once, since its end is what boxd goes by.
func TestStreamsEnd(t *testing.T) {
	ended := make(chan string, 8)
	asked := make(chan struct{}, 8)
	b := connect(t, func(req wire.Request, s *yamux.Stream) {
		asked <- struct{}{}
		if req.Op != wire.OpExec {
			_ = wire.WriteJSON(s, wire.FrameAnswer, wire.Empty{})
		}
		_, _ = io.Copy(io.Discard, s)
		ended <- string(req.Op)
	})
	if err := b.Kill(t.Context(), wire.KillRequest{}); err != nil {
		t.Fatal(err)
	}
	if op := <-ended; op != "kill" {
		t.Error(op)
	}
	if _, err := b.Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Processes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if op := <-ended; op != "stats" {
		t.Error(op)
	}
	for range 3 {
		<-asked
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := b.Exec(ctx, call, wire.ExecRequest{Shell: "x"}, sandbox.ExecOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if both := []string{<-ended, <-ended}; !slices.Contains(both, "ps") || !slices.Contains(both, "exec") {
		t.Error(both)
	}
}

type gaps struct{ text strings.Builder }

func (g *gaps) Write(p []byte) (int, error) { return g.text.Write(p) }
func (g *gaps) Gap(from, to int64) {
	b, _ := json.Marshal([]int64{from, to})
	g.text.WriteString(strings.ReplaceAll(string(b), ",", "-"))
}

// TestReleasesAreGathered: many releases cost few requests, none is lost.
func TestReleasesAreGathered(t *testing.T) {
	var mu sync.Mutex
	got := map[holdfast.CallID]bool{}
	requests := 0
	b := connect(t, func(req wire.Request, s *yamux.Stream) {
		mu.Lock()
		requests++
		for _, r := range req.Release {
			got[r.Call] = true
		}
		mu.Unlock()
		_ = wire.WriteJSON(s, wire.FrameAnswer, wire.Empty{})
	})
	const n = 3000
	for i := range n {
		b.Release(holdfast.CallID(strings.Repeat("x", i%7)+string(rune('a'+i%26))) + holdfast.CallID(time.Duration(i).String()))
	}
	end := time.Now().Add(30 * time.Second)
	for {
		mu.Lock()
		seen, asked := len(got), requests
		mu.Unlock()
		if seen == n {
			if asked > n/10 {
				t.Errorf("%d requests for %d releases", asked, n)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d released", seen, n)
		}
		<-time.After(time.Millisecond)
	}
}

// TestStreamsThatAreNoProxyConnectionsAreClosed: whatever boxd opens.
func TestStreamsThatAreNoProxyConnectionsAreClosed(t *testing.T) {
	ours, theirs := pipe(t)
	opened := make(chan error, 8)
	go func() {
		_, _, _ = wire.ReadFrame(theirs.conn)
		hello(theirs.conn, good())
		cfg := yamux.DefaultConfig()
		cfg.LogOutput = io.Discard
		session, err := yamux.Server(theirs.conn, cfg)
		if err != nil {
			return
		}
		for _, first := range []wire.Request{{Op: wire.OpStats}, {Op: wire.OpAccepted, Body: []byte(`"x"`)}} {
			s, err := session.OpenStream()
			if err != nil {
				opened <- err
				continue
			}
			_ = wire.WriteJSON(s, wire.FrameRequest, first)
			_, err = s.Read(make([]byte, 1))
			opened <- err
		}
	}()
	b, err := sandbox.Dial(t.Context(), "w-x", ours, 5, func(holdfast.SessionID, string, net.Conn) { t.Error("handed over") })
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for range 2 {
		if err := <-opened; err != io.EOF {
			t.Errorf("%v", err)
		}
	}
}

// endless is an archive without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestUnpackHearsARefusalAtOnce: a box that refuses an archive and reads no more of it does
// not keep the server sending.
func TestUnpackHearsARefusalAtOnce(t *testing.T) {
	ours, theirs := pipe(t)
	go theirs.welcome(wire.Welcome{Version: wire.Version}, func(req wire.Request, s *yamux.Stream) {
		_ = wire.WriteJSON(s, wire.FrameError, wire.Error{Kind: holdfast.KindInvalid, Msg: "no"})
		<-t.Context().Done() // reads nothing
	})
	b, err := sandbox.Dial(t.Context(), "s-x", ours, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Unpack(t.Context(), wire.UnpackRequest{Path: "."}, endless{}); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), "no") {
		t.Errorf("%v", err)
	}
}

// TestAnswersThatNobodyReads: after the caller has gone, boxd can send the rest of its answer, but not without end.
func TestAnswersThatNobodyReads(t *testing.T) {
	for name, sends := range map[string]int{"a long answer": wire.MaxLong, "more than any answer": 1 << 40} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan error, 1)
			b := connect(t, func(_ wire.Request, s *yamux.Stream) {
				close(began)
				piece, left := make([]byte, 64<<10), sends
				var err error
				for left > 0 && err == nil {
					var n int
					n, err = s.Write(piece[:min(left, len(piece))])
					left -= n
				}
				ended <- err
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-began
				cancel()
			}()
			if _, err := b.Stat(ctx, wire.PathRequest{Path: "x"}); err == nil {
				t.Fatal("an answer came")
			}
			select {
			case err := <-ended:
				if all := sends == wire.MaxLong; all != (err == nil) {
					t.Errorf("boxd's write ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("boxd still waits for a reader")
			}
		})
	}
}
