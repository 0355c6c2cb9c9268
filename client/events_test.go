package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

func frameOf(seq int64, typ holdfast.EventType, turn holdfast.TurnID) string {
	data, err := json.Marshal(holdfast.Event{Session: "s", Seq: seq, Type: typ, Turn: turn, Data: json.RawMessage(`{"text":"` + strings.Repeat("x", int(seq%7)*20) + `"}`)})
	if err != nil {
		panic(err)
	}
	if seq == 0 {
		return fmt.Sprintf("event: %s\ndata: %s\n\n", typ, data)
	}
	return fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", seq, typ, data)
}

// log is a stream of n events after a cursor, with deltas and pings between.
func logAfter(after, n int64) string {
	var b strings.Builder
	for seq := after + 1; seq <= n; seq++ {
		b.WriteString(frameOf(0, holdfast.DeltaText, "t"))
		b.WriteString(": ping\n\n")
		b.WriteString(frameOf(seq, holdfast.EventNotice, ""))
	}
	return b.String()
}

func after(t testing.TB, r *http.Request) int64 {
	s := r.URL.Query().Get("after")
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Errorf("after %q", s)
	}
	return n
}

// TestASH14_FollowSurvivesCutsWithoutGapOrDuplicate breaks the connection at
// random bytes, answers 503 now and then, and repeats events.
func TestASH14_FollowSurvivesCutsWithoutGapOrDuplicate(t *testing.T) {
	const n = 300
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex // connections may overlap
	var connections atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if connections.Add(1)%5 == 4 {
			problem(w, holdfast.KindUnavailable, "not now", "")
			return
		}
		from := after(t, r)
		if from > 3 && connections.Load()%3 == 0 {
			from -= 3 // a server that repeats
		}
		text := logAfter(from, n)
		mu.Lock()
		text = text[:min(len(text), 200+rnd.IntN(6000))]
		mu.Unlock()
		_, _ = io.WriteString(w, text)
		w.(http.Flusher).Flush()
		hangUp(w)
	})
	want := int64(1)
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 0 {
			continue
		}
		if e.Seq != want {
			t.Fatalf("event %d, not %d", e.Seq, want)
		}
		if want++; want > n {
			break
		}
	}
	if connections.Load() < 10 {
		t.Errorf("only %d connections", connections.Load())
	}
}

func TestFollowWaitsForAServerThatComesBack(t *testing.T) {
	var c *Client
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := after(t, r)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, logAfter(from, from+1))
	})
	first := &httptest.Server{Listener: ln, Config: &http.Server{Handler: handler}}
	first.Start()
	if c, err = New(Config{URL: "http://" + addr, ReconnectFor: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var second *httptest.Server
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Seq == 1:
			first.CloseClientConnections()
			first.Close()
			time.AfterFunc(200*time.Millisecond, func() {
				ln, err := net.Listen("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				second = &httptest.Server{Listener: ln, Config: &http.Server{Handler: handler}}
				second.Start()
			})
		case e.Seq == 2:
			second.CloseClientConnections()
			second.Close()
			return
		}
	}
}

func TestFollowEndsWhereGoingOnMakesNoSense(t *testing.T) {
	for _, kind := range []holdfast.Kind{holdfast.KindNotFound, holdfast.KindInvalid, holdfast.KindUnauthenticated, holdfast.KindGone, holdfast.KindInternal} {
		var calls atomic.Int32
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 {
				_, _ = io.WriteString(w, logAfter(0, 2))
				return
			}
			problem(w, kind, "no more", "h")
		})
		var last error
		events := 0
		for e, err := range c.Follow(t.Context(), "s", 0) {
			if last = err; err == nil && e.Seq > 0 {
				events++
			}
		}
		if events != 2 || holdfast.KindOf(last) != kind || (holdfast.HintOf(last) != "h") != Strange(last) || calls.Load() != 2 {
			t.Errorf("%s: %d events, then %v after %d connections", kind, events, last, calls.Load())
		}
	}
}

func TestFollowGivesUpInTheEnd(t *testing.T) {
	var calls atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			_, _ = io.WriteString(w, logAfter(0, 1))
			return
		}
		hangUp(w)
	})
	c.cfg.ReconnectFor = 2 * time.Second
	var last error
	for _, err := range c.Follow(t.Context(), "s", 0) {
		last = err
	}
	if !holdfast.IsKind(last, holdfast.KindUnavailable) || calls.Load() < 3 {
		t.Errorf("%v after %d connections", last, calls.Load())
	}
}

