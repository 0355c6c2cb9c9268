package meter_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/egress/meter"
)

// TestUsage: both APIs are counted, streamed and whole; an answer is complete only at the
// event that ends its stream; a line that is too long is skipped and ends nothing.
func TestUsage(t *testing.T) {
	long := strings.Repeat("x", 1<<20+1)
	for name, c := range map[string]struct {
		meter meter.Meter
		parts []string
		end   string
		want  holdfast.Usage
	}{
		"messages": {
			meter.Messages(),
			[]string{
				"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n",
				long, "data: {\"type\":\"message_stop\"}\n\n", "data: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":2,\"output_tokens\":9}}\n\n",
			},
			"data: {\"type\":\"message_stop\"}\n\n",
			holdfast.Usage{InputTokens: 5, CacheReadTokens: 3, OutputTokens: 9},
		},
		"chat": {
			meter.Chat(),
			[]string{"data: {\"choices\":[{\"delta\":{}}]}\n\n", long, "data: [DONE]\n\n", "data: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n"},
			"data: [DONE]\n\n",
			holdfast.Usage{InputTokens: 5, CacheReadTokens: 3, OutputTokens: 9},
		},
	} {
		for _, p := range c.parts {
			c.meter.Feed([]byte(p))
		}
		if c.meter.Ended() {
			t.Errorf("%s: ended before its last event", name)
		}
		c.meter.Feed([]byte(c.end))
		if got := c.meter.Usage(); got != c.want || !c.meter.Ended() || c.meter.Failure() != "" {
			t.Errorf("%s: %+v, ended %v, failure %q", name, got, c.meter.Ended(), c.meter.Failure())
		}
	}
	m := meter.Messages()
	m.Whole([]byte(`{"usage":{"input_tokens":5,"output_tokens":9}}`))
	if got := m.Usage(); got != (holdfast.Usage{InputTokens: 5, OutputTokens: 9}) || !m.Ended() || m.Seen() == 0 {
		t.Errorf("whole: %+v, ended %v, %d bytes", got, m.Ended(), m.Seen())
	}
}

// TestTheLastLineMayLackItsEnd: the line that ends a stream counts without a line end, and a chat stream without [DONE] is
// complete if it has a finish_reason.
func TestTheLastLineMayLackItsEnd(t *testing.T) {
	const finish, used = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":9}}"
	for raw, want := range map[string]bool{
		"data: [DONE]": true, finish + used: true, finish + used + "\n\n": true, used: false, "": false,
		"data: {\"choices\":[{\"delta\":{},\"finish_reason\":null}]}\n\n" + used: false,
		finish + "data: {\"error\":{\"message\":\"no\"}}\n\n" + used:             false,
	} {
		m := meter.Chat()
		m.Feed([]byte(raw))
		if m.Ended() {
			t.Errorf("%q: ended before the end of the stream", raw)
		}
		m.End()
		if u := m.Usage(); m.Ended() != want || strings.Contains(raw, used) && (u.InputTokens != 8 || u.OutputTokens != 9) {
			t.Errorf("%q: ended %v, want %v; %+v", raw, m.Ended(), want, u)
		}
	}
	m := meter.Messages()
	m.Feed([]byte("data: {\"type\":\"message_stop\"}"))
	if m.End(); !m.Ended() {
		t.Error("a message_stop without a line end does not end the stream")
	}
}

// FuzzMeter: a stream counts the same in whatever pieces it arrives, and no count is
// negative.
func FuzzMeter(f *testing.F) {
	f.Add([]byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\ndata: {\"type\":\"message_stop\"}\n\n"), 3)
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":-1,\"prompt_tokens_details\":{\"cached_tokens\":9}}}\n\ndata: [DONE]\n\n"), 1)
	f.Add([]byte("data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":-5}}}\n"), 2)
	f.Fuzz(func(t *testing.T, raw []byte, n int) {
		n = max(1, n%64)
		for _, make := range []func() meter.Meter{meter.Messages, meter.Chat} {
			whole, pieces := make(), make()
			whole.Feed(raw)
			for p := range slices.Chunk(raw, n) {
				pieces.Feed(p)
			}
			whole.End()
			pieces.End()
			u := whole.Usage()
			if u != pieces.Usage() || whole.Ended() != pieces.Ended() || whole.Seen() != pieces.Seen() || whole.Failure() != pieces.Failure() {
				t.Fatalf("%q in pieces of %d: %+v %+v", raw, n, whole, pieces)
			}
			if u.InputTokens < 0 || u.OutputTokens < 0 || u.CacheReadTokens < 0 || u.CacheWriteTokens < 0 || whole.Seen() < 0 {
				t.Fatalf("%q: %+v", raw, u)
			}
		}
	})
}
