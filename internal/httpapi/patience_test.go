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
	cfg.Waits.Write = 2 * time.Second
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
