package agents

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/settings"
)

// Settings are what a version's files say about permissions, hooks and its
// sessions. They never change; callers share them and change nothing in them.
// Errors as Files; invalid for a version from before settings were read at
// deployment, whose files make no sense.
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
			return settings.Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "%s would not be read", holdfast.Quote(f.Path)).
				WithHint("rename it to %s", want)
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

// maxDescription bounds an agent's description, in bytes.
const maxDescription = 1000

// Update sets what wins over the settings of the agent's versions, for sessions
// that are created from now on; an empty value gives those back their say.
// Invalid: a model or mode that there is not; not_found as Get.
func (r *Registry) Update(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error) {
	const op = "agent.update"
	if d := req.Description; d != nil {
		if len(*d) > maxDescription || !utf8.ValidString(*d) || strings.ContainsFunc(*d, func(c rune) bool { return unicode.IsControl(c) && c != '\n' }) {
			return holdfast.Agent{}, holdfast.Errorf(holdfast.KindInvalid, op, "description: %s is not text of at most %d bytes", holdfast.Quote(*d), maxDescription)
		}
	}
	if m := req.Mode; m != nil && *m != "" {
		if _, err := holdfast.ParseMode(*m); err != nil {
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
