package boxd

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestLedgerProperty drives a ledger with two servers that take it from each other, for two
// sessions: a call acts at most once, only for the newest server, and its outcome stays until
// its session or the server itself releases it.
func TestLedgerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &ledgerModel{
			peers: []*peer{{token: 1}, {token: 2}}, held: map[holdfast.CallID]*modelCall{},
			forgotten: map[holdfast.CallID]int{}, acted: map[*call]int{},
		}
		m.l = newLedger(4, func(c *call) { m.forgotten[c.id]++ })
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// ledgerModel says what a ledger must do, in the plainest way.
type ledgerModel struct {
	l         *ledger
	peers     []*peer
	current   *peer
	held      map[holdfast.CallID]*modelCall
	forgotten map[holdfast.CallID]int
	acted     map[*call]int
}

type modelCall struct {
	hash    string
	session holdfast.SessionID
	c       *call
	done    bool
}

func (m *ledgerModel) peer(t *rapid.T) *peer { return rapid.SampledFrom(m.peers).Draw(t, "peer") }

func (m *ledgerModel) id(t *rapid.T) holdfast.CallID {
	return rapid.SampledFrom([]holdfast.CallID{"a", "b", "c", "d", "e", "f"}).Draw(t, "id")
}

// asks is who a request comes from; empty is the server itself.
func (m *ledgerModel) asks(t *rapid.T) holdfast.SessionID {
	return rapid.SampledFrom([]holdfast.SessionID{"", "one", "two"}).Draw(t, "session")
}

func (k *modelCall) hidden(asks holdfast.SessionID) bool { return asks != "" && asks != k.session }

func (m *ledgerModel) Connect(t *rapid.T) {
	p := m.peer(t)
	before, states := m.l.switchTo(p, p.token)
	if before != m.current || len(states) != len(m.held) {
		t.Fatalf("before %v, %d states of %d", before, len(states), len(m.held))
	}
	m.current = p
}

func (m *ledgerModel) Drop(t *rapid.T) {
	p := m.peer(t)
	m.l.drop(p)
	if m.current == p {
		m.current = nil
	}
	if m.l.attached() != (m.current != nil) {
		t.Fatal("attached")
	}
}

func (m *ledgerModel) Begin(t *rapid.T) {
	p, id, asks := m.peer(t), m.id(t), m.asks(t)
	hash := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "hash")
	c, fresh, err := m.l.begin(p, wire.Request{Call: id, Session: asks, Op: wire.OpMkdir, Hash: hash}, nil)
	k := m.held[id]
	want := holdfast.Kind("")
	switch {
	case p != m.current, k != nil && (k.hidden(asks) || k.hash != hash):
		want = holdfast.KindConflict
	case k == nil && len(m.held) == 4:
		want = holdfast.KindBusy
	case k != nil:
		if fresh || c != k.c {
			t.Fatal("a known call is fresh")
		}
	default:
		if !fresh {
			t.Fatal("a new call is known")
		}
		m.acted[c]++
		m.held[id] = &modelCall{hash: hash, session: asks, c: c}
	}
	if holdfast.KindOf(err) != want {
		t.Fatalf("begin: %v, want kind %q", err, want)
	}
}

func (m *ledgerModel) Finish(*rapid.T) {
	for _, k := range m.held {
		if !k.done {
			m.l.finish(k.c, wire.Empty{}, nil)
			k.done = true
			return
		}
	}
}

func (m *ledgerModel) Release(t *rapid.T) {
	p, id, asks := m.peer(t), m.id(t), m.asks(t)
	err := m.l.release(p, []wire.Released{{Call: id, Session: asks}, {Call: "unknown"}})
	if (err == nil) != (p == m.current) {
		t.Fatalf("release: %v", err)
	}
	if k := m.held[id]; err == nil && k != nil && k.done && !k.hidden(asks) {
		delete(m.held, id)
		if m.forgotten[id] == 0 {
			t.Fatal("nobody was told")
		}
	}
}

func (m *ledgerModel) Check(t *rapid.T) {
	for _, asks := range []holdfast.SessionID{"", "one", "two"} {
		want := 0
		for _, k := range m.held {
			if !k.hidden(asks) {
				want++
			}
		}
		if got := m.l.states(asks); len(got) != want {
			t.Fatalf("%d calls are listed for %q, want %d", len(got), asks, want)
		}
	}
	n, running := m.l.counts()
	busy := 0
	for id, k := range m.held {
		if m.l.calls[id] != k.c {
			t.Fatalf("call %s is gone", id)
		}
		if !k.done {
			busy++
		}
	}
	if n != len(m.held) || running != busy {
		t.Fatalf("%d held, %d running; want %d, %d", n, running, len(m.held), busy)
	}
	for _, n := range m.acted {
		if n != 1 {
			t.Fatal("acted twice")
		}
	}
}

