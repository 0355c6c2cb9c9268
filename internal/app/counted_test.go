package app

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/obs"
)

type answering struct {
	journal.Store
	done journal.Committed
	err  error
}

func (a answering) Commit(context.Context, journal.Encoded) (journal.Committed, error) {
	return a.done, a.err
}

// TestOnlyWhatWasWrittenCounts: neither a refused change nor one that a repeated key
// did not make again.
func TestOnlyWhatWasWrittenCounts(t *testing.T) {
	m := newMetrics("test")
	c := journal.Encoded{Change: journal.Change{Events: []journal.Draft{{Type: holdfast.EventTurnFailed, Data: holdfast.TurnEnded{}}}}}
	for _, s := range []answering{{err: errors.New("full")}, {done: journal.Committed{Duplicate: "x"}}, {}} {
		if _, err := (counted{s, m}).Commit(t.Context(), c); !errors.Is(err, s.err) {
			t.Errorf("%v instead of %v", err, s.err)
		}
	}
	w := httptest.NewRecorder()
	m.Handler(func(context.Context) obs.State { return obs.State{} }).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, line := range []string{"holdfast_journal_commits_total 1\n", "holdfast_journal_events_total 1\n", "holdfast_turns_ended_total{status=\"failed\"} 1\n"} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("no line %s", line)
		}
	}
}
