package config

import (
	"bytes"
	"encoding/json"
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

// maxWebhooks is the largest number of receivers; it is limited because each adds work to every
// event.
const maxWebhooks = 16

func webhookKeys() []key {
	return []key{{
		name: "webhooks", list: true, quiet: true, value: "list of {url, secret_file, events}",
		doc: "Receivers of events, which get them as signed POST requests; docs/webhooks.md says how. secret_file is an absolute path, mode 0600. On the command line and in the environment it is a JSON array.",
		get: func(c *Config) string {
			if len(c.Webhooks) == 0 {
				return ""
			}
			text, err := json.Marshal(c.Webhooks)
			if err != nil {
				return ""
			}
			return string(text)
		},
		set: func(c *Config, s string) error {
			hooks, err := parseWebhooks(s)
			if err == nil {
				c.Webhooks = hooks
			}
			return err
		},
	}}
}

// parseWebhooks parses a JSON array of webhooks, or, as values from a file come, one JSON object on
// each line.
func parseWebhooks(s string) ([]Webhook, error) {
	var list []json.RawMessage
	if lines, ok := strings.CutSuffix(s, "\n"); ok {
		for line := range strings.SplitSeq(lines, "\n") {
			list = append(list, json.RawMessage(line))
		}
	} else if s != "" && json.Unmarshal([]byte(s), &list) != nil {
		return nil, fmt.Errorf(`write a JSON array as [{"url":"https://…","secret_file":"/…","events":["approval.asked"]}]`)
	}
	if len(list) > maxWebhooks {
		return nil, fmt.Errorf("%d webhooks are given, at most %d are allowed", len(list), maxWebhooks)
	}
	var out []Webhook
	for i, raw := range list {
		h, err := parseWebhook(raw)
		if err != nil {
			return nil, fmt.Errorf("webhooks[%d]%w", i, err)
		}
		if slices.ContainsFunc(out, func(o Webhook) bool { return o.URL == h.URL }) {
			return nil, fmt.Errorf("webhooks[%d].url is that of another webhook: list all its events in one", i)
		}
		out = append(out, h)
	}
	return out, nil
}

// parseWebhook parses one webhook. Its error continues "webhooks[N]". It names the wrong key, but
// never the value of an unknown key, which may be a secret.
func parseWebhook(raw json.RawMessage) (h Webhook, err error) {
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &keys) != nil {
		return h, fmt.Errorf(" is not a map: write url, secret_file and events")
	}
	for name := range keys {
		if name != "url" && name != "secret_file" && name != "events" {
			return h, fmt.Errorf(".%s is not a key of a webhook: use url, secret_file and events", strings.Trim(holdfast.Quote(name), `"`))
		}
	}
	for name, to := range map[string]any{"url": &h.URL, "secret_file": &h.SecretFile, "events": &h.Events} {
		if v, ok := keys[name]; !ok || bytes.Equal(v, []byte("null")) {
			return h, fmt.Errorf(".%s is missing: write url, secret_file and events", name)
		} else if json.Unmarshal(v, to) != nil {
			return h, fmt.Errorf(".%s has the wrong type: url and secret_file are text, events is a list", name)
		}
	}
	u, err := url.Parse(h.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return h, fmt.Errorf(".url: use an absolute address as https://hooks.example/holdfast, without user and fragment")
	}
	if err := absolutePath(h.SecretFile); err != nil || h.SecretFile == "" {
		return h, fmt.Errorf(".secret_file: use an absolute path without dot segments")
	}
	if len(h.Events) == 0 {
		return h, fmt.Errorf(".events is empty: use approval.asked, turn.completed or others of docs/webhooks.md")
	}
	for i, e := range h.Events {
		if !slices.Contains(holdfast.WebhookEvents(), e) {
			return h, fmt.Errorf(".events[%d]: %s is not an event that webhooks can receive: use approval.asked, turn.completed or others of docs/webhooks.md", i, holdfast.Quote(string(e)))
		}
		if slices.Contains(h.Events[:i], e) {
			return h, fmt.Errorf(".events[%d]: %s is listed twice", i, e)
		}
	}
	return h, nil
}
