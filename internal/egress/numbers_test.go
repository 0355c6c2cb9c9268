package egress_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestHZ24_TheLongestAnswerIsBounded: a request may ask for any length up to the bound;
// a longer one is refused with its number and never leaves the server.
func TestHZ24_TheLongestAnswerIsBounded(t *testing.T) {
	asked := 0
	answer := func(w http.ResponseWriter, r *http.Request) {
		_ = readAll(r)
		asked++
		_, _ = io.WriteString(w, `{"usage":{}}`)
	}
	for path, names := range map[string][]string{
		"/v1/messages": {"max_tokens"}, "/v1/messages/count_tokens": {"max_tokens"}, "/v1/chat/completions": {"max_tokens", "max_completion_tokens"},
	} {
		turn := newTurn(modelOf(path))
		r := answering(t, turn, answer, nil)
		for _, name := range names {
			body := func(n string) string {
				return `{"model":"m","` + name + `":` + n + `,"messages":[{"role":"user","content":"x"}]}`
			}
			for _, n := range []string{"16777217", "4611686018427387904", "9223372036854775807", "9223372036854775808", "1e30", "-1", "-9223372036854775808", "1.5", `"10"`} {
				status, h, said := r.post(path, body(n))
				if status != 400 || !strings.Contains(said, name) || !strings.Contains(said, strings.Trim(n, `"`)) || !strings.Contains(said, "hint: ") || h.Get("X-Should-Retry") != "false" {
					t.Errorf("%s %s %s: %d %s", path, name, n, status, said)
				}
			}
			if asked != 0 {
				t.Fatalf("%d requests went out", asked)
			}
			for _, n := range []string{"0", "1", "16777216"} {
				if status, _, said := r.post(path, body(n)); status != 200 {
					t.Errorf("%s %s %s: %d %s", path, name, n, status, said)
				}
			}
			asked = 0
		}
	}
}

// A request that bounds its answer twice, or not at all, reserves the most that its
// provider may give.
func TestHZ24_TheLargerBoundIsReserved(t *testing.T) {
	for path, bodies := range map[string][]string{
		"/v1/chat/completions": {`"max_tokens":5000,"max_completion_tokens":1,`, `"max_tokens":1,"max_completion_tokens":5000,`, `"max_tokens":null,`, ``},
		"/v1/messages":         {``},
	} {
		for _, more := range bodies {
			turn := newTurn(modelOf(path))
			turn.bound = 4000
			r := answering(t, turn, func(http.ResponseWriter, *http.Request) { t.Error("it went out") }, nil)
			if status, _, said := r.post(path, `{"model":"m",`+more+`"messages":[{"role":"user","content":"x"}]}`); status != 403 {
				t.Errorf("%s %q: %d %s", path, more, status, said)
			}
		}
	}
}

// TestHZ24_AProviderCannotGiveTokensBack: whatever a provider reports, streamed or not,
// no usage shrinks, and no sum wraps around.
func TestHZ24_AProviderCannotGiveTokensBack(t *testing.T) {
	for _, n := range []int64{-1, -50000, math.MinInt64, math.MaxInt64, 1 << 62} {
		anthropic := fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d}`, n, n, n, n)
		openai := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, n, n, -n)
		for _, c := range []struct{ model, path, kind, answer string }{
			{"anthropic/claude-sonnet-4-5", "/v1/messages", "application/json", `{"usage":` + anthropic + `}`},
			{"anthropic/claude-sonnet-4-5", "/v1/messages", "text/event-stream", `data: {"type":"message_start","message":{"usage":` + anthropic + "}}\n\n" +
				`data: {"type":"message_delta","usage":` + anthropic + "}\n\ndata: {\"type\":\"message_stop\"}\n\n"},
			{"openai/gpt-4o", "/v1/chat/completions", "application/json", `{"usage":` + openai + `}`},
			{"openai/gpt-4o", "/v1/chat/completions", "text/event-stream", `data: {"choices":[],"usage":` + openai + "}\n\ndata: [DONE]\n\n"},
		} {
			turn := newTurn(c.model)
			r := answering(t, turn, func(w http.ResponseWriter, r *http.Request) {
				_ = readAll(r)
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.answer)
			}, nil)
			last := holdfast.Usage{}
			for range 3 {
				if status, _, body := r.post(c.path, message("x")); status != 200 {
					t.Fatalf("%d %s", status, body)
				}
				if s := turn.spent; s.Tokens() < last.Tokens() || s.CostMicroUSD < last.CostMicroUSD || s != s.Clamp() {
					t.Errorf("%d reported by %s (%s): %+v after %+v", n, c.model, c.kind, s, last)
				}
				last = turn.spent
			}
			for _, ev := range turn.recorded() {
				if ev.Usage != ev.Usage.Clamp() {
					t.Errorf("%d is recorded as %+v", n, ev.Usage)
				}
			}
			if n > 0 && last.Tokens() < 1<<62 {
				t.Errorf("%d counts as %+v", n, last)
			}
		}
	}
}
