package resident

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

const (
	// mostDue is the most events that wait for a commit; mostWeight is the most bytes of the lines
	// that they came from.
	mostDue, mostWeight = 256, 4 << 20
	// lateTime is the longest time for a commit of a turn that was cancelled.
	lateTime = 15 * time.Second
)

// Keeper commits events together with agent states; runtime.Host implements it.
type Keeper interface {
	Keep(ctx context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error)
}

// Recorder collects the events of one turn, and commits them in one transaction with
// the state of the agent. Make one with NewRecorder.
type Recorder struct {
	// State is the agent's state, including changes since the last commit. It is not stored if its Generation
	// is 0.
	State holdfast.AgentState
	// Seq is the number of the newest event that the run knows.
	Seq int64

	keeper Keeper
	turn   holdfast.TurnID
	due    []journal.Draft
	others []holdfast.AgentState
	dirty  bool
	weight int
	err    error
	// odd holds the texts of the notices that Odd has added.
	odd map[string]bool
}

// NewRecorder makes a Recorder for a turn.
func NewRecorder(k Keeper, turn holdfast.TurnID) *Recorder { return &Recorder{keeper: k, turn: turn} }

// Add adds an event to the next commit.
func (r *Recorder) Add(typ holdfast.EventType, data any) {
	r.due = append(r.due, journal.Draft{Type: typ, Turn: r.turn, Data: data})
}

// Notice adds a notice to the next commit.
func (r *Recorder) Notice(code, text string) {
	r.Add(holdfast.EventNotice, holdfast.Notice{Code: code, Text: text})
}

// mostOdd is the most notices that Odd adds in a run.
const mostOdd = 10

// Odd adds a notice about an unexpected message of the agent: each text once, and at most
// mostOdd in a run.
func (r *Recorder) Odd(code, level, text string) {
	if r.odd[text] || len(r.odd) == mostOdd {
		return
	}
	if r.odd == nil {
		r.odd = map[string]bool{}
	}
	if r.odd[text] = true; len(r.odd) == mostOdd {
		text += "; further ones are left out"
	}
	r.Add(holdfast.EventNotice, holdfast.Notice{Code: code, Level: level, Text: text})
}

// Touch marks the state as changed, so that the next commit stores it.
func (r *Recorder) Touch() { r.dirty = true }

// Other adds the state of another agent to the next commit.
func (r *Recorder) Other(s holdfast.AgentState) { r.others, r.dirty = append(r.others, s), true }

// Weigh adds the size of a line to the weight of the next commit, if more than n events are due: the line has
// added some then.
func (r *Recorder) Weigh(n, size int) {
	if len(r.due) > n {
		r.weight += size
	}
}

// Due returns the events that wait for the next commit.
func (r *Recorder) Due() []journal.Draft { return r.due }

// Full reports whether so much is due that it must be committed now.
func (r *Recorder) Full() bool { return len(r.due) >= mostDue || r.weight > mostWeight }

// Pending reports whether there is anything to commit.
func (r *Recorder) Pending() bool { return len(r.due) > 0 || r.dirty }

// Commit records what is due together with the state, which becomes State. After an error, every
// later commit returns it again, unless the error came from the end of the context.
func (r *Recorder) Commit(ctx context.Context, state holdfast.AgentState) error {
	if r.err != nil {
		return r.err
	}
	ctx, cancel := late(ctx)
	defer cancel()
	states := r.others
	if state.Generation > 0 {
		states = append(states, state)
	}
	events, err := r.keeper.Keep(ctx, states, r.due...)
	if err != nil {
		if ctx.Err() == nil {
			r.err = err
		}
		return err
	}
	if n := len(events); n > 0 {
		r.Seq = events[n-1].Seq
	}
	r.State, r.due, r.others, r.dirty, r.weight = state, nil, nil, false, 0
	return nil
}
