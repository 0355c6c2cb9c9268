package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

var types = []wire.FrameType{
	wire.FrameHello, wire.FrameRequest, wire.FrameAnswer, wire.FrameError, wire.FrameStarted, wire.FrameStdout,
	wire.FrameStderr, wire.FrameStdin, wire.FrameEOF, wire.FrameData, wire.FrameResize, wire.FrameSignal,
}

type frame struct {
	t       wire.FrameType
	payload []byte
}

// TestFramesRoundTrip: both writers and both readers agree, in whatever pieces
// the bytes come.
func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want []frame
		for range rapid.IntRange(0, 12).Draw(t, "frames") {
			f := frame{rapid.SampledFrom(types).Draw(t, "type"), make([]byte, rapid.SampledFrom([]int{0, 1, 100, 5000, wire.MaxFrame}).Draw(t, "size"))}
			if rapid.Bool().Draw(t, "append") {
				stream, _ = wire.AppendFrame(stream, f.t, f.payload)
			} else {
				var buf bytes.Buffer
				if err := wire.WriteFrame(&buf, f.t, f.payload); err != nil {
					t.Fatal(err)
				}
				stream = append(stream, buf.Bytes()...)
			}
			want = append(want, f)
		}
		src := &pieces{rest: stream, n: rapid.IntRange(1, 70_000).Draw(t, "piece")}
		next := func() (wire.FrameType, []byte, error) { return wire.ReadFrame(src) }
		if rapid.Bool().Draw(t, "buffered") {
			r := wire.NewReader(nil)
			r.Reset(src)
			next = r.Next
		}
		for i, f := range want {
			ft, payload, err := next()
			if err != nil || ft != f.t || !bytes.Equal(payload, f.payload) {
				t.Fatalf("frame %d: %q %d bytes, %v", i, ft, len(payload), err)
			}
		}
		if _, _, err := next(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

// pieces gives at most n bytes a read.
type pieces struct {
	rest []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.n, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func TestCutAndForeignFramesAreRefused(t *testing.T) {
	whole, _ := wire.AppendFrame(nil, wire.FrameData, []byte("payload"))
	readers := map[string]func([]byte) error{
		"ReadFrame": func(b []byte) error { _, _, err := wire.ReadFrame(bytes.NewReader(b)); return err },
		"Reader":    func(b []byte) error { _, _, err := wire.NewReader(bytes.NewReader(b)).Next(); return err },
	}
	for name, read := range readers {
		if err := read(nil); err != io.EOF {
			t.Errorf("%s of nothing: %v", name, err)
		}
		for n := 1; n < len(whole); n++ {
			if err := read(whole[:n]); err != io.ErrUnexpectedEOF {
				t.Errorf("%s of %d bytes: %v", name, n, err)
			}
		}
		if err := read([]byte("?\x00\x00\x00\x00")); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), `'?'`) {
			t.Errorf("%s of an unknown type: %v", name, err)
		}
		if err := read([]byte("D\xff\xff\xff\xff")); !holdfast.IsKind(err, holdfast.KindTooLarge) {
			t.Errorf("%s of a giant: %v", name, err)
		}
	}
	big := make([]byte, wire.MaxFrame+1)
	if err := wire.WriteFrame(io.Discard, wire.FrameData, big); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Error(err)
	}
	if _, err := wire.AppendFrame(nil, wire.FrameData, big); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Error(err)
	}
}

// TestDecoderAllocatesNoMoreThanAFrame: the length is a claim, not a fact.
func TestDecoderAllocatesNoMoreThanAFrame(t *testing.T) {
	claim := []byte{'D', 0, 4, 0, 0} // 256 KiB, of which nothing comes
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = wire.NewReader(bytes.NewReader(claim)).Next()
		}
	}).AllocedBytesPerOp()
	if allocated > raceFactor*(2*wire.MaxFrame+16<<10) {
		t.Errorf("%d bytes for a frame that never came", allocated)
	}
}

func TestLongMessages(t *testing.T) {
	for _, n := range []int{0, 1, wire.MaxFrame, wire.MaxFrame + 1, 3*wire.MaxFrame + 7} {
		payload := bytes.Repeat([]byte("j"), n)
		b, err := wire.AppendLong([]byte{}, wire.FrameAnswer, payload)
		if err != nil {
			t.Fatal(err)
		}
		b, _ = wire.AppendFrame(b, wire.FrameEOF, nil)
		r := wire.NewReader(bytes.NewReader(b))
		ft, got, err := r.NextLong()
		if err != nil || ft != wire.FrameAnswer || !bytes.Equal(got, payload) {
			t.Errorf("%d bytes: %q, %d bytes, %v", n, ft, len(got), err)
		}
		if ft, _, err := r.NextLong(); err != nil || ft != wire.FrameEOF {
			t.Errorf("after %d bytes: %q %v", n, ft, err)
		}
	}
	if _, err := wire.AppendLong(nil, wire.FrameAnswer, make([]byte, wire.MaxLong+1)); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Error(err)
	}
	piece, _ := wire.AppendFrame(nil, wire.FrameData, make([]byte, wire.MaxFrame))
	if _, _, err := wire.NewReader(bytes.NewReader(piece)).NextLong(); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	endless := wire.NewReader(&repeat{piece: piece})
	if _, _, err := endless.NextLong(); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Error(err)
	}
	if _, err := wire.AppendJSON(nil, wire.FrameAnswer, make(chan int)); err == nil {
		t.Error("a channel is no JSON")
	}
	if err := wire.WriteJSON(io.Discard, wire.FrameAnswer, make(chan int)); err == nil {
		t.Error("a channel is no JSON")
	}
}

