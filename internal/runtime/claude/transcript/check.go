package transcript

import (
	"bytes"

	"github.com/holdfast-run/holdfast"
)

// lineBytes is the longest line of a transcript, mostEntries how many it may have.
const (
	lineBytes   = 16 << 20
	mostEntries = 250_000
)

// Check reads a transcript and holds it against what was recorded of it. Write it the
// file's bytes, then ask for the Verdict.
type Check struct {
	want *recorded
	tail string

	partial []byte
	size    int64
	have    map[string]entry
	found   int
	last    string
	bad     error
}

// Check is a check of the transcript of that name.
func (r *Record) Check(name string) *Check {
	c := &Check{want: r.files[name], have: map[string]entry{}}
	if c.want == nil {
		c.want = &recorded{}
	}
	if name == Main {
		c.tail = r.tail
	}
	return c
}

// Write implements io.Writer. It never fails: what is wrong is the verdict.
func (c *Check) Write(p []byte) (int, error) {
	n := len(p)
	if c.size += int64(n); c.size > MostBytes && c.bad == nil {
		c.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "the file is over %d bytes", MostBytes)
	}
	for c.bad == nil && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if len(c.partial)+len(line) > lineBytes {
			c.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "a line is over %d bytes", lineBytes)
			break
		}
		if !whole {
			c.partial = append(c.partial, line...)
			break
		}
		if len(c.partial) > 0 {
			line = append(c.partial, line...)
			c.partial = nil
		}
		c.line(line)
		p = rest
	}
	return n, nil
}

func (c *Check) line(line []byte) {
	e, err := parse(line)
	if err != nil {
		c.bad = err
		return
	}
	if !e.chained() {
		return
	}
	before, twice := c.have[e.uuid]
	if twice && before.sum != e.sum {
		c.bad = holdfast.Errorf(holdfast.KindInvalid, op, "entry %s is there twice, and differs", holdfast.Quote(e.uuid))
		return
	}
	if want, ok := c.want.entries[e.uuid]; ok && !twice {
		if want.sum != e.sum {
			c.bad = holdfast.Errorf(holdfast.KindInvalid, op, "entry %s is not what was recorded", holdfast.Quote(e.uuid))
			return
		}
		c.found++
	}
	if c.have[e.uuid] = e; len(c.have) > mostEntries {
		c.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "the file has over %d entries", mostEntries)
		return
	}
	if !e.side {
		c.last = e.uuid
	}
}

// Verdict says why the transcript cannot be gone by; nil is that it can. More than
// was recorded is no reason: an agent is cut off in the middle of a turn.
func (c *Check) Verdict() error {
	switch {
	case c.bad != nil:
		return c.bad
	case c.size == 0:
		return holdfast.Errorf(holdfast.KindInvalid, op, "the file is empty")
	case len(c.partial) > 0:
		return holdfast.Errorf(holdfast.KindInvalid, op, "the last line has no end: %s", holdfast.Quote(string(c.partial)))
	case c.found < len(c.want.entries):
		return holdfast.Errorf(holdfast.KindNotFound, op, "the file misses %d of the %d entries that were recorded", len(c.want.entries)-c.found, len(c.want.entries))
	}
	if c.tail == "" {
		// Of a child agent, or before the first answer: what was recorded is there.
		return nil
	}
	through, err := walk(c.have, c.last, "the file")
	if err != nil {
		return err
	}
	if !through[c.tail] {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the conversation in the file does not go through the recorded end of the newest turn")
	}
	return nil
}
