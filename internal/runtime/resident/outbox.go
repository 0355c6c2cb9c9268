package resident

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Sent is a line for the agent that its process may not have taken yet.
type Sent struct {
	// End is where the line ends in all that was ever sent to the process.
	End int64 `json:"end"`
	// Line is the line; Ref names one that is made again from the log or the state.
	Line json.RawMessage `json:"line,omitempty"`
	Ref  string          `json:"ref,omitempty"`
}

const (
	// mostKept is how many lines an Outbox keeps, mostKeptBytes their size. Older ones
	// are forgotten: the process has taken them long ago.
	mostKept, mostKeptBytes = 32, 32 << 10
)

// Outbox holds the lines for an agent: those that wait for a commit, and those that boxd
// may not have taken. The second are part of the agent's state, so that the next server
// sends again what died with this one, and nothing else (ADR 0028).
type Outbox struct {
	// Sent are the lines that boxd may not have taken, as the state keeps them.
	Sent []Sent

	queue [][]byte
	// next is where the next line begins in all that was ever sent.
	next int64
	// fresh is how many of Sent were added since the attachment began; begun: it is known
	// where they lie.
	fresh int
	begun bool
}

// Add queues a line. It is sent again by the next server if boxd did not take it; with
// a ref, that server makes it again.
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

// Pass queues a line that is not sent again.
func (o *Outbox) Pass(line []byte) {
	if n := len(line); n == 0 || line[n-1] != '\n' {
		line = append(bytes.Clone(line), '\n')
	}
	o.queue = append(o.queue, line)
	o.next += int64(len(line))
}

// bound forgets the oldest lines when there are too many. Those with a ref are small.
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

// Take returns the queued lines and forgets them.
func (o *Outbox) Take() [][]byte {
	lines := o.queue
	o.queue = nil
	return lines
}

// Attach begins an attachment. Lines that were queued for another one are dropped, and all
// that were added for one that never began.
func (o *Outbox) Attach() {
	if !o.begun {
		o.Sent = o.Sent[:len(o.Sent)-o.fresh]
	}
	o.queue, o.next, o.fresh, o.begun = nil, 0, 0, false
}

// Begun says how much the process had taken when the attachment began. It returns the
// lines that the process never got, oldest first: they have to be added again. Lines
// that were added since Attach keep their places.
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

// Read says that the process has read all that was sent: nothing of it is kept.
func (o *Outbox) Read() { o.Sent, o.fresh = nil, 0 }

// Clear forgets all lines: the process has ended.
func (o *Outbox) Clear() { o.Sent, o.queue, o.fresh = nil, nil, 0 }
