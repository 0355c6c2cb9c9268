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

// Webhook is a receiver of events.
type Webhook struct {
	// URL is absolute, http or https.
	URL string `json:"url"`
	// SecretFile holds the secret that signs, readable for its owner alone.
	SecretFile string               `json:"secret_file"`
	Events     []holdfast.EventType `json:"events"`
}

// maxWebhooks bounds what each event may cost.
const maxWebhooks = 16

func webhookKeys() []key {
	return []key{{
		name: "webhooks", list: true, quiet: true, value: "list of {url, secret_file, events}",
		doc: "Receivers that are told of events by signed POST requests; docs/webhooks.md says how. secret_file is an absolute path, mode 0600. On the command line and in the environment it is a JSON array.",
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

// parseWebhooks reads a JSON array, or as a file lists them an object each line.
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
		return nil, fmt.Errorf("%d receivers are given, %d are allowed", len(list), maxWebhooks)
	}
	var out []Webhook
	for i, raw := range list {
		h, err := parseWebhook(raw)
		if err != nil {
			return nil, fmt.Errorf("webhooks[%d]%w", i, err)
		}
		if slices.ContainsFunc(out, func(o Webhook) bool { return o.URL == h.URL }) {
			return nil, fmt.Errorf("webhooks[%d].url is that of another one: list all its events once", i)
		}
		out = append(out, h)
	}
	return out, nil
}

// parseWebhook reads one; the error names the key, and never a value of one that
// should not be there, which may be a secret.
func parseWebhook(raw json.RawMessage) (h Webhook, err error) {
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &keys) != nil {
		return h, fmt.Errorf(" is no map: write url, secret_file and events")
	}
	for name := range keys {
		if name != "url" && name != "secret_file" && name != "events" {
			return h, fmt.Errorf(".%s is no key: use url, secret_file and events", strings.Trim(holdfast.Quote(name), `"`))
		}
	}
	for name, to := range map[string]any{"url": &h.URL, "secret_file": &h.SecretFile, "events": &h.Events} {
		if v, ok := keys[name]; !ok || bytes.Equal(v, []byte("null")) {
			return h, fmt.Errorf(".%s is missing", name)
		} else if json.Unmarshal(v, to) != nil {
			return h, fmt.Errorf(".%s is not of its kind: url and secret_file are text, events is a list", name)
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
			return h, fmt.Errorf(".events[%d]: %s is no event of a webhook: use approval.asked, turn.completed or others of docs/webhooks.md", i, holdfast.Quote(string(e)))
		}
		if slices.Contains(h.Events[:i], e) {
			return h, fmt.Errorf(".events[%d]: %s is there twice", i, e)
		}
	}
	return h, nil
}
