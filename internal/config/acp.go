package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// ACPAgent is an agent that the server's owner configured, which speaks the Agent Client Protocol.
type ACPAgent struct {
	// Command is the agent's program and arguments, with paths as in the box.
	Command []string `json:"command"`
	// Env is added to the agent's environment; {model} and {model_url} in its values are replaced.
	Env map[string]string `json:"env,omitempty"`
	// State is the directory below the box's home in which the agent stores its sessions.
	State string `json:"state,omitempty"`
	// Mode is the agent's own mode that its sessions are set to.
	Mode string `json:"mode,omitempty"`
}

// acpKey is the name of the setting for ACP agents. In a file its value is a YAML tree.
const acpKey = "acp"

// maxAgents is the most ACP agents that may be configured.
const maxAgents = 32

func acpKeys() []key {
	return []key{{
		name: acpKey, value: "tree, or JSON", quiet: true,
		doc: "Agents of your own that speak the Agent Client Protocol: {NAME: {command: [PROGRAM, ARG], env: {KEY: VALUE}, state: DIR, mode: MODE}}. A session names one as runtime acp:NAME. The command's path is the one in the box; {model} and {model_url} in env stand for the session's model and the address of the model broker; state is the directory below the home where the agent keeps its sessions. See docs/acp.md.",
		get: func(c *Config) string {
			if len(c.ACP) == 0 {
				return ""
			}
			raw, err := json.Marshal(c.ACP)
			if err != nil { // cannot happen: only strings
				return ""
			}
			return string(raw)
		},
		set: func(c *Config, s string) (err error) {
			c.ACP = nil
			if s != "" {
				c.ACP, err = parseAgents([]byte(s))
			}
			return err
		},
	}}
}

// defaultRuntime returns the key default_runtime, which may name a runtime or a configured ACP agent.
func defaultRuntime() key {
	return key{
		name: "default_runtime", value: "native, claude, acp:NAME", doc: "Runtime of sessions that name none.",
		get: func(c *Config) string { return c.DefaultRuntime },
		set: func(c *Config, s string) error {
			name, isAgent := strings.CutPrefix(s, "acp:")
			if s != "native" && s != "claude" && (!isAgent || !agentName.MatchString(name)) {
				return fmt.Errorf("%s is not one of native, claude, acp:NAME", holdfast.Quote(s))
			}
			c.DefaultRuntime = s
			return nil
		},
	}
}

var (
	agentName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// knownAgents are the names of the built-in ACP agents, which a configured agent may not take.
var knownAgents = []string{"claude-code-acp", "gemini", "opencode"}

func parseAgents(raw []byte) (map[string]ACPAgent, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var out map[string]ACPAgent
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("write {NAME: {command: [PROGRAM], env: {}, state: DIR, mode: MODE}}: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(out) > maxAgents {
		return nil, fmt.Errorf("%d ACP agents are given, at most %d are allowed", len(out), maxAgents)
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		a := out[name]
		switch {
		case !agentName.MatchString(name):
			return nil, fmt.Errorf("%s is not a name of an ACP agent: use small letters, digits and dashes", holdfast.Quote(name))
		case slices.Contains(knownAgents, name):
			return nil, fmt.Errorf("%s is the name of a built-in agent: choose another name", holdfast.Quote(name))
		case len(a.Command) == 0 || a.Command[0] == "":
			return nil, fmt.Errorf("the ACP agent %s has no command", holdfast.Quote(name))
		case a.State != strings.Trim(a.State, "/") || slices.Contains(strings.Split(a.State, "/"), ".."):
			return nil, fmt.Errorf("the state directory of the ACP agent %s is not below the home: write it as .local/share/x", holdfast.Quote(name))
		}
		for k := range a.Env {
			if !envName.MatchString(k) || strings.HasPrefix(k, "HOLDFAST_") {
				return nil, fmt.Errorf("%s in env of the ACP agent %s is not a variable name that may be set", holdfast.Quote(k), holdfast.Quote(name))
			}
		}
	}
	return out, nil
}