func TestLedgerForgetsWhenDone(t *testing.T) {
	told := 0
	l := newLedger(9, func(*call) { told++ })
	p := &peer{}
	l.switchTo(p, 1)
	a, _, _ := l.begin(p, wire.Request{Call: "a", Op: wire.OpExec}, nil)
	l.forgetWhenDone(a)
	if n, _ := l.counts(); n != 1 || told != 0 {
		t.Error("a running call was forgotten")
	}
	l.finish(a, nil, errors.New("x"))
	b, _, _ := l.begin(p, wire.Request{Call: "b", Op: wire.OpExec}, nil)
	l.finish(b, make(chan int), nil) // an answer that cannot be told is an error
	if b.err == nil {
		t.Error("no error")
	}
	l.forgetWhenDone(b)
	if n, _ := l.counts(); n != 0 || told != 2 {
		t.Errorf("%d held, %d told", n, told)
	}
	l.stop()
	if _, _, err := l.begin(p, wire.Request{Call: "c", Op: wire.OpExec}, nil); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Error(err)
	}
}

// client is an attachment of the newest server.
func client(over chan struct{}) *attachment {
	p := &peer{token: 1}
	s := &Server{led: newLedger(9, func(*call) {})}
	s.led.switchTo(p, 1)
	return &attachment{s: s, p: p, over: over}
}

func stdinPair(t *testing.T, lines bool) (*stdin, *os.File) {
	t.Helper()
	w, r, err := openPipe(true)
	if err != nil {
		t.Fatal(err)
	}
	s := newStdin(w, lines, false)
	done := make(chan struct{})
	go func() { s.run(); close(done) }()
	t.Cleanup(func() {
		s.stop()
		_ = r.Close()
		<-done
	})
	return s, r
}

// TestStdinStallsTheClientNotTheServer: nobody reads, the queue is bounded, and
// a client that leaves is let go.
func TestStdinStallsTheClientNotTheServer(t *testing.T) {
	s, r := stdinPair(t, false)
	gone := make(chan struct{})
	us := client(gone)
	var mu sync.Mutex
	sent := 0
	stalled := make(chan bool, 1)
	go func() {
		for s.write(make([]byte, 100_000), us) {
			mu.Lock()
			sent += 100_000
			mu.Unlock()
		}
		stalled <- true
	}()
	last, same := -1, 0
	for deadline := time.Now().Add(30 * time.Second); same < 50 && time.Now().Before(deadline); {
		mu.Lock()
		now := sent
		mu.Unlock()
		if same++; now != last {
			last, same = now, 0
		}
		<-time.After(2 * time.Millisecond)
	}
	if last > 2*stdinMax+256<<10 {
		t.Errorf("%d bytes were taken for a process that does not read", last)
	}
	close(gone)
	<-stalled
	s.end(us)
	n, err := io.Copy(io.Discard, r)
	if err != nil || int(n) != last {
		t.Errorf("%d bytes arrived of %d, %v", n, last, err)
	}
	if !s.write([]byte("late"), us) {
		t.Error("input after the end is no reason to leave")
	}
	us.s.led.switchTo(&peer{token: 2}, 2)
	if s.write([]byte("x"), us) {
		t.Error("a replaced client was heard")
	}
}

func TestHZ12_StdinLines(t *testing.T) {
	s, r := stdinPair(t, true)
	first, next := client(nil), client(nil)
	for _, p := range []string{"a\nb", "c", "\nd\ne", "f"} {
		if !s.write([]byte(p), first) {
			t.Fatal("refused")
		}
	}
	s.write([]byte("g\nlast"), next) // half a line of another client is forgotten
	s.end(next)                      // all there is, says the client
	s.end(next)
	b, err := io.ReadAll(r)
	if err != nil || string(b) != "a\nbc\nd\ng\nlast" {
		t.Errorf("%q %v", b, err)
	}
	s, _ = stdinPair(t, true)
	s.partial = make([]byte, lineMax)
	s.from = first
	if s.write([]byte("x"), first) || s.partial != nil {
		t.Error("an endless line was taken")
	}
}

