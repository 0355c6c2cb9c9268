package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Config is a configuration of hooks: for each event, groups of hooks that share a matcher. Its
// JSON is {event: [{matcher, hooks: [{type, command, …}]}]} with timeouts in milliseconds.
// Unknown keys and events are refused, and named in the error.
type Config map[Event][]Group

// Group is a list of hooks that share a matcher.
type Group struct {
	Matcher string  `json:"matcher,omitempty"`
	Hooks   []Entry `json:"hooks"`
}

// Entry is one hook. Type is command or http.
type Entry struct {
	Type    string `json:"type"`
	Command string `json:"command,omitempty"`
	URL     string `json:"url,omitempty"`
	// Timeout is in milliseconds; 0 means DefaultTimeout.
	Timeout    float64 `json:"timeout,omitempty"`
	FailClosed bool    `json:"fail_closed,omitempty"`
	// Where is host or box; empty means the default place of the whole configuration.
	Where Where `json:"where,omitempty"`
	// SecretFile is the path of a file with the bearer token for the URL. The code that loads the
	// configuration reads the file into Secret.
	SecretFile string `json:"secret_file,omitempty"`
	Secret     string `json:"-"`
}

// ParseConfig parses a Config in JSON and validates it as Load does with the same default place.
func ParseConfig(raw []byte, at Where) (Config, error) {
	var c Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, invalid(err)
	}
	return c, new(Registry).Load(c, at)
}

// ParseSettings parses the hooks in a settings file of Claude Code, which an agent's folder may
// contain. In such a file the names of events begin with a capital letter, and timeouts are in
// seconds. The hooks are validated as hooks that run in the box.
func ParseSettings(raw []byte) (Config, error) {
	var byName map[string]json.RawMessage
	if err := json.Unmarshal(raw, &byName); err != nil {
		return nil, invalid(err)
	}
	c := Config{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		event := name
		if name != "" {
			event = strings.ToLower(name[:1]) + name[1:]
		}
		if _, twice := c[Event(event)]; twice {
			return nil, holdfast.Errorf(holdfast.KindInvalid, op, "hooks.%s: the event occurs twice in the settings", name)
		}
		if err := c.group(name, event, byName[name]); err != nil {
			return nil, err
		}
		for _, g := range c[Event(event)] {
			for i := range g.Hooks {
				g.Hooks[i].Timeout *= 1000
			}
		}
	}
	return c, new(Registry).Load(c, InBox)
}

// UnmarshalJSON implements json.Unmarshaler. It checks the structure, not the values.
func (c *Config) UnmarshalJSON(raw []byte) error {
	var byName map[string]json.RawMessage
	if err := json.Unmarshal(raw, &byName); err != nil {
		return err
	}
	*c = Config{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if err := c.group(name, name, byName[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) group(name, event string, raw json.RawMessage) error {
	e, err := ParseEvent(event)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, op, "hooks.%s: %s is not a hook event", name, holdfast.Quote(name)).
			WithHint("%s", holdfast.HintOf(err))
	}
	var groups []Group
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&groups); err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, op, "hooks.%s: %s", name, strings.TrimPrefix(err.Error(), "json: ")).
			WithHint(`write the hooks of an event as a list of {"matcher": …, "hooks": [{"type": "command", "command": …}]}`)
	}
	c[e] = append(c[e], groups...)
	return nil
}

func invalid(err error) error {
	if holdfast.IsKind(err, holdfast.KindInvalid) {
		return err
	}
	return holdfast.Errorf(holdfast.KindInvalid, op, "hooks: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// Load registers all hooks of a configuration after the existing ones, or none if one is invalid.
// at is where the commands run whose entry names no place. If at is InBox, which is for the hooks
// of an agent, hooks that would not run in the box are refused.
func (r *Registry) Load(c Config, at Where) error {
	var hooks []*Hook
	for _, e := range slices.Sorted(maps.Keys(c)) {
		for i, g := range c[e] {
			for j, entry := range g.Hooks {
				h, err := entry.hook(e, g.Matcher, at)
				if err != nil {
					return holdfast.Errorf(holdfast.KindInvalid, op, "hooks.%s[%d].hooks[%d].%s", e, i, j, strings.TrimPrefix(err.Error(), op+": ")).
						WithHint("%s", holdfast.HintOf(err))
				}
				hooks = append(hooks, h)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range hooks {
		r.add(h)
	}
	return nil
}

func (e Entry) hook(event Event, matcher string, at Where) (*Hook, error) {
	d := Definition{Event: event, Matcher: matcher, FailClosed: e.FailClosed, Secret: e.Secret}
	if ms := e.Timeout; ms != 0 {
		if math.IsNaN(ms) || ms < 1 || ms > float64(MaxTimeout/time.Millisecond) {
			return nil, bad("timeout", "%s milliseconds are not within 1 and %d", fmt.Sprint(ms), MaxTimeout/time.Millisecond)
		}
		d.Timeout = time.Duration(ms * float64(time.Millisecond))
	}
	switch e.Type {
	case "command":
		if e.URL != "" || e.SecretFile != "" || e.Command == "" {
			return nil, bad("command", "a hook of type command has a command, and neither url nor secret_file")
		}
		d.Command, d.Where = e.Command, at
		if e.Where != "" {
			d.Where = e.Where
		}
		if at == InBox && d.Where != InBox {
			return nil, bad("where", "%s: hooks of an agent run in its sandbox only", holdfast.Quote(string(e.Where)))
		}
	case "http":
		if e.Command != "" || e.Where != "" || e.URL == "" {
			return nil, bad("url", "a hook of type http has a url, and neither command nor where")
		}
		if at == InBox {
			return nil, bad("type", "%s: hooks of an agent run in its sandbox only", holdfast.Quote(e.Type)).
				WithHint("the server's owner can set such hooks: key hooks in the server's configuration")
		}
		d.URL = e.URL
	default:
		return nil, bad("type", "%s is neither command nor http", holdfast.Quote(e.Type))
	}
	return newHook(d)
}
