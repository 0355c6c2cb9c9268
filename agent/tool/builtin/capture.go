package builtin

import (
	"fmt"
	"sync"
	"unicode/utf8"
)

const (
	// keepHead and keepTail are how many bytes from the beginning and from the end of a command's
	// output the model gets.
	keepHead = 15_000
	keepTail = 15_000
	// liveBytes is how many bytes of the output are shown live.
	liveBytes = 1 << 20
)

// capture stores the beginning and the end of an output stream and shows the stream live, in
// complete characters. It is the Stdout or Stderr of an exec; text may be called after the exec
// has returned. Safe for concurrent use.
type capture struct {
	show func(text string)

	mu   sync.Mutex
	head []byte
	// tail is a ring buffer: once it is full, its oldest byte is at index next.
	tail []byte
	next int
	// offset is the number of bytes received, cut the number of bytes dropped between head and
	// tail.
	offset, cut int64
	gapped      bool
	// part is the beginning of a character whose other bytes have not been received yet.
	part []byte
	live int
}

// Write implements io.Writer.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += int64(len(p))
	c.keep(p)
	c.shown(p)
	return len(p), nil
}

// Gap implements sandbox.Gapper: it accounts for output that the box has dropped.
func (c *capture) Gap(from, to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The tail before the gap is no longer at the end: count it as dropped, too.
	c.cut += to - from + int64(len(c.tail))
	c.tail, c.next = c.tail[:0], 0
	c.offset = to
	c.gapped = true
}

// seen returns the offset up to which output was received.
func (c *capture) seen() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

func (c *capture) keep(p []byte) {
	if room := keepHead - len(c.head); room > 0 && !c.gapped && len(c.tail) == 0 {
		n := min(room, len(p))
		c.head = append(c.head, p[:n]...)
		p = p[n:]
	}
	if len(p) > keepTail {
		c.cut += int64(len(p) - keepTail)
		p = p[len(p)-keepTail:]
	}
	if room := keepTail - len(c.tail); room > 0 {
		n := min(room, len(p))
		c.tail = append(c.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(c.tail[c.next:], p)
		c.next = (c.next + n) % keepTail
		c.cut += int64(n)
		p = p[n:]
	}
}

func (c *capture) shown(p []byte) {
	if c.live >= liveBytes {
		return
	}
	c.part = append(c.part, p...)
	n := whole(c.part)
	text := string(c.part[:n])
	c.part = append(c.part[:0], c.part[n:]...)
	if text == "" {
		return
	}
	if c.live += len(text); c.live >= liveBytes {
		text += "\n[live output ends here; the result has its end]\n"
	}
	c.show(clean(text))
}

// whole returns the length of p without an incomplete character at its end.
func whole(p []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}

// text returns the stored output, with a marker in place of dropped bytes.
func (c *capture) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := append(append(make([]byte, 0, len(c.tail)), c.tail[c.next:]...), c.tail[:c.next]...)
	if c.cut == 0 {
		return clean(string(c.head) + string(tail))
	}
	head := c.head[:whole(c.head)]
	// Drop an incomplete character at the beginning of the tail.
	for i := 0; i < utf8.UTFMax && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return clean(fmt.Sprintf("%s\n[… %d bytes cut …]\n%s", head, c.cut, tail))
}