func TestIncomingDataIsBounded(t *testing.T) {
	files := tempFiles(t)
	for _, n := range []int{0, 1, maxWriteMemory, maxWriteMemory + 1, 1 << 20} {
		in := &incoming{file: files, sum: sha256.New()}
		want := pattern(0, int64(n))
		for rest := want; len(rest) > 0; rest = rest[min(len(rest), 70_000):] {
			in.add(rest[:min(len(rest), 70_000)])
		}
		r, err := in.reader()
		if err != nil || in.err != nil || (in.f != nil) != (n > maxWriteMemory) {
			t.Fatal(n, err, in.err, in.f)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d came back, %v", n, len(got), err)
		}
		in.close()
	}
	in := &incoming{file: files, sum: sha256.New(), size: maxWrite}
	in.add([]byte("x"))
	in.add([]byte("y"))
	if !holdfast.IsKind(in.err, holdfast.KindTooLarge) {
		t.Error(in.err)
	}
	in = &incoming{file: func() (*os.File, error) { return nil, os.ErrPermission }, sum: sha256.New()}
	in.add(make([]byte, maxWriteMemory+1))
	if !holdfast.IsKind(in.err, holdfast.KindUnavailable) {
		t.Error(in.err)
	}
}

func TestMergeEnvLastWins(t *testing.T) {
	got := mergeEnv([]string{"A=1", "B=2", "A=3"}, []string{"C=4", "B=5", "D="})
	if strings.Join(got, " ") != "A=3 B=5 C=4 D=" {
		t.Errorf("%q", got)
	}
	base := []string{"A=1"}
	if got := mergeEnv(base, nil); &got[0] != &base[0] {
		t.Error("copied for nothing")
	}
}

func TestMillisAreBounded(t *testing.T) {
	for in, want := range map[int64]time.Duration{-5: 0, 0: 0, 1500: 1500 * time.Millisecond, 1 << 62: 365 * 24 * time.Hour} {
		if got := millis(in); got != want {
			t.Errorf("%d: %v", in, got)
		}
	}
}

// TestGateHoldsTheHandsWhenIdle: closing returns after what is under way.
func TestGateHoldsTheHandsWhenIdle(t *testing.T) {
	h := &gated{}
	var g gate
	g.init(h)
	never := make(chan struct{})
	if !g.enter(never, never, never) {
		t.Fatal("an open gate refused")
	}
	closing := make(chan error, 1)
	go func() { closing <- g.set(true, open2) }()
	for !g.isClosed() {
		<-time.After(time.Millisecond)
	}
	if h.is() {
		t.Error("the hands were held while something was under way")
	}
	g.leave()
	if err := <-closing; err != nil || !h.is() {
		t.Error("the hands are not held", err)
	}
	for i := range 3 {
		ends := []chan struct{}{never, never, never}
		ends[i] = make(chan struct{})
		close(ends[i])
		if g.enter(ends[0], ends[1], ends[2]) {
			t.Error("a closed gate let through")
		}
	}
	waiting := make(chan bool, 1)
	go func() { waiting <- g.enter(never, never, never) }()
	if err := g.set(false, func(func()) error { return errors.New("stale") }); err == nil || !g.isClosed() {
		t.Error("a stale server opened the gate")
	}
	if err := g.set(false, open2); err != nil || h.is() {
		t.Error(err)
	}
	if !<-waiting {
		t.Error("who waited was not let through")
	}
	g.leave()
}

func open2(fn func()) error { fn(); return nil }

type gated struct {
	Hands
	mu   sync.Mutex
	held bool
}

func (g *gated) Gate(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = closed
}

func (g *gated) is() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// TestHZ3_StaleInputIsNotTaken: bytes for a terminal or a process that boxd had
// read from a server before another one took the box.
func TestHZ3_StaleInputIsNotTaken(t *testing.T) {
	in, _ := stdinPair(t, false)
	s := &Server{led: newLedger(9, func(*call) {})}
	p := &peer{token: 1}
	a := &attachment{s: s, p: p, e: &execution{stdin: in}, over: make(chan struct{})}
	s.led.switchTo(p, 1)
	if !a.serveFrame(wire.FrameStdin, []byte("x")) {
		t.Error("the newest server is not heard")
	}
	s.led.switchTo(&peer{token: 2}, 2)
	for _, f := range []inFrame{{wire.FrameStdin, []byte("rm -rf /\n")}, {wire.FrameEOF, nil}, {wire.FrameSignal, []byte(`{"signal":9}`)}} {
		if a.serveFrame(f.t, f.payload) {
			t.Errorf("frame %q of a stale server was taken", f.t)
		}
	}
	if in.eof {
		t.Error("a stale server ended the input")
	}
	if a.serveFrame(wire.FrameHello, nil) {
		t.Error("a frame that is no input")
	}
}
