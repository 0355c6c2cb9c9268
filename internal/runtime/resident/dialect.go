package resident

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Dialect is the language of one kind of agent: it turns the agent's lines into facts
// of the turn, and facts into lines for the agent. It adds events to the Recorder and
// lines to the Outbox; the Run commits the first and then sends the second. All methods
// are called on one goroutine, that of Run.Drive. An error of a method fails the turn,
// unless it is made with Leave.
type Dialect interface {
	// Stale says why the running process that the state names cannot be gone on with, and
	// is ended; empty if it can. Lines that it adds to the Outbox are sent before it is
	// known whether the process is still there.
	Stale(ctx context.Context) (why string, err error)
	// Start decides how an agent is started: by the best tier that the session, the box
	// and the log allow (I-31). It changes nothing in the box. Events that it adds
	// to the Recorder are committed with the process's call before the process starts.
	Start(ctx context.Context) (Start, error)
	// Resume goes on with a running process that the Run has attached to. Lost are lines
	// that the process never got; Resume adds those that are still wanted again.
	Resume(ctx context.Context, lost []Sent) error
	// Hear handles one line of the agent.
	Hear(ctx context.Context, l Line) (Heard, error)
	// Advance is called when something has happened: a line, a message, a decision. It
	// says what there is to say to the agent. It reports whether the turn is over; then
	// the Run's Recorder may still hold events, which belong to the turn's result.
	Advance(ctx context.Context) (over bool, err error)
	// Halt tells the agent to stop. It reports false if there is nothing to stop.
	Halt(ctx context.Context) (bool, error)
	// AtWork reports whether the agent was given something that it has not answered.
	AtWork() bool
	// Cut ends what the agent was given without its answer: it records what the agent
	// said of it, or a notice that this is void. Open tool uses are answered after it.
	Cut(why Cause)
	// Gone forgets what held for a process that is not there any more. How says how it
	// ended; byItself, that it ended or fell silent while it was listened to. Gone reports
	// whether another start in this turn repeats nothing: nothing came of what the agent
	// was given, or it refused the state that it was started with.
	Gone(how string, byItself bool) (again bool)
	// Snapshot returns the agent's state as it stands: what is committed with the next
	// events. Its Taken is the offset up to which the agent's output is accounted for.
	Snapshot() holdfast.AgentState
}

// Heard says what a line asks of the Run.
type Heard int

// The answers to a line. The zero value commits what is due.
const (
	// Commit: what is due is committed when no further line waits.
	Commit Heard = iota
	// Later: what is due may wait for another event, but not for long.
	Later
	// Hold: what is due waits for the end of an answer, whose lines are read again after
	// a crash.
	Hold
	// Over: the agent has answered. Nothing is committed before Advance.
	Over
)

// Cause is why a turn ends without the agent's answer.
type Cause string

// The causes.
const (
	Interrupted Cause = "interrupted"
	Failed      Cause = "failed"
	Lost        Cause = "lost"
)

// Start says how an agent is started.
type Start struct {
	// State is the agent that will run. The Run fills in the process.
	State holdfast.AgentState
	// Hello is the first line for the agent; with a HelloRef it is made again where it
	// has to be sent again.
	Hello    []byte
	HelloRef string
	// Prepare makes the box ready and returns the command line. It is called when the
	// state is committed, and again by the next server if this one dies.
	Prepare func(ctx context.Context, call holdfast.CallID) (wire.ExecRequest, error)
}

// leaving is the error of a run that is left as it stands.
type leaving struct{ why error }

func (l *leaving) Error() string { return l.why.Error() }

// Leave makes an error that leaves the run as it stands, agent and open tool uses
// included: the next run goes on with it. Drive returns why.
func Leave(why error) error { return &leaving{why} }
