package app

import (
	"io"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// maxSandboxFile bounds the file of sandbox settings.
const maxSandboxFile = 1 << 20

// Policy is what decides tool calls by the server's configuration. A file that cannot be
// read keeps the server from starting: without it more would be allowed.
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
	b, err := io.ReadAll(io.LimitReader(f, maxSandboxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSandboxFile {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, "sandbox settings", "%s has over %d bytes", holdfast.Quote(name), maxSandboxFile)
	}
	s, err := check.ParseSettings(b)
	return &s, err
}
