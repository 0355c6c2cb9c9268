package resident

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Sent is a line for the agent that its process may not have received yet.
type Sent struct {
	// End is the offset of the line's end in all input that was ever sent to the process.
	End int64 `json:"end"`
	// Line is the line's text, or Ref names a line that can be generated again from the log or the state.
	Line json.RawMessage `json:"line,omitempty"`
	Ref  string          `json:"ref,omitempty"`
}

const (
	// mostKept is the most lines without a Ref that an Outbox stores, mostKeptBytes their most
	// bytes. Older ones are dropped: the process has received them long ago.
	mostKept, mostKeptBytes = 32, 32 << 10
)

// Outbox holds the lines for an agent: those that wait for a commit, and those that boxd may not
// have received. The latter are part of the agent's state, so that the next server sends again
// exactly what was lost with this one (ADR 0028).
type Outbox struct {
	// Sent are the lines that boxd may not have received, as the agent's state stores them.
	Sent []Sent

	queue [][]byte
	// next is the offset of the next line in all input that was ever sent to the process.
	next int64
	// fresh is how many of the lines in Sent were added since the attachment began. begun is true once the
	// process's input offset is known, and with it the End of these lines.
	fresh int
	begun bool
}

// Add queues a line. If boxd does not receive it, the next attachment sends it again, also at another server: from
// the stored text, or, with a ref, generated again.
func (o *Outbox) Add(line []byte, ref string) {
	o.Pass(line)
	s := Sent{End: o.next, Ref: ref}
	if ref == "" {
		s.Line = bytes.Clone(bytes.TrimSpace(line))
	}
	o.Sent = append(o.Sent, s)
	o.fresh++
	o.bound()
}

// Pass queues a line that is not stored, and so is not sent again if it is lost.
func (o *Outbox) Pass(line []byte) {
	if n := len(line); n == 0 || line[n-1] != '\n' {
		line = append(bytes.Clone(line), '\n')
	}
	o.queue = append(o.queue, line)
	o.next += int64(len(line))
}

// bound drops the oldest lines when there are too many. Lines with a ref are small and are not dropped.
func (o *Outbox) bound() {
	count, size := 0, 0
	for i := len(o.Sent) - 1; i >= 0; i-- {
		if s := o.Sent[i]; s.Ref == "" {
			if count, size = count+1, size+len(s.Line); count > mostKept || size > mostKeptBytes {
				o.Sent = slices.Delete(o.Sent, i, i+1)
				o.fresh = min(o.fresh, len(o.Sent))
			}
		}
	}
}

// Queued reports whether lines wait to be sent.
func (o *Outbox) Queued() bool { return len(o.queue) > 0 }

// Take returns the queued lines and empties the queue.
func (o *Outbox) Take() [][]byte {
	lines := o.queue
	o.queue = nil
	return lines
}

// Attach begins an attachment. It drops lines that are still queued for the previous one, and,
// if that one never began, all lines that were added for it.
func (o *Outbox) Attach() {
	if !o.begun {
		o.Sent = o.Sent[:len(o.Sent)-o.fresh]
	}
	o.queue, o.next, o.fresh, o.begun = nil, 0, 0, false
}

// Begun handles the start of an attachment to a process that has taken a number of bytes of its
// input. It returns the lines that the process never received, oldest first; the caller adds
// them again. Lines that were added since Attach stay.
func (o *Outbox) Begun(taken int64) []Sent {
	old := len(o.Sent) - o.fresh
	lost := slices.DeleteFunc(slices.Clone(o.Sent[:old]), func(s Sent) bool { return s.End <= taken })
	o.Sent = slices.Clone(o.Sent[old:])
	for i := range o.Sent {
		o.Sent[i].End += taken
	}
	o.next += taken
	o.begun = true
	return lost
}

// Read records that the process has read all that was sent, so that nothing has to be sent again.
func (o *Outbox) Read() { o.Sent, o.fresh = nil, 0 }

// Clear drops all lines, because the process has ended.
func (o *Outbox) Clear() { o.Sent, o.queue, o.fresh = nil, nil, 0 }
