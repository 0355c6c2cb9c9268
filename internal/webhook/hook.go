package webhook

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-run/holdfast"
)

// Hook is a receiver of events.
type Hook struct {
	// URL is the receiver's absolute http or https address.
	URL string
	// Secrets sign each delivery, with one signature for each secret: the newest first, then the
	// former one while receivers may still use it.
	Secrets [][]byte
	Events  []holdfast.EventType
}

// Name returns the receiver's name in the outbox: a hash of its URL, which stays the same after a
// restart and does not reveal the URL, which may be a secret.
func (h Hook) Name() string {
	sum := sha256.Sum256([]byte(h.URL))
	return hex.EncodeToString(sum[:8])
}

// Delivery is an event on its way to a receiver.
type Delivery struct {
	// Row is the delivery's number in the outbox; it grows in the order of the events.
	Row  int64
	Hook string
	holdfast.Event
	// Attempts is the number of failed attempts so far.
	Attempts int
	// Created is when the event was recorded.
	Created time.Time
}

// ID returns the id of the delivery that the receiver gets. It is the same for each attempt.
func (d Delivery) ID() string {
	sum := sha256.Sum256([]byte(d.Hook + "\n" + string(d.Session) + "\n" + strconv.FormatInt(d.Seq, 10)))
	return hex.EncodeToString(sum[:16])
}

// body returns the JSON that is posted to the receiver. For a question about a tool call it includes
// how to answer.
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

// The bounds of a secret, in bytes, by the specification of Standard Webhooks.
const (
	minSecret = 24
	maxSecret = 64
)

// ParseSecret returns the bytes of a secret as Standard Webhooks writes it: whsec_, then 24 to 64
// bytes in base64. The error does not contain the secret.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(secret) < minSecret || len(secret) > maxSecret {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "webhook", "the secret of the webhook is not whsec_ followed by %d to %d bytes in base64", minSecret, maxSecret)
	}
	return secret, nil
}

// sign sets the headers of Standard Webhooks: the delivery's id, the time of the attempt, and one
// signature for each secret.
func sign(header http.Header, secrets [][]byte, id string, at time.Time, body []byte) error {
	var signatures []string
	for _, secret := range secrets {
		w, err := standardwebhooks.NewWebhookRaw(secret)
		if err != nil {
			return err
		}
		signature, err := w.Sign(id, at, body)
		if err != nil {
			return err
		}
		signatures = append(signatures, signature)
	}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// Filter returns a function that returns the names of the receivers of an event type.
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
