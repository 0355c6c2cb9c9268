package workspaces

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/holdfast-run/holdfast"
)

// shown is shown instead of each value of an environment; only the sealed copy has the values. As a new value it
// means: keep the value that is stored under this name.
const shown = "***"

// changeEnv changes values of a workspace's environment and removes others. The caller holds the root key.
func (c Config) changeEnv(r *Record, set map[string]string, remove []string) error {
	if len(set)+len(remove) == 0 {
		return nil
	}
	env := maps.Clone(r.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, set)
	for _, name := range remove {
		delete(env, name)
	}
	return c.setEnv(r, env)
}

// setEnv replaces the environment of a workspace. If a value is shown ("***"), the stored value of that name stays.
// The caller holds the root key.
func (c Config) setEnv(r *Record, env map[string]string) error {
	var stored map[string]string
	same := len(env) == len(r.Env)
	for name, value := range env {
		if _, has := r.Env[name]; !has && value == shown {
			return holdfast.Errorf(holdfast.KindInvalid, "workspace", "the environment variable %s has no stored value that %s could stand for", holdfast.Quote(name), shown).
				WithHint("write the variable's value")
		}
		same = same && value == shown
	}
	if same {
		return nil
	}
	if err := c.CheckEnv(env); err != nil {
		return err
	}
	next := *r
	next.Env, next.Sealed, next.Reseal = nil, nil, true
	if len(env) > 0 {
		plain, names := maps.Clone(env), map[string]string{}
		for name, value := range env {
			if names[name] = shown; value != shown {
				continue
			}
			if stored == nil {
				var err error
				if stored, err = c.openEnv(*r); err != nil {
					return err
				}
			}
			plain[name] = stored[name]
		}
		raw, err := json.Marshal(plain)
		if err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "workspace.env", "the environment of the workspace cannot be encoded as JSON")
		}
		if next.Sealed, err = c.Sealer.SealWorkspace(r.ID, raw); err != nil {
			return err
		}
		next.Env = names
	}
	*r = next
	return nil
}

// openEnv returns the decrypted environment of a workspace.
func (c Config) openEnv(r Record) (env map[string]string, err error) {
	if r.Sealed == nil {
		return nil, nil
	}
	raw, err := c.Sealer.OpenWorkspace(r.ID, r.Sealed)
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(raw, &env) != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "workspace.env", "the decrypted environment of workspace %s is not valid JSON", r.ID)
	}
	return env, nil
}

// Environment returns a function that returns the decrypted environment of a workspace, for use within the server.
func Environment(w *Workspaces) func(ctx context.Context, id holdfast.Slug) (map[string]string, error) {
	return func(ctx context.Context, id holdfast.Slug) (map[string]string, error) {
		r, err := w.cfg.Store.Workspace(ctx, id)
		if err != nil {
			return nil, err
		}
		return w.cfg.openEnv(r)
	}
}
