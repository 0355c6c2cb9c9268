package pending_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pending"
)

func draft(typ holdfast.EventType) journal.Draft { return journal.Draft{Type: typ} }

func types(events []journal.Draft) (out []holdfast.EventType) {
	for _, d := range events {
		out = append(out, d.Type)
	}
	return out
}

// TestFactsStandAroundTheChange: before its events, behind them, in their order.
func TestFactsStandAroundTheChange(t *testing.T) {
	var f pending.Facts
	recorded := 0
	f.Add(&pending.Fact{
		Before: []journal.Draft{draft("hook.ran")}, Recorded: func() { recorded++ },
		After: func(c *journal.Change) { c.Events = append(c.Events, draft("rules.changed")) },
	})
	f.Add(&pending.Fact{Before: []journal.Draft{draft("notice")}})
	f.Add(&pending.Fact{With: func(e []journal.Draft) bool { return slices.Contains(types(e), "tool.allowed") }, Recorded: func() { recorded += 10 }})
	c := journal.Change{Events: []journal.Draft{draft("tool.started")}}
	n, done := f.Carry(&c)
	if want := []holdfast.EventType{"hook.ran", "notice", "tool.started", "rules.changed"}; n != 2 || !slices.Equal(types(c.Events), want) {
		t.Errorf("%d %v", n, types(c.Events))
	}
	if f.Waiting() {
		t.Error("a carried fact waits")
	}
	done(errors.New("refused"))
	if !f.Waiting() || recorded != 0 {
		t.Errorf("waiting %v, recorded %d after a refusal", f.Waiting(), recorded)
	}
	c = journal.Change{Events: []journal.Draft{draft("tool.allowed")}}
	n, done = f.Carry(&c)
	done(nil)
	if n != 2 || recorded != 11 || f.Waiting() {
		t.Errorf("%d before, recorded %d, waiting %v", n, recorded, f.Waiting())
	}
}

// TestEveryFactIsWrittenOnce, whatever changes succeed or are refused, and dropped ones never.
func TestEveryFactIsWrittenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f pending.Facts
		written, recorded := map[int]int{}, map[int]int{}
		var all []*pending.Fact
		dropped := map[int]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				i := len(all)
				fact := &pending.Fact{Recorded: func() { recorded[i]++ }, After: func(c *journal.Change) { c.Undelivered = append(c.Undelivered, int64(i)) }}
				if rapid.Bool().Draw(t, "picky") {
					fact.With = func(e []journal.Draft) bool { return len(e) > 1 }
				}
				all = append(all, fact)
				f.Add(fact)
			},
			"carry": func(t *rapid.T) {
				c := journal.Change{Events: make([]journal.Draft, rapid.IntRange(0, 2).Draw(t, "events"))}
				_, done := f.Carry(&c)
				if rapid.Bool().Draw(t, "refused") {
					done(errors.New("refused"))
					return
				}
				for _, i := range c.Undelivered {
					written[int(i)]++
				}
				done(nil)
			},
			"drop": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				dropped[i] = written[i] == 0
				f.Drop(all[i])
			},
		})
		c := journal.Change{Events: make([]journal.Draft, 2)}
		_, done := f.Carry(&c)
		for _, i := range c.Undelivered {
			written[int(i)]++
		}
		done(nil)
		for i := range all {
			want := 1
			if dropped[i] {
				want = 0
			}
			if written[i] != want || recorded[i] != want {
				t.Fatalf("fact %d was written %d times and recorded %d times, want %d", i, written[i], recorded[i], want)
			}
		}
	})
}
