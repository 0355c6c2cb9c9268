package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
)

// mute accepts connections and sends nothing, or head and then nothing.
func mute(t *testing.T, head string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			_, _ = io.WriteString(conn, head)
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
	})
	return "http://" + ln.Addr().String()
}

// requests has one request of each kind that the package sends.
func requests(c *Client) map[string]func(context.Context) error {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	return map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { _, err := c.Session(ctx, id); return err },
		"act": func(ctx context.Context) error { _, err := c.EndSession(ctx, id, holdfast.EndSession{}); return err },
		"send": func(ctx context.Context) error {
			_, err := c.Send(ctx, id, holdfast.SendMessage{Text: "x", Key: "k"})
			return err
		},
		"stream": func(ctx context.Context) error {
			_, err := c.Stream(ctx, id, holdfast.SendMessage{Text: "x"})
			return err
		},
		"follow": func(ctx context.Context) error {
			var last error
			for _, err := range c.Follow(ctx, id, 0) {
				last = err
			}
			return last
		},
		"exec stream": func(ctx context.Context) error {
			_, err := c.ExecStream(ctx, id, holdfast.ExecRequest{Command: "x"}, io.Discard, io.Discard)
			return err
		},
		"upload": func(ctx context.Context) error {
			_, err := c.WriteFile(ctx, id, "f", io.LimitReader(zeros{}, 64<<20), 0)
			return err
		},
		"deploy": func(ctx context.Context) error {
			_, err := c.DeployAgent(ctx, "a", strings.NewReader("tar"))
			return err
		},
		"download": func(ctx context.Context) error {
			r, err := c.ReadFile(ctx, id, "f")
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				_ = r.Close()
			}
			return err
		},
		"terminal": func(ctx context.Context) error {
			_, err := c.Terminal(ctx, id, holdfast.TerminalRequest{}, strings.NewReader(""), io.Discard, nil)
			return err
		},
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestHZ23_NoRequestWaitsForAMuteServer: a server that accepts and sends nothing, and
// one that begins an answer and sends nothing more, delay no request beyond its limit.
func TestHZ23_NoRequestWaitsForAMuteServer(t *testing.T) {
	for name, head := range map[string]string{
		"nothing": "",
		"head":    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Disposition: x\r\nHoldfast-Turn: t\r\nHoldfast-Seq: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Config{URL: mute(t, head), FirstByte: 50 * time.Millisecond, Silence: 50 * time.Millisecond, ReconnectFor: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			for name, ask := range requests(c) {
				t.Run(name, func(t *testing.T) {
					if head != "" && name == "stream" {
						return // it got its answer
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					err := ask(ctx)
					if ctx.Err() != nil || !holdfast.IsKind(err, holdfast.KindUnavailable) {
						t.Fatalf("%v after %v", err, ctx.Err())
					}
					if !MayHaveArrived(err) && !strings.Contains(err.Error(), "protocol") && name != "terminal" {
						t.Errorf("nothing says that the server may have acted: %v", err)
					}
				})
			}
		})
	}
}

// piped is a client whose connections are pipes: the other ends go to accept, which
// runs under the test's clock.
func piped(t *testing.T, cfg Config, accept func(net.Conn) error) *Client {
	cfg.URL = "http://server"
	cfg.HTTP = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		if err := accept(theirs); err != nil {
			_, _ = ours.Close(), theirs.Close()
			return nil, err
		}
		return ours, nil
	}}}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n: ping\n\r\n1\r\n\n\r\n"

// answered reads a request's head and writes an answer.
func answered(conn net.Conn, answer string) bool {
	buf := make([]byte, 4096)
	if _, err := conn.Read(buf); err != nil {
		return false
	}
	_, err := io.WriteString(conn, answer)
	return err == nil
}

