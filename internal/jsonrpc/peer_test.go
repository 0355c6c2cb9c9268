package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers runs a peer on an input that ends, and returns the methods that were served and
// notified, in order, and what was written.
func answers(t *testing.T, in io.Reader, change func(*Config)) (got []string, written string, err error) {
	t.Helper()
	var out bytes.Buffer
	cfg := Config{
		In: in, Out: &out, Log: slog.New(slog.DiscardHandler), Cancel: "$/cancel",
		Serve: func(method string, _ json.RawMessage) Work {
			got = append(got, method)
			return func(context.Context) (any, error) { return struct{}{}, nil }
		},
		Notified: func(method string, _ json.RawMessage) { got = append(got, method) },
	}
	if change != nil {
		change(&cfg)
	}
	err = New(cfg).Run(t.Context())
	return got, out.String(), err
}

const good = `{"jsonrpc":"2.0","method":"m","params":{}}`

func TestLinesThatAreNoMessages(t *testing.T) {
	for name, c := range map[string]struct {
		in, refused string
		messages    int
	}{
		"messages":         {good + "\n\n  \r\n" + good + "\r\n", "", 2},
		"no end":           {good, "", 1},
		"half a message":   {good + "\n" + good[:20], `"id":null,"error":{"code":-32700`, 1},
		"garbage":          {"\x00\xff\x1b[2J\n" + good + "\n", `"id":null,"error":{"code":-32700`, 1},
		"a batch":          {"[" + good + "]\n" + good + "\n", "-32600", 1},
		"a number":         {"5\n" + good + "\n", "-32600", 1},
		"null":             {"null\n" + good + "\n", "-32600", 1},
		"wrong types":      {`{"jsonrpc":2,"id":1,"method":"x"}` + "\n" + good + "\n", "-32600", 1},
		"another version":  {`{"jsonrpc":"1.0","id":1,"method":"x"}` + "\n" + good + "\n", "-32600", 1},
		"nothing in it":    {`{"jsonrpc":"2.0"}` + "\n" + good + "\n", "-32600", 1},
		"an id of objects": {`{"id":{},"method":"x"}` + "\n" + good + "\n", "-32600", 1},
		"a true id":        {`{"id":true,"method":"x"}` + "\n" + good + "\n", "-32600", 1},
		"a long id":        {`{"id":"` + strings.Repeat("x", MaxID) + `","method":"x"}` + "\n" + good + "\n", "-32600", 1},
		"a huge line":      {`{"method":"` + strings.Repeat("x", MaxLine) + `"}` + "\n" + good + "\n", "-32600", 1},
		"huge without end": {good + "\n" + strings.Repeat("x", 3*MaxLine), "-32600", 1},
		"many values":      {`{"id":7,"method":"x","params":[` + strings.Repeat("[],", MaxValues) + "0]}\n" + good + "\n", `"id":7,"error":{"code":-32600`, 1},
		"many commas":      {`{"method":"x","params":["` + strings.Repeat(`[],\",`, MaxValues) + "\"]}\n" + good + "\n", "", 2},
		"deep values":      {`{"method":"x","params":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + "}\n" + good + "\n", "-32600", 1},
		"a bomb":           {`{"method":"x","params":` + strings.Repeat("[", 1<<20) + "\n" + good + "\n", "-32700", 1},
		"brackets in text": {`{"method":"x","params":["` + strings.Repeat("[", 2*MaxDepth) + "\"]}\n" + good + "\n", "", 2},
		"a stray answer":   {`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n", "", 0},
		"a stray error":    {`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}` + "\n" + good + "\n", "", 1},
		"a stray cancel":   {`{"jsonrpc":"2.0","method":"$/cancel","params":{"requestId":1}}` + "\n" + good + "\n", "", 1},
		"an odd cancel":    {`{"jsonrpc":"2.0","method":"$/cancel","params":[{}]}` + "\n" + good + "\n", "", 1},
	} {
		got, written, err := answers(t, strings.NewReader(c.in), nil)
		if err != nil || len(got) != c.messages || (c.refused == "") != (written == "") || !strings.Contains(written, c.refused) || strings.Count(written, "\n") > 1 {
			t.Errorf("%s: %d messages, %v, answered %q", name, len(got), err, written)
		}
	}
}

func TestAnswers(t *testing.T) {
	serve := func(method string, _ json.RawMessage) Work {
		if method == "unknown" {
			return nil
		}
		return func(context.Context) (any, error) {
			switch method {
			case "nothing":
				return nil, nil
			case "refused":
				return nil, &Error{Code: 7, Message: "no", Data: json.RawMessage(`[1]`)}
			case "failed":
				return nil, errors.New("oh")
			case "unencodable":
				return make(chan int), nil
			}
			return map[string]int{"x": 1}, nil
		}
	}
	for line, want := range map[string]string{
		`{"id":1,"method":"m"}`:           `{"jsonrpc":"2.0","id":1,"result":{"x":1}}`,
		`{"id":"\u0061","method":"m"}`:    `{"jsonrpc":"2.0","id":"\u0061","result":{"x":1}}`,
		`{"id":-1.5e3,"method":"m"}`:      `{"jsonrpc":"2.0","id":-1.5e3,"result":{"x":1}}`,
		`{"id":1,"method":"nothing"}`:     `{"jsonrpc":"2.0","id":1,"result":null}`,
		`{"id":1,"method":"refused"}`:     `{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"no","data":[1]}}`,
		`{"id":1,"method":"failed"}`:      `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"oh"}}`,
		`{"id":1,"method":"unknown"}`:     `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"there is no method \"unknown\""}}`,
		`{"id":1,"method":"unencodable"}`: `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"json: unsupported type: chan int"}}`,
		`{"id":null,"method":"m"}`:        ``,
		`{"method":"unknown"}`:            ``,
	} {
		_, written, err := answers(t, strings.NewReader(line), func(c *Config) { c.Serve = serve })
		if err != nil || strings.TrimSuffix(written, "\n") != want {
			t.Errorf("%s: %v, answered %s", line, err, written)
		}
	}
}

func TestTheErrorOfTheInputIsReturned(t *testing.T) {
	if _, _, err := answers(t, io.MultiReader(strings.NewReader("{"), broken{}), nil); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

var errBroken = errors.New("the pipe is gone")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// TestMessagesAreHandledInOrder: however long the work of requests takes, each message is
// handled after the one before it.
func TestMessagesAreHandledInOrder(t *testing.T) {
	var in, want []string
	for n := range 100 {
		method := strconv.Itoa(n)
		want = append(want, method)
		id := ""
		if n%3 > 0 {
			id = `"id":` + method + `,`
		}
		in = append(in, `{`+id+`"method":"`+method+`"}`)
	}
	got, _, err := answers(t, strings.NewReader(strings.Join(in, "\n")), nil)
	if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%v %v", got, err)
	}
}

// link is a peer with the other side of its connection.
type link struct {
	*Peer
	t   *testing.T
	in  *io.PipeWriter
	out *bufio.Reader
	end context.CancelFunc
	ran chan error
}

func connect(t *testing.T, serve func(method string, params json.RawMessage) Work) *link {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	l := &link{t: t, in: inW, out: bufio.NewReader(outR), ran: make(chan error, 1)}
	l.Peer = New(Config{In: inR, Out: outW, Log: slog.New(slog.DiscardHandler), Serve: serve, Cancel: "$/cancel", Long: "long"})
	var ctx context.Context
	ctx, l.end = context.WithCancel(t.Context())
	go func() { l.ran <- l.Run(ctx) }()
	t.Cleanup(func() {
		l.end()
		_ = inW.Close()
		_ = outR.Close()
	})
	return l
}

func (l *link) say(line string) {
	l.t.Helper()
	if _, err := io.WriteString(l.in, line+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *link) hears(want string) {
	l.t.Helper()
	if got, err := l.out.ReadString('\n'); err != nil || strings.TrimSpace(got) != want {
		l.t.Fatalf("heard %s, not %s: %v", got, want, err)
	}
}

// holding serves requests that last until their context ends or they are let go; only the method
// over ends at once.
type holding struct {
	begun chan string
	free  chan struct{}
}

func newHolding() *holding {
	return &holding{begun: make(chan string, MaxOpen), free: make(chan struct{}, MaxOpen)}
}

func (h *holding) serve(method string, _ json.RawMessage) Work {
	return func(ctx context.Context) (any, error) {
		if method == "over" {
			return method, nil
		}
		h.begun <- method
		select {
		case <-h.free:
			return method, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestCancelledRequests(t *testing.T) {
	h := newHolding()
	l := connect(t, h.serve)
	l.say(`{"id":1,"method":"a"}`)
	<-h.begun
	l.say(`{"id":1,"method":"b"}`)
	l.hears(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"an earlier request with the same id is not answered yet"}}`)
	l.say(`{"method":"$/cancel","params":{"requestId":1}}`)
	l.hears(`{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"the request was cancelled"}}`)
}

