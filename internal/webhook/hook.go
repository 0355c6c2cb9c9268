package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Hook is a receiver.
type Hook struct {
	// URL is absolute, http or https.
	URL string
	// Secrets sign each delivery, one signature each: the newest first, the one
	// before it while receivers still know that.
	Secrets [][]byte
	Events  []holdfast.EventType
}

// Name is how the outbox names the receiver: it stays over restarts, and tells
// nothing of a URL that may be a secret.
func (h Hook) Name() string {
	sum := sha256.Sum256([]byte(h.URL))
	return hex.EncodeToString(sum[:8])
}

// Delivery is an event on its way to a receiver.
type Delivery struct {
	// Row is the outbox's own number, rising in the order of the events.
	Row  int64
	Hook string
	holdfast.Event
	// Attempts failed so far.
	Attempts int
	// Created is when the event was recorded.
	Created time.Time
}

// ID names the delivery for the receiver, the same at each attempt.
func (d Delivery) ID() string {
	sum := sha256.Sum256([]byte(d.Hook + "\n" + string(d.Session) + "\n" + strconv.FormatInt(d.Seq, 10)))
	return hex.EncodeToString(sum[:16])
}

// body is what the receiver gets.
func (d Delivery) body() ([]byte, error) {
	w := holdfast.Webhook{ID: d.ID(), Type: d.Type, Session: d.Session, Turn: d.Turn, Agent: d.Agent, Seq: d.Seq, Time: d.Time, Data: d.Data}
	if d.Type == holdfast.EventApprovalAsked {
		var a struct {
			ID holdfast.ApprovalID `json:"id"`
		}
		if json.Unmarshal(d.Data, &a) == nil && a.ID != "" {
			id := string(a.ID)
			w.Answer = &holdfast.WebhookAnswer{
				Allow: "holdfast approvals allow " + id, Deny: "holdfast approvals deny " + id, API: "POST /v1/approvals/" + id,
			}
		}
	}
	return json.Marshal(w)
}

// Sign is the signature of a body at a time: t=<unix>, and v1=<hex HMAC-SHA256 of
// t.body> for each secret.
func Sign(secrets [][]byte, at time.Time, body []byte) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	out := "t=" + stamp
	for _, s := range secrets {
		mac := hmac.New(sha256.New, s)
		mac.Write([]byte(stamp + "."))
		mac.Write(body)
		out += ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	return out
}

// Filter says which receivers are told of an event, by name.
func Filter(hooks []Hook) func(holdfast.EventType) []string {
	names := map[holdfast.EventType][]string{}
	for _, h := range hooks {
		for _, t := range h.Events {
			if !slices.Contains(names[t], h.Name()) {
				names[t] = append(names[t], h.Name())
			}
		}
	}
	return func(t holdfast.EventType) []string { return names[t] }
}