type repeat struct {
	piece []byte
	at    int
}

func (r *repeat) Read(b []byte) (int, error) {
	n := copy(b, r.piece[r.at:])
	r.at = (r.at + n) % len(r.piece)
	return n, nil
}

func FuzzReadFrame(f *testing.F) {
	whole, _ := wire.AppendFrame(nil, wire.FrameData, []byte("payload"))
	f.Add(whole)
	f.Add([]byte("H\x00\x00\x00\x02{}D\x00\x00\x00\x00"))
	f.Add([]byte("D\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		plain := bytes.NewReader(b)
		r := wire.NewReader(bytes.NewReader(b))
		for {
			t1, p1, err1 := wire.ReadFrame(plain)
			t2, p2, err2 := r.Next()
			if (err1 == nil) != (err2 == nil) || holdfast.KindOf(err1) != holdfast.KindOf(err2) {
				t.Fatalf("%v and %v", err1, err2)
			}
			if err1 != nil {
				if (err1 == io.EOF) != (err2 == io.EOF) {
					t.Fatalf("%v and %v", err1, err2)
				}
				return
			}
			if t1 != t2 || !bytes.Equal(p1, p2) || len(p1) > wire.MaxFrame {
				t.Fatalf("%q and %q", t1, t2)
			}
			again, err := wire.AppendFrame(nil, t1, p1)
			if err != nil || !bytes.Contains(b, again) {
				t.Fatalf("frame %q is not what was read", t1)
			}
		}
	})
}

// TestGoldenHello: the first bytes of the protocol never change unnoticed; an
// older boxd of a running box must understand them.
func TestGoldenHello(t *testing.T) {
	var got bytes.Buffer
	_ = wire.WriteJSON(&got, wire.FrameHello, wire.Hello{Version: wire.Version, Token: 42})
	_ = wire.WriteJSON(&got, wire.FrameHello, wire.Welcome{
		Version: wire.Version, Boot: "b007", Token: 42, InForce: []string{"seccomp"}, Missing: []string{"landlock"}, Gated: true,
		Calls: []wire.CallState{{Call: "01890a5d-ac96-774b-bcce-b302099a8057", Op: wire.OpExec, Hash: "aa", Status: wire.CallRunning}},
	})
	_ = wire.WriteJSON(&got, wire.FrameHello, wire.Welcome{Version: wire.Version, Err: &wire.Error{Kind: holdfast.KindConflict, Msg: "stale", Hint: "h"}})
	path := filepath.Join("testdata", "hello.golden")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the hello is now\n%q\nand was\n%q\nraise wire.Version and keep the old file beside it", got.Bytes(), want)
	}
}

func TestArgumentHashBindsAll(t *testing.T) {
	base := wire.ArgumentHash(wire.OpWrite, []byte("b"), []byte("d"))
	if len(base) != 64 || base != wire.ArgumentHash(wire.OpWrite, []byte("b"), []byte("d")) {
		t.Error("the hash is not stable")
	}
	if base != wire.ArgumentHash(wire.OpWrite, []byte("bd")) {
		t.Error("data follows the body")
	}
	for _, other := range []string{
		wire.ArgumentHash(wire.OpEdit, []byte("b"), []byte("d")),
		wire.ArgumentHash(wire.OpWrite, []byte("b"), []byte("e")),
		wire.ArgumentHash(wire.OpWrite, []byte("c"), []byte("d")),
	} {
		if other == base {
			t.Error("two arguments have one hash")
		}
	}
}

func TestErrorsCrossTheWire(t *testing.T) {
	e := wire.AsError(holdfast.Errorf(holdfast.KindConflict, "there", "it is so").WithHint("do this"))
	if *e != (wire.Error{Kind: holdfast.KindConflict, Msg: "it is so", Hint: "do this"}) {
		t.Errorf("%+v", e)
	}
	back := e.Err("here")
	if back.Error() != "here: it is so" || holdfast.KindOf(back) != holdfast.KindConflict || holdfast.HintOf(back) != "do this" {
		t.Errorf("%v", back)
	}
	if e := wire.AsError(errors.New("plain")); e.Kind != holdfast.KindInternal || e.Msg != "plain" {
		t.Errorf("%+v", e)
	}
	b, _ := json.Marshal(e)
	if !strings.Contains(string(b), `"message":"it is so"`) {
		t.Errorf("%s", b)
	}
}

