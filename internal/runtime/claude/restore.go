package claude

import (
	"context"

	"github.com/holdfast-run/holdfast/internal/runtime"
)

// transcriptFacts are what is known of the transcript that an agent left.
type transcriptFacts struct{}

// inspect looks at the transcript of the current agent.
func (r *Runtime) inspect(context.Context, runtime.Host, facts) (transcriptFacts, error) {
	return transcriptFacts{}, nil
}

// planRestore plans the best tier for an agent that was there before.
func planRestore(facts, string) (plan, bool) { return plan{}, false }

// planInjected plans a new agent that is told the history as text.
func planInjected(facts, string, string) (plan, bool) { return plan{}, false }

// restore does what the plan needs done in the box: files put aside, a transcript
// written.
func (r *Runtime) restore(context.Context, runtime.Host, facts, *plan) error { return nil }
