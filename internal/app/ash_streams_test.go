package app_test

import (
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestASH15_MemoryOfStalledStreams: event streams over HTTP whose readers stand still hold
// far less of the log than there is to send, each and together.
func TestASH15_MemoryOfStalledStreams(t *testing.T) {
	testkit.Long(t)
	c, _ := serve(t, settings(t, "mem"))
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	id := s.ID
	const message, before, after, streams, each = 1 << 20, 20, 4, 12, 10 << 20
	say := func() {
		t.Helper()
		st, err := c.Stream(t.Context(), id, holdfast.SendMessage{Text: strings.Repeat("x", message)})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		for _, err := range st.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for range before {
		say()
	}
	alone := heap()
	for range streams {
		next, stop := iter.Pull2(c.Follow(t.Context(), id, 0))
		defer stop()
		if ev, err, ok := next(); err != nil || !ok || ev.Type != holdfast.EventSessionCreated {
			t.Fatalf("%+v %v", ev, err)
		}
	}
	most := int64(0)
	for range after {
		say()
		most = max(most, heap()-alone)
	}
	t.Logf("%d stalled streams hold %d bytes, of %d to send to each", streams, most, (before+after)*message)
	if most > streams*each {
		t.Errorf("%d stalled streams hold %d bytes, more than %d each", streams, most, each)
	}
}
