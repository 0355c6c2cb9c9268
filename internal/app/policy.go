package app

import (
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Policy is what decides tool calls by the server's configuration. A file that
// cannot be read keeps the server from starting: without it more would be allowed.
func Policy(p config.Permissions) (*policy.Engine, error) {
	rules, err := policy.ParseRules(p.Allow, p.Ask, p.Deny)
	if err != nil {
		return nil, err
	}
	cfg := policy.Config{Rules: rules}
	if p.Sandbox != "" {
		if cfg.Sandbox, err = readSandbox(p.Sandbox); err != nil {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "permissions.sandbox: %w", err).WithHint("%s", holdfast.HintOf(err))
		}
	}
	return policy.New(cfg)
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
