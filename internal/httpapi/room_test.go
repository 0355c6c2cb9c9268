package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// watched calls a function when a message is accepted.
type watched struct {
	taker
	send func()
}

type taker = Turns

func (w watched) Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	w.send()
	return w.taker.Send(ctx, id, msg)
}

// TestLargeBodiesWaitForRoom: while a large body is handled another one waits, and is
// refused after a while; small ones pass. A running command holds no room.
func TestLargeBodiesWaitForRoom(t *testing.T) {
	f := newFake()
	cfg := f.config()
	cfg.Listen, cfg.ReadTimeout = "127.0.0.1:0", 2*time.Second
	sends, full := 0, false
	var a *API
	// all takes the whole room, which is possible only if nobody else holds some.
	all := func() bool { return a.room.sem.TryAcquire(roomBytes) }
	cfg.Turns = watched{cfg.Turns, func() {
		if sends++; !all() {
			full = true
			return
		}
		a.room.sem.Release(roomBytes)
	}}
	a = New(cfg)
	srv := httptest.NewServer(a)
	defer srv.Close()
	id := createOne(t, srv)
	turns := "/v1/sessions/" + string(id) + "/turns"
	message := func(size int) string { return fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", size)) }
	f.exec = func(context.Context, holdfast.ExecRequest, io.Writer, io.Writer) (holdfast.ExecResult, error) {
		if !all() {
			t.Error("a running command holds room")
		} else {
			a.room.sem.Release(roomBytes)
		}
		return holdfast.ExecResult{}, nil
	}
	if resp, body := do(t, srv, request{"POST", "/v1/sessions/" + string(id) + "/exec", fmt.Sprintf(`{"argv":["cat",%q]}`, strings.Repeat("x", 2<<20)), nil}); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if !all() {
		t.Fatal("a request that ended holds room")
	}
	resp, body := do(t, srv, request{"POST", turns, message(2 << 20), nil})
	wantProblem(t, resp, body, http.StatusTooManyRequests, holdfast.KindBusy)
	if resp.Header.Get("Retry-After") == "" || sends != 0 {
		t.Errorf("Retry-After %q, %d messages taken", resp.Header.Get("Retry-After"), sends)
	}
	if resp, body := do(t, srv, request{"POST", turns, message(1000), nil}); resp.StatusCode != http.StatusAccepted {
		t.Errorf("a small message: %d %s", resp.StatusCode, body)
	}
	a.room.sem.Release(roomBytes)
	full = false
	if resp, body := do(t, srv, request{"POST", turns, message(2 << 20), nil}); resp.StatusCode != http.StatusAccepted || !full {
		t.Errorf("%d %s, held room: %t", resp.StatusCode, body[:min(len(body), 200)], full)
	}
	if !all() {
		t.Error("a message that was answered holds room")
	}
}
