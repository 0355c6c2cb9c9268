package config

import "github.com/holdfast-run/holdfast/hook"

// Hooks are the hooks of the server's owner. Their commands run on the host unless set otherwise.
type Hooks hook.Config

// UnmarshalJSON sets the hooks from a configuration of hooks, and checks each.
func (h *Hooks) UnmarshalJSON(raw []byte) error {
	c, err := hook.ParseConfig(raw, hook.OnHost)
	*h = Hooks(c)
	return err
}
