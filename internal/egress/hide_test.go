package egress_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/egress"
)

// TestHZ7_TheKeyIsTakenOutOfStreams: a provider, or a proxy that logs for it, repeats
// the key in its headers and events, split anywhere: the box and the log do not see it.
func TestHZ7_TheKeyIsTakenOutOfStreams(t *testing.T) {
	events := started + "data: {\"type\":\"ping\",\"echo\":\"Bearer " + theKey + "\"}\n\ndata: {\"type\":\"message_stop\"}\n\n"
	first := strings.Index(events, theKey)
	for cut := first; cut <= first+len(theKey); cut += 3 {
		turn := newTurn("anthropic/x")
		r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
			_ = readAll(r)
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Request-Id", "of "+theKey)
			w.Header().Set("X-Request-Id", theKey)
			_, _ = io.WriteString(w, events[:cut])
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, events[cut:])
		}, func(c *egress.BrokerConfig) { c.Content = true })
		status, h, body := r.post("/v1/messages", message("x"))
		if status != 200 || body != strings.ReplaceAll(events, theKey, "***") {
			t.Errorf("cut at %d: %d %q", cut-first, status, body)
		}
		if h.Get("Request-Id") != "" || h.Get("X-Request-Id") != "" {
			t.Errorf("the headers have it: %v", h)
		}
		ev := turn.recorded()
		if len(ev) != 1 || strings.Contains(ev[0].Answer+ev[0].RequestID+ev[0].Message, theKey) || ev[0].RequestID != "of ***" || ev[0].Usage.InputTokens != 7 {
			t.Errorf("recorded %+v", ev)
		}
	}
}

// The message of a failure is shortened; the key is removed before that.
func TestHZ7_NoPartOfTheKeyIsLeftByACut(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} {
		for before := 500 - len(theKey); before < 500; before += 5 {
			turn := newTurn("anthropic/x")
			text := strings.Repeat("-", before) + theKey
			r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
				_ = readAll(r)
				w.Header().Set("Content-Type", kind)
				fault := `{"type":"error","error":{"type":"api_error","message":"` + text + `"}}`
				if kind == "application/json" {
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = io.WriteString(w, fault)
					return
				}
				_, _ = io.WriteString(w, "data: "+fault+"\n\n")
			}, nil)
			resp, err := r.client.Post("http://localhost/v1/messages", "", strings.NewReader(message("x")))
			if err == nil {
				raw, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if strings.Contains(string(raw), theKey[:8]) {
					t.Errorf("%s, %d: %s", kind, before, raw)
				}
			}
			if ev := turn.recorded(); len(ev) != 1 || strings.Contains(ev[0].Message, theKey[:8]) || ev[0].Message == "" {
				t.Errorf("%s, %d: recorded %+v", kind, before, ev)
			}
		}
	}
}

// TestHZ7_CompressedAnswersAreRefused: nobody asked for them, and the key cannot be
// found in them.
func TestHZ7_CompressedAnswersAreRefused(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"usage":{"input_tokens":1},"echo":"`+theKey+`"}`)
	_ = z.Close()
	for _, kind := range []string{"application/json", "text/event-stream"} {
		turn := newTurn("anthropic/x")
		r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("asked for %q", got)
			}
			_ = readAll(r)
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		}, nil)
		status, _, body := r.post("/v1/messages", message("x"))
		if status != 503 || !strings.Contains(body, "gzip") || strings.Contains(body, packed.String()) || turn.reserved != 0 {
			t.Errorf("%s: %d %q", kind, status, body)
		}
	}
}
