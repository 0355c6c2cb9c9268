package native

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

func TestCacheIsBoundedByCount(t *testing.T) {
	c := newCache(3, 1000)
	for i := range 5 {
		id := holdfast.SessionID(fmt.Sprint(i))
		h := c.take(id)
		h.seq, h.bytes = int64(i+1), 10
		c.put(id, h)
	}
	c.put("2", c.take("2"))
	h := c.take("5")
	h.bytes = 10
	c.put("5", h)
	for id, want := range map[holdfast.SessionID]int64{"0": 0, "1": 0, "2": 3, "3": 0, "4": 5} {
		if got := c.take(id).seq; got != want {
			t.Errorf("%s is at %d, want %d", id, got, want)
		}
	}
}

func TestCacheIsBoundedByBytes(t *testing.T) {
	c := newCache(100, 100)
	for i := range 10 {
		id := holdfast.SessionID(fmt.Sprint(i))
		h := c.take(id)
		h.seq, h.bytes = 1, 30
		c.put(id, h)
	}
	if c.order.Len() != 3 || c.bytes != 90 || len(c.byID) != 3 || len(c.out) != 0 {
		t.Errorf("%d histories of %d bytes", c.order.Len(), c.bytes)
	}
	h := c.take("big")
	h.seq, h.bytes = 1, 101
	c.put("big", h)
	if c.take("big").seq != 0 || c.order.Len() != 3 {
		t.Error("a history over the bound was kept, or drove the others out")
	}
}

func TestCacheForgetsWhatATurnUses(t *testing.T) {
	c := newCache(10, 1000)
	h := c.take("a")
	h.seq = 7
	c.drop("a")
	c.put("a", h)
	if c.take("a").seq != 0 {
		t.Error("a forgotten history came back")
	}
	first, second := c.take("b"), c.take("b")
	second.seq = 2
	c.put("b", first)
	c.put("b", second)
	c.put("b", second)
	if c.order.Len() != 1 || c.take("b").seq != 2 {
		t.Error("two turns of a session share the cache")
	}
	c.put("b", c.take("b"))
	c.drop("b")
	if c.order.Len() != 0 || c.bytes != 0 {
		t.Error("dropping left something")
	}
}

func TestSystemPrompt(t *testing.T) {
	boxed := runtime.Turn{Session: holdfast.Session{Trust: holdfast.Untrusted}, Instructions: "Sing."}
	p := systemPrompt(boxed)
	if !strings.Contains(p, "/workspace") || !strings.HasSuffix(p, "Sing.") || p != systemPrompt(boxed) {
		t.Error(p)
	}
	p = systemPrompt(runtime.Turn{Session: holdfast.Session{Trust: holdfast.Trusted}})
	if strings.Contains(p, "/workspace") || !strings.Contains(p, "without a sandbox") || strings.Contains(p, "Instructions") {
		t.Error(p)
	}
}
