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
	// Command is the agent's program and arguments, with paths as in the box, or as on the host in trusted sessions.
	Command []string `json:"command"`
	// Env is added to the agent's environment; {model}, {model_url}, {model_key}, {home} and {temp}
	// in its values are replaced.
	Env map[string]string `json:"env,omitempty"`
	// State is the directory below the box's home in which the agent stores its sessions.
	State string `json:"state,omitempty"`
	// Mode is the agent's own mode that its sessions are set to.
	Mode string `json:"mode,omitempty"`
}

// ACPAgents are the configured agents that speak the Agent Client Protocol, by name.
type ACPAgents map[string]ACPAgent

// maxAgents is the most ACP agents that may be configured.
const maxAgents = 32

const agentName = `[a-z0-9][a-z0-9-]{0,39}`

var (
	isAgentName = regexp.MustCompile(`^` + agentName + `$`).MatchString
	isEnvName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString
)

// knownAgents are the names of the built-in ACP agents, which a configured agent may not have.
var knownAgents = []string{"claude-code-acp", "opencode"}

// UnmarshalJSON sets the agents, and checks each.
func (agents *ACPAgents) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var all map[string]ACPAgent
	if err := d.Decode(&all); err != nil {
		return fmt.Errorf("write the ACP agents as {NAME: {command: [PROGRAM], env: {}, state: DIR, mode: MODE}}: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(all) > maxAgents {
		return fmt.Errorf("%d ACP agents are given, at most %d are allowed", len(all), maxAgents)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := all[name].check(name); err != nil {
			return err
		}
	}
	*agents = all
	return nil
}

func (a ACPAgent) check(name string) error {
	switch {
	case !isAgentName(name):
		return fmt.Errorf("%s cannot be the name of an ACP agent: use small letters, digits and dashes", holdfast.Quote(name))
	case slices.Contains(knownAgents, name):
		return fmt.Errorf("%s is the name of a built-in agent: choose another name", holdfast.Quote(name))
	case len(a.Command) == 0 || a.Command[0] == "":
		return fmt.Errorf("the ACP agent %s has no command", holdfast.Quote(name))
	case a.State != strings.Trim(a.State, "/") || slices.Contains(strings.Split(a.State, "/"), ".."):
		return fmt.Errorf("the state directory of the ACP agent %s is not a path below the home directory: write it as .local/share/x", holdfast.Quote(name))
	}
	for k := range a.Env {
		if !isEnvName(k) || strings.HasPrefix(k, "HOLDFAST_") {
			return fmt.Errorf("the variable %s in env of the ACP agent %s has a name that may not be set", holdfast.Quote(k), holdfast.Quote(name))
		}
	}
	return nil
}
