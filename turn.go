package holdfast

import (
	"cmp"
	"time"
)

// TurnStatus is the state of a turn. The zero value is illegal.
type TurnStatus string

// The turn states; the last three are terminal.
const (
	TurnQueued      TurnStatus = "queued"
	TurnRunning     TurnStatus = "running"
	TurnCompleted   TurnStatus = "completed"
	TurnFailed      TurnStatus = "failed"
	TurnInterrupted TurnStatus = "interrupted"
)

// turnTransitions is the state machine of turns: the states that may follow each state
// (I-6). No state follows a terminal one, so a turn ends once (I-7).
var turnTransitions = map[TurnStatus][]TurnStatus{
	TurnQueued:      {TurnRunning, TurnInterrupted, TurnFailed},
	TurnRunning:     {TurnCompleted, TurnFailed, TurnInterrupted},
	TurnCompleted:   {},
	TurnFailed:      {},
	TurnInterrupted: {},
}

// CanBecome reports whether a turn in state s may change to state next.
func (s TurnStatus) CanBecome(next TurnStatus) bool {
	for _, t := range turnTransitions[s] {
		if t == next {
			return true
		}
	}
	return false
}

// Terminal reports whether no state follows s.
func (s TurnStatus) Terminal() bool {
	next, ok := turnTransitions[s]
	return ok && len(next) == 0
}

// SendMode says what a message does when a turn is running.
type SendMode string

// The send modes. With queue the message waits until the running turn has ended; with
// steer it joins the running turn at the next model call; interrupt ends that turn first.
const (
	SendQueue     SendMode = "queue"
	SendSteer     SendMode = "steer"
	SendInterrupt SendMode = "interrupt"
)

func (SendMode) parse(s string) (string, error) {
	return parseWord[SendMode]("mode", "a send mode", cmp.Or(s, string(SendQueue)))
}

// Turn is one user message and the agent's work on it, up to the result.
type Turn struct {
	ID      TurnID     `json:"id"`
	Session SessionID  `json:"session_id"`
	Status  TurnStatus `json:"status"`
	// Number counts the session's turns from 1.
	Number int64 `json:"number"`
	// MessageSeq is the sequence number of the turn's message.user event; while the turn
	// is queued, the sequence number of its turn.queued event.
	MessageSeq int64 `json:"message_seq"`
	// Text is the user's message.
	Text string `json:"text"`
	// QueuePosition is the turn's place in the queue: 1 for the next turn to start, 0 if
	// the turn is not queued.
	QueuePosition int `json:"queue_position,omitempty"`
	// Result is the assistant's final text if the turn completed.
	Result     string `json:"result,omitempty"`
	StopReason string `json:"stop_reason,omitempty"`
	Error      string `json:"error,omitempty"`
	Usage      *Usage `json:"usage,omitempty"`
	// Denials are the first hundred denied tool calls of a turn that has ended.
	Denials   []DeniedCall `json:"denials,omitempty"`
	CreatedAt time.Time    `json:"created_at"`
	StartedAt *time.Time   `json:"started_at,omitempty"`
	EndedAt   *time.Time   `json:"ended_at,omitempty"`
}
