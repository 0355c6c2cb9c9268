package holdfast

import (
	"slices"
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

// turnTransitions is the state machine (I-6); a turn ends once (I-7).
var turnTransitions = map[TurnStatus][]TurnStatus{
	TurnQueued:      {TurnRunning, TurnInterrupted, TurnFailed},
	TurnRunning:     {TurnCompleted, TurnFailed, TurnInterrupted},
	TurnCompleted:   {},
	TurnFailed:      {},
	TurnInterrupted: {},
}

// CanBecome reports whether the state machine has the step from s to next.
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

// The three verbs. Queue waits for its turn; steer joins the running turn at
// its next model call; interrupt ends the running turn first.
const (
	SendQueue     SendMode = "queue"
	SendSteer     SendMode = "steer"
	SendInterrupt SendMode = "interrupt"
)

// ParseSendMode accepts a verb; the empty string is queue.
func ParseSendMode(s string) (SendMode, error) {
	if s == "" {
		return SendQueue, nil
	}
	if slices.Contains(Words[SendMode](), SendMode(s)) {
		return SendMode(s), nil
	}
	return "", Errorf(KindInvalid, "mode", "%s is not a send mode", Quote(s)).
		WithHint("use queue, steer or interrupt")
}

// Turn is one user message and all that follows until its result.
type Turn struct {
	ID      TurnID     `json:"id"`
	Session SessionID  `json:"session_id"`
	Status  TurnStatus `json:"status"`
	// Number counts the session's turns from 1.
	Number int64 `json:"number"`
	// MessageSeq is the sequence number of the turn's message.user event; while
	// the turn waits, that of its turn.queued event.
	MessageSeq int64 `json:"message_seq"`
	// Text is the user's message.
	Text string `json:"text"`
	// QueuePosition is 1 for the next turn to start; 0 when not queued.
	QueuePosition int `json:"queue_position,omitempty"`
	// Result is the assistant's final text of a completed turn.
	Result     string `json:"result,omitempty"`
	StopReason string `json:"stop_reason,omitempty"`
	Error      string `json:"error,omitempty"`
	Usage      *Usage `json:"usage,omitempty"`
	// Denials are the tool calls of an ended turn that were not allowed.
	Denials   []DeniedCall `json:"denials,omitempty"`
	CreatedAt time.Time    `json:"created_at"`
	StartedAt *time.Time   `json:"started_at,omitempty"`
	EndedAt   *time.Time   `json:"ended_at,omitempty"`
}
