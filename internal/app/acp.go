package app

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/acp"
	"github.com/holdfast-run/holdfast/internal/runtime/claude"
	"github.com/holdfast-run/holdfast/policy"
)

// runtimes returns all runtimes that sessions can use.
func (s *server) runtimes(loop runtime.Runtime) ([]runtime.Runtime, error) {
	cli, err := s.claude()
	if err != nil {
		return nil, err
	}
	agents, err := s.acp()
	return append([]runtime.Runtime{loop, cli}, agents...), err
}

// RuntimeNames returns the names of the runtimes of a server with this configuration.
func RuntimeNames(cfg config.Config) ([]string, error) {
	agents, err := (&server{cfg: cfg}).acp()
	out := []string{"native", "claude"}
	for _, rt := range agents {
		out = append(out, rt.Name())
	}
	return out, err
}

// agentDirs returns the directories in which the agents of all runtimes keep their configuration and conversations.
func agentDirs(cfg config.Config) []policy.AgentDir {
	out := []policy.AgentDir{claude.Dir()}
	for _, p := range profiles(cfg) {
		out = append(out, p.Dirs()...)
	}
	return out
}

// profiles returns the agents that speak the Agent Client Protocol: the built-in ones and those of the configuration.
// An agent's program is looked up at each of its starts.
func profiles(cfg config.Config) []acp.Profile {
	store := agentcli.New(agentcli.Config{Dir: RuntimesDir(cfg)})
	installed := func(name string) func(holdfast.Trust) (acp.Program, error) {
		return func(trust holdfast.Trust) (acp.Program, error) {
			in, err := store.Find(name)
			if err != nil {
				return acp.Program{}, err
			}
			argv, env := in.At(runtimesFor(cfg, trust))
			return acp.Program{Argv: argv, Env: env, Version: in.Version}, nil
		}
	}
	out := []acp.Profile{acp.ClaudeCode(installed("claude-code-acp")), acp.OpenCode(installed("opencode"))}
	for _, name := range slices.Sorted(maps.Keys(cfg.ACP)) {
		out = append(out, ownAgent(name, cfg.ACP[name]))
	}
	return out
}

// acp returns the runtimes of agents that speak the Agent Client Protocol.
func (s *server) acp() ([]runtime.Runtime, error) {
	var out []runtime.Runtime
	for _, p := range profiles(s.cfg) {
		rt, err := acp.New(acp.Config{Profile: p, Now: time.Now})
		if err != nil {
			return nil, err
		}
		out = append(out, rt)
	}
	return out, nil
}

// ownAgent returns the profile of an agent from the configuration.
func ownAgent(name string, a config.ACPAgent) acp.Profile {
	p := acp.Profile{
		Name: name, State: a.State, Env: a.Env, Hint: "look at acp." + name + ".command in the server's configuration",
		Find: func(holdfast.Trust) (acp.Program, error) { return acp.Program{Argv: a.Command}, nil },
	}
	if a.Mode != "" {
		p.Modes = map[holdfast.Mode]string{"": a.Mode}
	}
	return p
}
