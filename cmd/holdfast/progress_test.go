package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// FH-17.
func TestProgressIsCalmAndLeavesNothing(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	p := &progress{r: strings.NewReader(strings.Repeat("x", 4096)), w: &out, verb: "sent", next: clock.Add(progressAfter), now: func() time.Time { return clock }}
	step := func(after time.Duration) string {
		out.Reset()
		clock = clock.Add(after)
		if _, err := io.ReadFull(p, make([]byte, 1024)); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for i, c := range []struct {
		after time.Duration
		want  string
	}{{0, ""}, {progressAfter, "\r\x1b[Ksent 2.0 KiB"}, {time.Millisecond, ""}, {progressEvery, "\r\x1b[Ksent 4.0 KiB"}} {
		if got := step(c.after); got != c.want {
			t.Errorf("%d: %q", i, got)
		}
	}
	out.Reset()
	if p.done(); out.String() != "\r\x1b[K" {
		t.Errorf("%q", out.String())
	}
	// Nobody looks: nothing is shown.
	e := &env{stderr: &out}
	if r, done := e.progress(p.r, "sent"); r != p.r {
		t.Error("shown where nobody looks")
	} else {
		done()
	}
}