// TestCoalesceKeepsBytesAndJoinsWrites: heads go with their bodies.
func TestCoalesceKeepsBytesAndJoinsWrites(t *testing.T) {
	rec := &recorder{}
	c := wire.Coalesce(rec)
	open := []byte{0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}      // window update, SYN
	head := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5}      // data of 5 bytes
	window := []byte{0, 1, 0, 0, 0, 0, 0, 1, 0, 4, 0, 0}    // window update of 256 KiB
	bigHead := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0}   // data of 64 KiB
	lookalike := []byte{0, 1, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0} // a body that looks like an opening
	likeHead := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12} // its head
	big := bytes.Repeat([]byte("b"), 64<<10)
	want := 0
	for _, step := range []struct {
		p      []byte
		writes int
	}{
		{window, 1},
		{open, 0},
		{head, 0},
		{[]byte("hello"), 1},
		{head, 0},
		{[]byte("again"), 1},
		{open, 0},
		{window, 1},
		{likeHead, 0},
		{lookalike, 1},
		{bigHead, 0},
		{big, 2},
		{window, 1},
	} {
		if n, err := c.Write(step.p); n != len(step.p) || err != nil {
			t.Fatal(n, err)
		}
		want += step.writes
		if rec.writes > want || rec.writes < want-1 {
			t.Fatalf("after %q: %d writes, want %d", step.p[:min(12, len(step.p))], rec.writes, want)
		}
	}
	all := bytes.Join([][]byte{window, open, head, []byte("hello"), head, []byte("again"), open, window, likeHead, lookalike, bigHead, big, window}, nil)
	if !bytes.Equal(rec.buf.Bytes(), all) {
		t.Error("other bytes came out")
	}
	rec.fail = true
	for _, p := range [][]byte{window, head, []byte("hello"), bigHead, big} {
		if n, err := c.Write(p); err == nil && len(p) != 12 || err != nil && n != 0 {
			t.Errorf("%d %v", n, err)
		}
	}
}

// TestCoalesceHoldsAcceptances: that a stream was accepted goes with the next write. So many
// are held that the other side can still open streams.
func TestCoalesceHoldsAcceptances(t *testing.T) {
	rec := &recorder{}
	c := wire.Coalesce(rec)
	accept := []byte{0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0}
	head := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5}
	for _, p := range [][]byte{accept, head, []byte("hello")} {
		if n, err := c.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if rec.writes != 1 {
		t.Errorf("an acceptance and the answer are %d writes", rec.writes)
	}
	for range 256 {
		_, _ = c.Write(accept)
	}
	if rec.writes < 3 {
		t.Errorf("256 acceptances wait for an answer, %d writes", rec.writes-1)
	}
}

// TestCoalesceHoldsTheEnds: an end that can wait leaves with what comes next, and the
// last data with the end of its stream. No stream waits for another.
func TestCoalesceHoldsTheEnds(t *testing.T) {
	frame := func(typ, flags, stream, length byte) []byte {
		return []byte{0, typ, 0, flags, 0, 0, 0, stream, 0, 0, 0, length}
	}
	end := func(stream byte) []byte { return frame(1, 4, stream, 0) }
	head := func(stream byte) []byte { return frame(0, 0, stream, 5) }
	body := []byte("hello")
	rec := &recorder{}
	c := wire.Coalesce(rec)
	var all []byte
	write := func(writes int, frames ...[]byte) {
		t.Helper()
		before := rec.writes
		for _, f := range frames {
			all = append(all, f...)
			if n, err := c.Write(f); n != len(f) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := rec.writes - before; got != writes {
			t.Errorf("%d writes of %q, want %d", got, frames, writes)
		}
	}
	write(1, end(1))
	c.Ends([]uint32{3, 5})
	write(0, end(3), end(5))
	write(1, frame(1, 1, 7, 0), head(7), body)
	c.Ends([]uint32{7})
	write(1, end(9))
	write(0, end(7))
	write(1, end(11))

	c.Last(13)
	write(0, head(13), body)
	write(1, end(13))
	write(1, head(13), body)
	c.Last(15)
	write(1, head(17), body)
	write(0, head(15), body)
	write(1, head(17), body)
	write(1, end(15))
	c.Last(19)
	write(1, end(19))
	write(1, head(19), body)
	if !bytes.Equal(rec.buf.Bytes(), all) {
		t.Error("other bytes came out")
	}
}

type recorder struct {
	net.Conn
	buf    bytes.Buffer
	writes int
	fail   bool
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.fail {
		return 0, io.ErrClosedPipe
	}
	r.writes++
	return r.buf.Write(p)
}
