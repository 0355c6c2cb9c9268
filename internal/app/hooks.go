package app

import (
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/hooked"
)

// Hooks returns the hooks of the server's owner. Their commands start in the data directory,
// which no agent can write.
func Hooks(cfg config.Config, environ []string) (hooked.Installed, error) {
	out := hooked.Installed{
		Registry: new(hook.Registry),
		Places:   hook.Places{Host: hook.Host{Environ: environ, Dir: cfg.Data}, HTTP: hook.NewClient()},
	}
	for event, groups := range cfg.Hooks {
		for i, g := range groups {
			for j := range g.Hooks {
				h := &g.Hooks[j]
				if h.SecretFile == "" {
					continue
				}
				var err error
				if h.Secret, err = keyFile(fmt.Sprintf("hooks.%s[%d].hooks[%d].secret_file", event, i, j), h.SecretFile); err != nil {
					return out, err
				}
			}
		}
	}
	if err := out.Registry.Load(hook.Config(cfg.Hooks), hook.OnHost); err != nil {
		return out, holdfast.Errorf(holdfast.KindInvalid, "config", "%w", err).WithHint("%s", holdfast.HintOf(err))
	}
	return out, nil
}
