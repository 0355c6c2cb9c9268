package agents

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/settings"
)

// Settings returns the permissions, hooks and session settings in a version's files. The result is
// shared: callers must not change it. It fails as Files does, and with invalid for an old version
// whose settings were not checked when it was deployed.
func (r *Registry) Settings(_ context.Context, version holdfast.VersionID) (settings.Settings, error) {
	if s, ok := r.set.Get(version); ok {
		return s, nil
	}
	list, err := r.manifest(version)
	if err != nil {
		return settings.Settings{}, err
	}
	s, err := r.readSettings(list, func(f holdfast.AgentFile) ([]byte, error) { return r.read(version, f) })
	if err != nil {
		return settings.Settings{}, err
	}
	return r.set.Keep(version, s), nil
}

func (r *Registry) readSettings(list []holdfast.AgentFile, read func(holdfast.AgentFile) ([]byte, error)) (settings.Settings, error) {
	files := map[string][]byte{}
	for _, f := range list {
		if want := settings.Misspelled(f.Path); want != "" {
			return settings.Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "the file %s would be ignored: it looks like a misspelled settings file", holdfast.Quote(f.Path)).
				WithHint("rename the file to %s", want)
		}
		if f.Path != settings.OwnFile && f.Path != settings.ClaudeFile {
			continue
		}
		data, err := read(f)
		if err != nil {
			return settings.Settings{}, err
		}
		files[f.Path] = data
	}
	return settings.Parse(files, r.tools)
}

// maxDescription is the largest length of an agent's description, in bytes.
const maxDescription = 1000

// Update sets values that override the settings of the agent's versions, for sessions that are
// created from now on; an empty value removes the override. It fails with invalid for an unknown
// model or mode or a description that is not allowed, and with not_found for an unknown agent.
func (r *Registry) Update(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error) {
	const op = "agent.update"
	if d := req.Description; d != nil {
		if len(*d) > maxDescription || !utf8.ValidString(*d) || strings.ContainsFunc(*d, func(c rune) bool { return unicode.IsControl(c) && c != '\n' }) {
			return holdfast.Agent{}, holdfast.Errorf(holdfast.KindInvalid, op, "the description %s of the agent is longer than %d bytes, is not UTF-8 or has control characters", holdfast.Quote(*d), maxDescription)
		}
	}
	if m := req.Mode; m != nil && *m != "" {
		if _, err := holdfast.Parse[holdfast.Mode](*m); err != nil {
			return holdfast.Agent{}, err
		}
	}
	if m := req.Model; m != nil && *m != "" {
		if err := r.check(holdfast.AgentSettings{Model: *m}); err != nil {
			return holdfast.Agent{}, err
		}
	}
	return r.store.UpdateAgent(ctx, name, req)
}