func TestFollowRefusesAGap(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, frameOf(1, holdfast.EventNotice, "")+frameOf(3, holdfast.EventNotice, ""))
	})
	var last error
	for _, err := range c.Follow(t.Context(), "s", 0) {
		last = err
	}
	if !holdfast.IsKind(last, holdfast.KindInternal) || !strings.Contains(last.Error(), "event 1 was followed by event 3") {
		t.Error(last)
	}
	seen := 0
	for _, err := range c.Follow(t.Context(), "s", 0, holdfast.EventNotice) { // a filter skips
		if seen++; err != nil || seen == 2 {
			if err != nil {
				t.Error(err)
			}
			break
		}
	}
}

func TestFollowReconnectsWhenTheServerFallsSilent(t *testing.T) {
	var calls atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			_, _ = io.WriteString(w, logAfter(after(t, r), 2))
			return
		}
		_, _ = io.WriteString(w, logAfter(0, 1))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c.cfg.Silence = 2 * time.Second
	var told []bool
	c.cfg.Waiting = func(w Wait) { told = append(told, w.Over) }
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 2 {
			break
		}
	}
	if calls.Load() != 2 || !slices.Equal(told, []bool{false, true}) {
		t.Errorf("%d connections, told %v", calls.Load(), told)
	}
}

func TestFollowStaysWithAServerThatOnlyPings(t *testing.T) {
	var calls atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for range 40 {
			_, _ = io.WriteString(w, ": ping\n\n")
			w.(http.Flusher).Flush()
			<-tick.C
		}
		_, _ = io.WriteString(w, logAfter(after(t, r), 1))
	})
	c.cfg.Silence = 2 * time.Second
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 1 {
			break
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d connections", calls.Load())
	}
}

func TestFollowTellsAnErrorOfTheStream(t *testing.T) {
	var calls atomic.Int32
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1: // a temporary one is waited out
			_, _ = io.WriteString(w, logAfter(0, 1)+"event: error\ndata: {\"kind\":\"unavailable\",\"detail\":\"busy\"}\n\n")
		default:
			_, _ = io.WriteString(w, logAfter(1, 2)+"event: error\ndata: {\"kind\":\"internal\",\"detail\":\"broken\",\"hint\":\"h\"}\n\n")
		}
	})
	var last error
	n := 0
	for e, err := range c.Follow(t.Context(), "s", 0) {
		if last = err; err == nil && e.Seq > 0 {
			n++
		}
	}
	if n != 2 || !holdfast.IsKind(last, holdfast.KindInternal) || last.Error() != "broken" || holdfast.HintOf(last) != "h" {
		t.Errorf("%d events, then %v", n, last)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, logAfter(0, 1))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for e, err := range c.Follow(ctx, "s", 0) {
		if last = err; e.Seq == 1 {
			cancel()
		}
	}
	if !holdfast.IsKind(last, holdfast.KindUnavailable) {
		t.Error(last)
	}
}

// TestStreamGoesOnWithTheLog: the answer to the message breaks in the middle of
// the turn; the rest comes from the session's stream, without other turns.
func TestStreamGoesOnWithTheLog(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Holdfast-Turn", "mine")
			w.Header().Set("Holdfast-Seq", "10")
			_, _ = io.WriteString(w, frameOf(11, holdfast.EventMessageUser, "mine"))
			w.(http.Flusher).Flush()
			hangUp(w)
			return
		}
		if got := after(t, r); got != 11 {
			t.Errorf("goes on after %d", got)
		}
		for _, f := range []string{
			frameOf(12, holdfast.EventTurnCompleted, "other"), frameOf(13, holdfast.EventNotice, ""),
			frameOf(14, holdfast.EventTurnCompleted, "mine"), frameOf(15, holdfast.EventNotice, ""),
		} {
			_, _ = io.WriteString(w, f)
		}
	})
	s, err := c.Stream(t.Context(), "s", holdfast.SendMessage{Text: "x", Key: "k"})
	if err != nil || s.Turn != "mine" || s.Seq != 10 || s.Duplicate {
		t.Fatalf("%+v %v", s, err)
	}
	defer s.Close()
	var seqs []int64
	for e, err := range s.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.Seq)
	}
	if fmt.Sprint(seqs) != "[11 13 14]" {
		t.Errorf("%v", seqs)
	}
}

func TestStreamOfAForeignServerIsRefused(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	if _, err := c.Stream(t.Context(), "s", holdfast.SendMessage{Text: "x"}); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Error(err)
	}
}