// TestHZ23_EachOutageHasAllItsTime: the restarts of a server do not add up, however
// silent the turn: each outage has ReconnectFor of its own. Real times, a fake clock.
func TestHZ23_EachOutageHasAllItsTime(t *testing.T) {
	for name, lives := range map[string][]time.Duration{
		"at 2 s and at 77 s": {2 * time.Second, 75 * time.Second},
		"ten in a row":       slices.Repeat([]time.Duration{2 * time.Second}, 10),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var life atomic.Int32
				var down atomic.Int64
				var mu sync.Mutex
				var waits []Wait
				c := piped(t, Config{Waiting: func(w Wait) {
					mu.Lock()
					defer mu.Unlock()
					waits = append(waits, w)
				}}, func(conn net.Conn) error {
					if time.Now().UnixNano() < down.Load() {
						return errors.New("refused")
					}
					go func() {
						defer conn.Close()
						n := int(life.Add(1)) - 1
						if !answered(conn, streamHead) {
							return
						}
						if n == len(lives) {
							_, _ = io.WriteString(conn, chunk(frameOf(1, holdfast.EventNotice, "")))
							_, _ = conn.Read(make([]byte, 1))
							return
						}
						for end := time.Now().Add(lives[n]); time.Now().Before(end); {
							<-time.After(min(15*time.Second, time.Until(end)))
							_, _ = io.WriteString(conn, chunk(": ping\n\n"))
						}
						down.Store(time.Now().Add(9 * time.Second).UnixNano())
					}()
					return nil
				})
				defer c.Close()
				for e, err := range c.Follow(t.Context(), "s", 0) {
					if err != nil {
						t.Fatalf("after %d lives of the server: %v", life.Load(), err)
					}
					if e.Seq == 1 {
						break
					}
				}
				mu.Lock()
				defer mu.Unlock()
				over := 0
				for _, w := range waits {
					if w.Over {
						over++
					}
				}
				if over != len(lives) || len(waits) > 3*len(lives) {
					t.Errorf("said %d times that the server is back after %d outages, %d times in all", over, len(lives), len(waits))
				}
				http.DefaultClient.CloseIdleConnections()
			})
		})
	}
}

func chunk(s string) string {
	const digits = "0123456789abcdef"
	n, size := len(s), ""
	for ; n > 0; n /= 16 {
		size = string(digits[n%16]) + size
	}
	return size + "\r\n" + s + "\r\n"
}

// TestWaitsAreSaidOnceThenRarely: a server that is silent for minutes causes only a few
// reports.
func TestWaitsAreSaidOnceThenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var waits []time.Duration
		c := piped(t, Config{FirstByte: 10 * time.Minute, Waiting: func(w Wait) {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, w.For)
		}}, func(conn net.Conn) error {
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				conn.Close()
			}()
			return nil
		})
		defer c.Close()
		_, err := c.Session(t.Context(), "s")
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "10m") || holdfast.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(waits) < 5 || len(waits) > 15 || waits[0] != 10*time.Second {
			t.Errorf("said after %v", waits)
		}
	})
}

// TestASlowAnswerIsNoOutage: if the server only takes long to answer, the client does not report that it answers again.
func TestASlowAnswerIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		c := piped(t, Config{Waiting: func(w Wait) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, w.String())
		}}, func(conn net.Conn) error {
			go func() {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 4096))
				<-time.After(12 * time.Second)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}()
			return nil
		})
		defer c.Close()
		if _, err := c.Session(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) != 1 || !strings.HasPrefix(told[0], "waiting for an answer of ") || !strings.HasSuffix(told[0], ", for 10s now") {
			t.Errorf("said %q", told)
		}
	})
}