// TestOpenRequestsAreBounded: beyond the bound a request is refused, and served once others
// are answered.
func TestOpenRequestsAreBounded(t *testing.T) {
	h := newHolding()
	l := connect(t, h.serve)
	for n := range MaxOpen {
		l.say(`{"id":` + strconv.Itoa(n) + `,"method":"m"}`)
		<-h.begun
	}
	l.say(`{"id":"x","method":"over"}`)
	l.hears(`{"jsonrpc":"2.0","id":"x","error":{"code":-32005,"message":"256 requests are open, the most that are served at once"}}`)
	for range MaxOpen {
		h.free <- struct{}{}
		if _, err := l.out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	l.say(`{"id":"x","method":"over"}`)
	l.hears(`{"jsonrpc":"2.0","id":"x","result":"over"}`)
}

// TestTheEndWaitsForAnswers: the connection ends when the requests from before the end of the
// input are answered, except those that may take long.
func TestTheEndWaitsForAnswers(t *testing.T) {
	h := newHolding()
	l := connect(t, h.serve)
	l.say(`{"id":1,"method":"long"}`)
	<-h.begun
	l.say(`{"id":2,"method":"short"}`)
	<-h.begun
	if err := l.in.Close(); err != nil {
		t.Fatal(err)
	}
	<-l.deaf
	select {
	case <-l.ran:
		t.Fatal("the connection ended before the answer")
	default:
	}
	for got := ""; !strings.Contains(got, "short"); {
		h.free <- struct{}{}
		var err error
		if got, err = l.out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-l.ran; err != nil {
		t.Error(err)
	}
}

// deafWriter is the output of a peer whose other side reads nothing.
type deafWriter struct{ closed chan struct{} }

func (w deafWriter) Write([]byte) (int, error) {
	<-w.closed
	return 0, io.ErrClosedPipe
}

// TestTheEndOfTheInputEndsAPeerThatNobodyReads: a line that is refused is not read by the other side, and then the input
// ends: Run returns.
func TestTheEndOfTheInputEndsAPeerThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := deafWriter{make(chan struct{})}
		in := strings.NewReader(strings.Repeat("garbage\n", 10))
		if err := New(Config{In: in, Out: out, Log: slog.New(slog.DiscardHandler)}).Run(t.Context()); err != nil {
			t.Error(err)
		}
		close(out.closed)
	})
}

