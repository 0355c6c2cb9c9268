package app

import (
	"time"

	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/acp"
)

// runtimes are all that sessions can have.
func (s *server) runtimes(loop runtime.Runtime) ([]runtime.Runtime, error) {
	cli, err := s.claude()
	if err != nil {
		return nil, err
	}
	agents, err := s.acp()
	return append([]runtime.Runtime{loop, cli}, agents...), err
}

// acp are the runtimes of agents that speak the Agent Client Protocol: those that
// are known, and those of the configuration. A program is looked up at each start.
func (s *server) acp() ([]runtime.Runtime, error) {
	store := agentcli.New(agentcli.Config{Dir: RuntimesDir(s.cfg)})
	installed := func(name string) func() (acp.Program, error) {
		return func() (acp.Program, error) {
			in, err := store.Find(name)
			if err != nil {
				return acp.Program{}, err
			}
			argv, env := in.At(RuntimesInBox)
			return acp.Program{Argv: argv, Env: env, Version: in.Version}, nil
		}
	}
	profiles := []acp.Profile{
		acp.ClaudeCode(installed("claude-code-acp")), acp.OpenCode(installed("opencode")), acp.Gemini(installed("gemini")),
	}
	var out []runtime.Runtime
	for _, p := range profiles {
		rt, err := acp.New(acp.Config{Profile: p, Now: time.Now})
		if err != nil {
			return nil, err
		}
		out = append(out, rt)
	}
	return out, nil
}
