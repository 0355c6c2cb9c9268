package config

import (
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/hook"
)

// hooksKey is the name of the setting for hooks. In a file its value is a YAML tree, in flags and
// the environment JSON.
const hooksKey = "hooks"

func hookKeys() []key {
	return []key{{
		name: hooksKey, value: "tree, or JSON",
		doc: "Commands and addresses that hear of events: {event: [{matcher, hooks: [{type: command or http, command or url, timeout (ms), fail_closed, where, secret_file}]}]}. Commands run on the host as the server's user, with where: box in the session's sandbox. See docs/hooks.md.",
		get: func(c *Config) string {
			if len(c.Hooks) == 0 {
				return ""
			}
			raw, err := json.Marshal(c.Hooks)
			if err != nil { // cannot happen: only strings and numbers
				return ""
			}
			return string(raw)
		},
		set: func(c *Config, s string) (err error) {
			c.Hooks = nil
			if s != "" {
				c.Hooks, err = hook.ParseConfig([]byte(s), hook.OnHost)
			}
			return err
		},
	}}
}

// treeJSON returns a YAML tree as JSON.
func treeJSON(m yaml.MapSlice) (string, error) {
	raw, err := json.Marshal(plain(m))
	return string(raw), err
}

func plain(v any) any {
	switch v := v.(type) {
	case yaml.MapSlice:
		out := map[string]any{}
		for _, item := range v {
			out[fmt.Sprint(item.Key)] = plain(item.Value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	}
	return v
}