// TestSlowCallersAreNoSilence: time in which the caller makes an upload or reads a
// download does not count as the server's silence.
func TestSlowCallersAreNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := piped(t, Config{FirstByte: time.Second, Silence: time.Second, Waiting: func(w Wait) {
			t.Errorf("said to wait for the server: %+v", w)
		}}, func(conn net.Conn) error {
			go func() {
				defer conn.Close()
				buf, seen := make([]byte, 4096), ""
				for !strings.Contains(seen, "0\r\n\r\n") && !strings.HasPrefix(seen, "GET") {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					seen += string(buf[:n])
				}
				body := `{"file":{"path":"f"}}`
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Disposition: x\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk(body)+chunk(body)+"0\r\n\r\n")
			}()
			return nil
		})
		defer c.Close()
		r, w := io.Pipe()
		go func() {
			for range 5 {
				<-time.After(10 * time.Second)
				_, _ = io.WriteString(w, "x")
			}
			w.Close()
		}()
		if f, err := c.WriteFile(t.Context(), "s", "f", r, 0); err != nil && !strings.Contains(err.Error(), "after top-level value") || f.Path != "f" {
			t.Errorf("%+v %v", f, err)
		}
		down, err := c.ReadFile(t.Context(), "s", "f")
		if err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		for n := 0; ; n++ {
			<-time.After(10 * time.Second)
			if _, err := down.Read(one); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		_ = down.Close()
	})
}

// TestFollowFindsTheServerElsewhere: after a restart the server listens on another
// port, and a stranger on the old one.
func TestFollowFindsTheServerElsewhere(t *testing.T) {
	var address atomic.Pointer[string]
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, logAfter(after(t, r), 2))
	}))
	defer second.Close()
	var calls atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1:
			_, _ = io.WriteString(w, logAfter(0, 1))
		case 2: // another server has the old port before the new one is known
			problem(w, holdfast.KindUnauthenticated, "the token of the request is not valid for this server", "")
			address.Store(&second.URL)
		default:
			t.Error("asked the old address again")
		}
	})
	c.cfg.Address = func() string {
		if a := address.Load(); a != nil {
			return *a
		}
		return "no url"
	}
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 2 {
			break
		}
	}
	if c.where() != second.URL {
		t.Errorf("talks to %s", c.where())
	}
}

// TestAStrangerOnThePortIsSaid: without another address the stream ends with an error
// that describes the other server.
//
// FH-46.
func TestAStrangerOnThePortIsSaid(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"another server": func(w http.ResponseWriter, _ *http.Request) {
			problem(w, holdfast.KindUnauthenticated, "the token of the request is not valid for this server", "")
		},
		"another session": func(w http.ResponseWriter, _ *http.Request) { problem(w, holdfast.KindNotFound, "no session", "") },
		"a web server":    func(w http.ResponseWriter, r *http.Request) { w.Header().Del("Content-Type"); http.NotFound(w, r) },
		"a page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			c, srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 1 {
					_, _ = io.WriteString(w, logAfter(0, 1))
					return
				}
				answer(w, r)
			})
			var last error
			for _, err := range c.Follow(t.Context(), "s", 0) {
				last = err
			}
			if !Strange(last) || !strings.Contains(last.Error(), "another server") || !strings.Contains(last.Error(), srv.URL) || holdfast.HintOf(last) == "" || calls.Load() != 2 {
				t.Errorf("%v after %d calls", last, calls.Load())
			}
		})
	}
}

// TestHZ23_StoppedServer is a real process that is stopped in the middle of an answer.
func TestHZ23_StoppedServer(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_MUTE") != "" {
		standIn()
		return
	}
	p := startStandIn(t)
	c, err := New(Config{URL: p.url, FirstByte: 2 * time.Second, Silence: 2 * time.Second, ReconnectFor: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var last error
	seen := 0
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if last = err; err == nil && e.Seq == 1 {
			seen++
			p.stop(t)
		}
	}
	if seen != 1 || !holdfast.IsKind(last, holdfast.KindUnavailable) {
		t.Errorf("%d events, then %v", seen, last)
	}
	if _, err := c.Session(t.Context(), "s"); !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "nothing came for 2s") {
		t.Error(err)
	}
	p.goOn(t)
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 1 {
			break
		}
	}
}
