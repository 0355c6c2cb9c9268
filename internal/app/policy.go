package app

import (
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Policy returns the policy of the server's configuration. A settings file that cannot be read
// keeps the server from starting, because without it more would be allowed.
func Policy(c config.Config) (*policy.Engine, error) {
	p, tools := c.Permissions, Tools()
	rules, err := policy.ParseRules(p.Allow, p.Ask, p.Deny, tools...)
	if err != nil {
		return nil, err
	}
	cfg := policy.Config{Rules: rules, Tools: tools, AgentDirs: agentDirs(c)}
	if p.Sandbox != "" {
		if cfg.Sandbox, err = readSandbox(p.Sandbox); err != nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "the file of the setting permissions.sandbox cannot be used: %w", err).WithHint("%s", holdfast.HintOf(err))
		}
	}
	return policy.New(cfg)
}

// checkAgent returns a check that refuses agent settings which this server does not support.
func checkAgent(model, runtime func(string) error) func(holdfast.AgentSettings) error {
	return func(s holdfast.AgentSettings) error {
		if s.Runtime != "" {
			if err := runtime(s.Runtime); err != nil {
				return err
			}
		}
		if s.Model == "" {
			return nil
		}
		if err := model(s.Model); err != nil {
			return holdfast.Errorf(holdfast.KindOf(err), "agent", "the model of the agent cannot be used: %w", err).WithHint("%s", holdfast.HintOf(err))
		}
		return nil
	}
}

func readSandbox(name string) (*check.Settings, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := check.ReadSettings(f)
	return &s, err
}
