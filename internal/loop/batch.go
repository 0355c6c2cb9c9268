package loop

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// batch gathers entries until flush records them in one transaction. It also holds the calls
// whose outcomes are among the entries: a box may forget a call only after its outcome is
// recorded (I-12).
type batch struct {
	// ctx does not end with the turn, so that results are recorded even if the turn was cancelled.
	ctx   context.Context
	rec   Recorder
	boxes Boxes
	at    func(point string)

	entries []Entry
	done    []release
}

// release is a call that its box may forget once the batch with the call's outcome is recorded.
type release struct {
	box  *sandbox.Box
	call holdfast.CallID
}

func (b *batch) add(typ holdfast.EventType, data any) {
	b.entries = append(b.entries, Entry{Type: typ, Data: data})
}

// flush records the entries in one transaction, and then releases the calls whose outcomes
// are among them.
func (b *batch) flush() error {
	if len(b.entries) == 0 {
		return nil
	}
	if err := b.rec.Record(b.ctx, b.entries...); err != nil {
		return err
	}
	b.entries = nil
	if len(b.done) > 0 {
		b.at("committed-unreleased")
		for _, d := range b.done {
			b.boxes.Release(d.box, d.call)
		}
		b.done = b.done[:0]
	}
	return nil
}
