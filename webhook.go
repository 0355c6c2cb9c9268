package holdfast

import (
	"encoding/json"
	"time"
)

// Webhook is the body of the request that delivers an event of a session's log to a
// webhook. The request is signed as https://www.standardwebhooks.com describes.
type Webhook struct {
	// ID names the delivery; a repeated delivery has the same ID. The header webhook-id
	// has the same value.
	ID      string    `json:"id"`
	Type    EventType `json:"type"`
	Session SessionID `json:"session_id"`
	Turn    TurnID    `json:"turn_id,omitempty"`
	// Agent is the child agent that the event belongs to; empty for the session's own agent.
	Agent ChildID   `json:"agent,omitempty"`
	Seq   int64     `json:"seq"`
	Time  time.Time `json:"time"`
	// Data is the event's payload. Each field of over 64 KiB is replaced by {"sha256":…,"bytes":…}, and so is the
	// whole payload if it is over 256 KiB even then. The log has the original.
	Data json.RawMessage `json:"data"`
	// Answer says how to answer the question of an approval.asked event; nil for other
	// events.
	Answer *WebhookAnswer `json:"answer,omitempty"`
}

// WebhookAnswer says how to answer an approval: Allow and Deny are commands to paste, API
// is the HTTP request, whose body is an AnswerApproval.
type WebhookAnswer struct {
	Allow string `json:"allow"`
	Deny  string `json:"deny"`
	API   string `json:"api"`
}
