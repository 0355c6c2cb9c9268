package holdfast

import (
	"encoding/json"
	"time"
)

// WebhookEvents lists the events that a webhook may be told of.
func WebhookEvents() []EventType {
	return []EventType{
		EventApprovalAsked, EventApprovalAnswered, EventApprovalExpired,
		EventTurnCompleted, EventTurnFailed, EventTurnInterrupted,
		EventSessionCreated, EventSessionUpdated, EventSessionPaused, EventSessionResumed, EventSessionEnded, EventSessionError,
		EventToolDenied, EventRulesChanged, EventBoxOOM, EventBoxPids, EventBoxLost,
	}
}

// Webhook is the body of a request to a webhook: an event of a session's log.
type Webhook struct {
	// ID names the delivery; a repetition has the same. It is the header
	// Holdfast-Delivery too.
	ID      string    `json:"id"`
	Type    EventType `json:"type"`
	Session SessionID `json:"session_id"`
	Turn    TurnID    `json:"turn_id,omitempty"`
	// Agent is the child agent that the event belongs to; empty for the session's own agent.
	Agent ChildID   `json:"agent,omitempty"`
	Seq   int64     `json:"seq"`
	Time  time.Time `json:"time"`
	// Data is the event's payload; of one over 64 KiB, fields that are larger are
	// {"sha256":…,"bytes":…} and stand in the log.
	Data json.RawMessage `json:"data"`
	// Answer says how to answer, for approval.asked.
	Answer *WebhookAnswer `json:"answer,omitempty"`
}

// WebhookAnswer is how a question is answered: commands to paste, and the request
// whose body is an AnswerApproval.
type WebhookAnswer struct {
	Allow string `json:"allow"`
	Deny  string `json:"deny"`
	API   string `json:"api"`
}

// The headers of a request to a webhook.
const (
	WebhookEventHeader     = "Holdfast-Event"
	WebhookDeliveryHeader  = "Holdfast-Delivery"
	WebhookSignatureHeader = "Holdfast-Signature"
)
