package builtin

import (
	"fmt"
	"sync"
	"unicode/utf8"
)

const (
	// keepHead and keepTail are how much of a command's output the model sees, in bytes.
	keepHead = 15_000
	keepTail = 15_000
	// liveBytes is how much of it is shown live.
	liveBytes = 1 << 20
)

// capture keeps the beginning and the end of an output stream and shows it live,
// whole characters at a time. It is the output writer of an exec; after the exec
// returned text may be called. Safe for concurrent use.
type capture struct {
	show func(text string)

	mu   sync.Mutex
	head []byte
	// tail is a ring: its oldest byte is at next once it is full.
	tail []byte
	next int
	// offset is how much of the stream was seen, cut what lies between head and tail.
	offset, cut int64
	gapped      bool
	// part is the beginning of a character whose rest has not come.
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

// Gap is told of output that the box no longer had.
func (c *capture) Gap(from, to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// What came just before the gap is in its middle now.
	c.cut += to - from + int64(len(c.tail))
	c.tail, c.next = c.tail[:0], 0
	c.offset = to
	c.gapped = true
}

// seen is the offset up to which output came.
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

// whole is the length of p without the beginning of an unfinished character.
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

// text is what was kept, with a marker where something is missing.
func (c *capture) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := append(append(make([]byte, 0, len(c.tail)), c.tail[c.next:]...), c.tail[:c.next]...)
	if c.cut == 0 {
		return clean(string(c.head) + string(tail))
	}
	head := c.head[:whole(c.head)]
	// Characters cut at the border are not shown in part.
	for i := 0; i < utf8.UTFMax && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return clean(fmt.Sprintf("%s\n[… %d bytes cut …]\n%s", head, c.cut, tail))
}