// TestTheEndOfAllWork: when Run has returned, no work runs, and nothing more can be sent, even
// if the other side does not read.
func TestTheEndOfAllWork(t *testing.T) {
	h := newHolding()
	l := connect(t, h.serve)
	for n := range 3 {
		l.say(`{"id":` + strconv.Itoa(n) + `,"method":"m"}`)
		<-h.begun
	}
	h.free <- struct{}{} // its answer is not read
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Call(t.Context(), "x", nil, nil); err == nil {
			t.Error("a request without an answer succeeded")
		}
	})
	l.end()
	if err := <-l.ran; err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := l.Notify(t.Context(), "x", nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestCalls(t *testing.T) {
	l := connect(t, nil)
	type result struct {
		got string
		err error
	}
	done := make(chan result, 1)
	call := func(ctx context.Context) {
		go func() {
			var r result
			r.err = l.Call(ctx, "ask", []int{1}, &r.got)
			done <- r
		}()
	}
	for n, c := range []struct{ answer, got, err string }{
		{`"result":"yes"`, "yes", ""},
		{`"error":{"code":5,"message":"no"}`, "", "no"},
		{`"result":7`, "", "cannot unmarshal number"},
		{`"x":1`, "", "unexpected end"},
		{`"result":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), "", "nests its values"},
	} {
		id := strconv.Itoa(n + 1)
		call(t.Context())
		l.hears(`{"jsonrpc":"2.0","id":` + id + `,"method":"ask","params":[1]}`)
		l.say(`{"id":"` + id + `","result":"of another type of id"}`)
		l.say(`{"id":` + id + `,` + c.answer + `}`)
		l.say(`{"id":` + id + `,"result":"once more"}`)
		if r := <-done; r.got != c.got || (r.err == nil) != (c.err == "") || r.err != nil && !strings.Contains(r.err.Error(), c.err) {
			t.Errorf("%.60s: %+v", c.answer, r)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	call(ctx)
	l.hears(`{"jsonrpc":"2.0","id":6,"method":"ask","params":[1]}`)
	cancel()
	l.hears(`{"jsonrpc":"2.0","method":"$/cancel","params":{"requestId":6}}`)
	if r := <-done; !errors.Is(r.err, context.Canceled) {
		t.Error(r.err)
	}
	call(t.Context())
	l.hears(`{"jsonrpc":"2.0","id":7,"method":"ask","params":[1]}`)
	_ = l.in.Close()
	if r := <-done; !errors.Is(r.err, ErrClosed) {
		t.Error(r.err)
	}
}

func FuzzPeer(f *testing.F) {
	f.Add("{}\n[1]\n{\"id\":1,\"method\":\"x\"}\n{\"method\":\"$/cancel\"}")
	f.Add("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}\n\"")
	f.Fuzz(func(t *testing.T, in string) {
		got, written, err := answers(t, strings.NewReader(in), nil)
		if n := strings.Count(in, "\n") + 1; err != nil || len(got) > n || strings.Count(written, "\n") > n {
			t.Fatalf("%v: %d messages and %q of %d lines", err, len(got), written, n)
		}
		for line := range strings.Lines(written) {
			m, err := Parse([]byte(line))
			if err != nil || m.Method != "" || m.Error == nil && m.ID == "" {
				t.Fatalf("%s: %v", line, err)
			}
		}
	})
}
