package conversation

import "github.com/holdfast-run/holdfast"

// Span is the events of a log with numbers above After up to Upto.
type Span struct{ After, Upto int64 }

// rewind is a session.rewound event: at is its number, to the number of the turn's end after which the
// conversation continues, or 0 for its beginning.
type rewind struct{ at, to int64 }

// rewound moves the head of the conversation back to the turn's end at event to, even one on a branch that an
// earlier rewind left; with to 0 the conversation becomes empty. The next event continues from there. It
// fails with invalid if no turn ended at that event.
func (c *Conversation) rewound(at, to int64) error {
	kept, completed, ok := prefix(c.Items, to)
	for i := len(c.lines) - 1; i >= 0 && !ok; i-- {
		kept, completed, ok = prefix(c.lines[i], to)
	}
	if !ok {
		return holdfast.Errorf(holdfast.KindInvalid, "conversation", "event #%d is not the end of a turn of this session", to).WithHint("give the number of an event that ends a turn")
	}
	*c = Conversation{
		Seq: c.Seq, Items: kept, Completed: completed, bytes: c.bytes,
		rewinds: append(c.rewinds, rewind{at, to}), lines: append(c.lines, c.Items),
	}
	return nil
}

// prefix returns the items up to the end of a turn at the event to, and the number of completed turns in
// them. Appending to the result does not change items. ok is false if no turn ended there.
func prefix(items []Item, to int64) (kept []Item, completed int64, ok bool) {
	if to == 0 {
		return nil, 0, true
	}
	for i := len(items) - 1; i >= 0; i-- {
		if e, is := items[i].(*Ended); is && e.Seq == to {
			return items[: i+1 : i+1], e.Completed, true
		}
	}
	return nil, 0, false
}

// Branch returns the spans of the log, ascending, that made up the conversation right after the event seq.
// Events that rewinds up to then had left out are not in them.
func (c *Conversation) Branch(seq int64) []Span {
	var spans []Span
	for i := len(c.rewinds) - 1; seq > 0; i-- {
		if i < 0 {
			spans = append([]Span{{0, seq}}, spans...)
			break
		}
		if r := c.rewinds[i]; r.at <= seq {
			if r.at < seq {
				spans = append([]Span{{r.at, seq}}, spans...)
			}
			seq = r.to
		}
	}
	return spans
}

// CompletedAt returns the number of completed turns of the conversation as it was at the end of a turn;
// ok is false if no turn ended at that event.
func (c *Conversation) CompletedAt(end int64) (completed int64, ok bool) {
	_, completed, ok = prefix(c.Items, end)
	for i := len(c.lines) - 1; i >= 0 && !ok; i-- {
		_, completed, ok = prefix(c.lines[i], end)
	}
	return completed, ok
}
