package loop

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// ledger writes down what a batch does to its recorder and its boxes.
type ledger struct {
	Boxes
	did  []string
	fail error
}

func (l *ledger) Record(_ context.Context, entries ...Entry) error {
	for _, e := range entries {
		l.did = append(l.did, string(e.Type))
	}
	return l.fail
}

func (l *ledger) Delta(holdfast.EventType, any) {}

func (l *ledger) Release(_ *sandbox.Box, calls ...holdfast.CallID) {
	for _, c := range calls {
		l.did = append(l.did, "release "+string(c))
	}
}

// TestABatchIsRecordedOnceThenReleased: entries are recorded in order and once, a call is
// released only after the record of its outcome, and not at all when the record fails.
func TestABatchIsRecordedOnceThenReleased(t *testing.T) {
	l := &ledger{}
	b := batch{ctx: t.Context(), rec: l, boxes: l, at: func(point string) { l.did = append(l.did, point) }}
	b.add(holdfast.EventToolFinished, nil)
	b.add(holdfast.EventNotice, nil)
	b.done = append(b.done, release{call: "c1"})
	for range 2 {
		if err := b.flush(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"tool.finished", "notice", "committed-unreleased", "release c1"}
	if !slices.Equal(l.did, want) {
		t.Errorf("%q, not %q", l.did, want)
	}
	l.did, l.fail = nil, errors.New("full")
	b.add(holdfast.EventToolFinished, nil)
	b.done = append(b.done, release{call: "c2"})
	if err := b.flush(); !errors.Is(err, l.fail) || len(l.did) != 1 {
		t.Errorf("%v after %q", err, l.did)
	}
}
