package transcript

import (
	"bytes"

	"github.com/holdfast-run/holdfast"
)

// lineBytes is the most bytes of a line of a transcript, mostEntries the most entries of a transcript.
const (
	lineBytes   = 16 << 20
	mostEntries = 250_000
)

// Check compares a transcript with what the log recorded of it. Write the file's bytes to it,
// then call Verdict.
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

// Check returns a Check for the transcript with a name.
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

// Write implements io.Writer. It never fails: Verdict returns what is wrong with the file.
func (c *Check) Write(p []byte) (int, error) {
	n := len(p)
	if c.size += int64(n); c.size > MostBytes && c.bad == nil {
		c.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "the transcript file is over %d bytes", MostBytes)
	}
	for c.bad == nil && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if len(c.partial)+len(line) > lineBytes {
			c.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "a line of the transcript is over %d bytes", lineBytes)
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
		c.bad = holdfast.Errorf(holdfast.KindInvalid, op, "the transcript has entry %s twice, with different content", holdfast.Quote(e.uuid))
		return
	}
	if want, ok := c.want.entries[e.uuid]; ok && !twice {
		if want.sum != e.sum {
			c.bad = holdfast.Errorf(holdfast.KindInvalid, op, "entry %s of the transcript differs from what the session's log recorded", holdfast.Quote(e.uuid))
			return
		}
		c.found++
	}
	if c.have[e.uuid] = e; len(c.have) > mostEntries {
		c.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "the transcript has over %d entries", mostEntries)
		return
	}
	if !e.side {
		c.last = e.uuid
	}
}

// Verdict returns why the transcript cannot be resumed, or nil if it can. Entries that were not
// recorded are allowed: an agent can be cut off in the middle of a turn.
func (c *Check) Verdict() error {
	switch {
	case c.bad != nil:
		return c.bad
	case c.size == 0:
		return holdfast.Errorf(holdfast.KindInvalid, op, "the transcript file is empty")
	case len(c.partial) > 0:
		return holdfast.Errorf(holdfast.KindInvalid, op, "the last line of the transcript has no newline: %s", holdfast.Quote(string(c.partial)))
	case c.found < len(c.want.entries):
		return holdfast.Errorf(holdfast.KindNotFound, op, "the transcript lacks %d of the %d entries that the session's log recorded", len(c.want.entries)-c.found, len(c.want.entries))
	}
	if c.tail == "" {
		// The transcript need not contain any answer: it belongs to a child agent, or no turn has
		// completed. All recorded entries are in the file.
		return nil
	}
	through, err := walk(c.have, c.last, "the transcript file")
	if err != nil {
		return err
	}
	if !through[c.tail] {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the conversation in the transcript does not contain the end of the newest turn that the session's log recorded")
	}
	return nil
}
