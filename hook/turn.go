package hook

import "context"

// Turn runs the hooks of one turn. In a turn with hooks, an answer of the model must be recorded before the
// tool uses in it are decided, and before Fire is called for them. Safe for concurrent use.
type Turn interface {
	// Fire runs the hooks for an event. It fills in session, turn, mode and directory. What the
	// hooks returned is recorded with the next events of the turn, before them.
	Fire(ctx context.Context, in Input) Result
	// Said returns the texts of hooks for the model since its last call, including those of hooks
	// that ran while a tool use was decided, in the form that Texts gives to the events in the
	// log.
	Said() []string
	// Waits reports whether any hook would run for an event. If none would, the caller does not
	// collect the event's data, such as the files that a command changed.
	Waits(in Input) bool
}
