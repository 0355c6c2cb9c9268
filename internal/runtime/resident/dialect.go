package resident

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Dialect is the protocol of one kind of agent: it turns the agent's lines into events of the
// turn, and the turn's messages and decisions into lines for the agent. It adds events to the
// Recorder and lines to the Outbox; the Run commits the events and then sends the lines. All
// methods are called on one goroutine, that of Run.Drive or Run.Warm. An error of a method fails the turn,
// unless it is made with Leave.
type Dialect interface {
	// Stale returns why the running process in the state cannot be used any more, so that the Run
	// ends it; empty if it can. Lines that Stale adds to the Outbox are sent before the Run knows
	// whether the process still runs.
	Stale(ctx context.Context) (why string, err error)
	// Start decides how to start an agent: by the best resume tier that the session, the box and
	// the log allow (I-31). It changes nothing in the box. Events that it adds to the Recorder are
	// committed with the process's call id before the process starts.
	Start(ctx context.Context) (Start, error)
	// Resume continues with a running process that the Run has attached to. lost are lines that the
	// process never received; Resume adds those again that are still needed.
	Resume(ctx context.Context, lost []Sent) error
	// Hear handles one line of the agent. Its result says how soon the events of the line must be committed.
	Hear(ctx context.Context, l Line) (Heard, error)
	// Advance is called after each line, message or decision. It adds the next lines for the agent,
	// and reports whether the turn is over; then the Recorder may still hold events, which belong
	// to the turn's result. It is also called without an attachment (Link is nil), when the Run
	// begins to wait: then it only starts the decisions on which the agent waits.
	Advance(ctx context.Context) (over bool, err error)
	// Halt tells the agent to stop. It reports false if there is nothing to stop.
	Halt(ctx context.Context) (bool, error)
	// Work returns what the agent does.
	Work() Work
	// Cut ends a message to which the agent has not answered completely. It records the part of the answer that the
	// agent has produced, or a notice that this part is void. The Run closes open tool uses afterwards.
	Cut(why Cause)
	// Gone clears the state of a process that has ended; how describes its end, work is what it did
	// before. byItself is true if it ended or fell silent while the Run was attached. Gone reports
	// whether another start in this turn repeats nothing: the message had no effect yet, the agent
	// refused the state that it was started with, or the next process gets a reminder to continue
	// instead of the message.
	Gone(how string, work Work, byItself bool) (again bool)
	// Snapshot returns the agent's current state, which is committed with the next events. Its
	// Taken is the offset in the agent's output up to which everything is recorded.
	Snapshot() holdfast.AgentState
}

// Work is what an agent does between two of its lines.
type Work int

// What an agent does. Idle: it has answered all messages. Answering: it has received a message that
// it has not answered. Waiting: as Answering, but it does nothing until a decision on one of its
// tool uses is made.
const (
	Idle Work = iota
	Answering
	Waiting
)

// Heard is the result of Hear: when the Run has to commit.
type Heard int

// The results of Hear: they say when the Run commits the events that wait, which are called due.
const (
	// Commit: the waiting events are committed as soon as no further line of the agent waits.
	Commit Heard = iota
	// Later: the waiting events may wait for a further event, but only a short time.
	Later
	// Hold: the waiting events wait until the agent's current answer ends. After a crash, the lines of
	// that answer are read again.
	Hold
	// Over: the agent has answered; the Run calls Advance before the next commit.
	Over
)

// Cause is the reason why an agent's answer is cut off.
type Cause string

// The causes: the turn was cancelled, the turn failed, or the agent's process ended.
const (
	Interrupted Cause = "interrupted"
	Failed      Cause = "failed"
	Lost        Cause = "lost"
)

// Start describes how to start an agent.
type Start struct {
	// State is the state of the agent to start. The Run adds the fields that identify the process.
	State holdfast.AgentState
	// Hello is the first line for the agent. It is stored, so that it can be sent again. If HelloRef is set,
	// it is generated again instead of stored.
	Hello    []byte
	HelloRef string
	// Prepare prepares the box and returns the command line. The Run calls it once the state is
	// committed.
	Prepare func(ctx context.Context, call holdfast.CallID) (wire.ExecRequest, error)
}

// leaving is an error that ends a run without changing its agent and its open tool uses.
type leaving struct{ why error }

func (l *leaving) Error() string { return l.why.Error() }

// Leave returns an error that ends the run and leaves the agent and the open tool uses as they
// are: the next run continues with them. Drive then returns why.
func Leave(why error) error { return &leaving{why} }
