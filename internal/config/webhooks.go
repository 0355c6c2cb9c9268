package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Webhook is the configuration of one receiver of events.
type Webhook struct {
	// URL is the receiver's absolute http or https address.
	URL string `json:"url"`
	// SecretFile is the path of the file with the signing secret, which only its owner may read.
	SecretFile string               `json:"secret_file"`
	Events     []holdfast.EventType `json:"events"`
}

// Webhooks are the receivers of events by HTTP.
type Webhooks []Webhook

// maxWebhooks is the largest number of receivers; it is limited because each adds work to every
// event.
const maxWebhooks = 16

// UnmarshalJSON sets the receivers, and checks each.
func (hooks *Webhooks) UnmarshalJSON(raw []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return errors.New("write a list of webhooks, each as {url, secret_file, events}")
	}
	if len(list) > maxWebhooks {
		return fmt.Errorf("%d webhooks are given, at most %d are allowed", len(list), maxWebhooks)
	}
	var out Webhooks
	for i, raw := range list {
		h, err := parseWebhook(raw)
		if err != nil {
			return fmt.Errorf("webhooks[%d]%w", i, err)
		}
		if slices.ContainsFunc(out, func(o Webhook) bool { return o.URL == h.URL }) {
			return fmt.Errorf("webhooks[%d].url is also the url of another webhook: list all events for the url in one webhook", i)
		}
		out = append(out, h)
	}
	*hooks = out
	return nil
}

// parseWebhook parses one webhook. Its error continues "webhooks[N]". It names the wrong key, but
// never the value of an unknown key, which may be a secret.
func parseWebhook(raw json.RawMessage) (h Webhook, err error) {
	var keys map[string]any
	if json.Unmarshal(raw, &keys) != nil || keys == nil {
		return h, errors.New(" is not a map: write a webhook as a map of url, secret_file and events")
	}
	for name := range keys {
		if name != "url" && name != "secret_file" && name != "events" {
			return h, fmt.Errorf(".%s is not a key that a webhook in the configuration can have: use url, secret_file and events", strings.Trim(holdfast.Quote(name), `"`))
		}
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(json.Unmarshal(raw, &h), &wrong) {
		return h, fmt.Errorf(".%s has the wrong type for a webhook: url and secret_file are text, events is a list", wrong.Field)
	}
	u, err := url.Parse(h.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return h, fmt.Errorf(".url is not valid for a webhook: use an absolute address as https://hooks.example/holdfast, without user and fragment")
	}
	if absolutePath(h.SecretFile) != nil {
		return h, fmt.Errorf(".secret_file is not valid for a webhook: use an absolute path without . and .. segments, // and a slash at the end")
	}
	if len(h.Events) == 0 {
		return h, fmt.Errorf(".events is empty: use approval.asked, turn.completed or others of docs/webhooks.md")
	}
	for i, e := range h.Events {
		if !slices.Contains(WebhookEvents(), e) {
			return h, fmt.Errorf(".events[%d]: %s is not an event that webhooks can receive: use approval.asked, turn.completed or others of docs/webhooks.md", i, holdfast.Quote(string(e)))
		}
		if slices.Contains(h.Events[:i], e) {
			return h, fmt.Errorf(".events[%d]: the event %s is listed twice", i, e)
		}
	}
	return h, nil
}

// WebhookEvents lists the types of events that can be delivered to webhooks.
func WebhookEvents() []holdfast.EventType {
	return []holdfast.EventType{
		holdfast.EventApprovalAsked, holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired,
		holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted,
		holdfast.EventSessionCreated, holdfast.EventSessionUpdated, holdfast.EventSessionPaused,
		holdfast.EventSessionResumed, holdfast.EventSessionEnded, holdfast.EventSessionError,
		holdfast.EventSessionRewound, holdfast.EventSessionForked, holdfast.EventSessionTrashed,
		holdfast.EventSessionUntrashed, holdfast.EventSnapshotFailed,
		holdfast.EventToolDenied, holdfast.EventRulesChanged,
		holdfast.EventBoxOOM, holdfast.EventBoxPids, holdfast.EventBoxLost,
	}
}
