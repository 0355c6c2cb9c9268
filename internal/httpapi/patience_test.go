package httpapi

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// wire is a connection that notes its deadlines.
type wire struct {
	http.ResponseWriter
	read, write []time.Time
	sizes       []int
}

func (w *wire) SetReadDeadline(t time.Time) error  { w.read = append(w.read, t); return nil }
func (w *wire) SetWriteDeadline(t time.Time) error { w.write = append(w.write, t); return nil }
func (w *wire) Write(p []byte) (int, error)        { w.sizes = append(w.sizes, len(p)); return len(p), nil }

// trickle gives a piece each time, and lets time pass.
type trickle struct {
	piece int
	tick  func()
}

func (s *trickle) Read(p []byte) (int, error) {
	s.tick()
	return min(s.piece, len(p)), nil
}

func (s *trickle) Close() error { return nil }

// TestTricklingSenderIsCut: a byte now and then keeps no body alive, while one
// that really sends may take as long as it needs.
func TestTricklingSenderIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		piece int
		every time.Duration
		cut   bool
	}{
		"a byte every ten seconds": {1, 10 * time.Second, true},
		"1 KiB a second":           {1 << 10, time.Second, true},
		"32 KiB a second":          {32 << 10, time.Second, false},
		"silence":                  {0, 31 * time.Second, true},
	} {
		now := time.Unix(1_700_000_000, 0)
		w := &wire{}
		b := &patientBody{
			ReadCloser: &trickle{c.piece, func() { now = now.Add(c.every) }}, rc: http.NewResponseController(w),
			now: func() time.Time { return now }, limit: 30 * time.Second,
		}
		cut := false
		for range 3600 {
			if _, err := b.Read(make([]byte, 64<<10)); err != nil {
				t.Fatal(err)
			}
			// The connection would have failed the read that passed its deadline.
			if cut = now.After(w.read[len(w.read)-1]); cut {
				break
			}
		}
		if cut != c.cut {
			t.Errorf("%s: cut %t after %s", name, cut, now.Sub(time.Unix(1_700_000_000, 0)))
		}
	}
}

func TestEachPieceOfAnAnswerHasADeadline(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := &wire{}
	p := &patientWriter{ResponseWriter: w, rc: http.NewResponseController(w), now: func() time.Time { return now }, limit: 20 * time.Second}
	if n, err := p.Write(make([]byte, 2*writeAtOnce+1)); n != 2*writeAtOnce+1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.Write(nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if len(w.sizes) != 4 || w.sizes[0] != writeAtOnce || len(w.write) != 4 || !w.write[3].Equal(now.Add(20*time.Second)) {
		t.Errorf("%v %v", w.sizes, w.write)
	}
}

// TestReaderThatTakesNothingIsCut, whatever kind of answer it asked for: the
// handler ends.
func TestReaderThatTakesNothingIsCut(t *testing.T) {
	f := newFake()
	big := bytes.Repeat([]byte("x"), 16<<20)
	f.exec = func(context.Context, holdfast.ExecRequest, io.Writer, io.Writer) (holdfast.ExecResult, error) {
		return holdfast.ExecResult{Stdout: big}, nil
	}
	f.files["big"] = big
	cfg := f.config()
	cfg.WriteTimeout = 2 * time.Second
	a := New(cfg)
	left := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			left <- r.URL.Path
			if v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
		}()
		a.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer a.Stop()
	id := string(createOne(t, srv))
	<-left
	for _, raw := range []string{
		"POST /v1/sessions/" + id + "/exec HTTP/1.1\r\nContent-Length: 16\r\nContent-Type: application/json\r\n",
		"GET /v1/sessions/" + id + "/files/big HTTP/1.1\r\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, raw+local+"Authorization: Bearer "+testToken+"\r\n\r\n"+`{"command":"id"}`); err != nil {
			t.Fatal(err)
		}
		select {
		case <-left:
		case <-time.After(20 * time.Second):
			t.Errorf("%.40q: the handler waits", raw)
		}
		_ = conn.Close()
	}
}
