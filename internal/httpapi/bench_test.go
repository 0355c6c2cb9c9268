package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// stub answers at once: what remains is the API's own time.
type stub struct {
	*fakeEngine
	session holdfast.Session
	sent    holdfast.Sent
}

func (s *stub) Create(context.Context, holdfast.CreateSession, string) (holdfast.Session, bool, error) {
	return s.session, false, nil
}

func (s *stub) Send(context.Context, holdfast.SessionID, holdfast.SendMessage) (holdfast.Sent, error) {
	return s.sent, nil
}

func newStub(b *testing.B) (*API, *stub) {
	b.Helper()
	f := newFake()
	s, _, err := f.Create(b.Context(), holdfast.CreateSession{Title: "bench"}, "")
	if err != nil {
		b.Fatal(err)
	}
	st := &stub{fakeEngine: f, session: s, sent: holdfast.Sent{Turn: holdfast.Turn{ID: holdfast.TurnID(newID()), Session: s.ID, Text: "hello"}}}
	cfg := f.config()
	cfg.Sessions, cfg.Views = st, st
	return New(cfg), st
}

func bench(b *testing.B, a *API, path, body string, status int) {
	b.Helper()
	b.ReportAllocs()
	payload := []byte(body)
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://127.0.0.1"+path, bytes.NewReader(payload))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+testToken)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code != status {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	a, _ := newStub(b)
	bench(b, a, "/v1/sessions", `{"title":"bench","tags":["a","b"]}`, http.StatusCreated)
}

func BenchmarkSend(b *testing.B) {
	a, st := newStub(b)
	bench(b, a, "/v1/sessions/"+string(st.session.ID)+"/turns", `{"text":"hello"}`, http.StatusAccepted)
}

// BenchmarkCreateOverTCP has the HTTP server and client in it, on both sides.
func BenchmarkCreateOverTCP(b *testing.B) {
	a, _ := newStub(b)
	srv := httptest.NewServer(a)
	defer srv.Close()
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/v1/sessions", bytes.NewReader([]byte(`{"title":"bench"}`)))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+testToken)
		r.Header.Set("Content-Type", "application/json")
		resp, err := srv.Client().Do(r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

// BenchmarkDelivery is the time, reader and all, of one delta to one of a
// hundred readers over TCP.
func BenchmarkDelivery(b *testing.B) {
	f := newFake()
	srv := httptest.NewServer(New(f.config()))
	defer srv.Close()
	s, _, err := f.Create(b.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		b.Fatal(err)
	}
	const readers = 100
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var all sync.WaitGroup
	arrived := make(chan struct{}, readers)
	for range readers {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/v1/sessions/"+string(s.ID)+"/events?after=1", nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + testToken}, "Accept": {"text/event-stream"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			defer resp.Body.Close()
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data:") {
					arrived <- struct{}{}
				}
			}
		})
	}
	for i := 0; i < b.N; i += readers {
		f.journal.Publish(s.ID, holdfast.DeltaText, "", holdfast.TextDelta{Text: "some words of an answer"})
		for range readers {
			<-arrived
		}
	}
	cancel()
	all.Wait()
}
