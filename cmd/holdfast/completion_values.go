package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
)

// source returns candidate values for the word last, which is being typed. complete drops those
// that do not begin like it.
type source = func(e *env, last string) []candidate

// sources returns the sources of the completion candidates for flags and arguments. A key such as "key revoke <id>" is
// for one command, and takes precedence over "<id>" alone, which is for all commands.
func sources() map[string]source {
	agents := listedBy((*client.Client).Agents, func(a holdfast.Agent) candidate {
		return candidate{string(a.Name), fmt.Sprintf("version %d", a.Version)}
	})
	keys := listedBy((*client.Client).Keys, func(k holdfast.Key) candidate { return candidate{string(k.ID), cut(line(k.Name), 60)} })
	workspaces := listedBy((*client.Client).Workspaces, func(w holdfast.Workspace) candidate { return candidate{string(w.ID), cut(line(w.Title+w.Dir), 60)} })
	secrets := listedBy((*client.Client).Secrets, func(s holdfast.Secret) candidate { return candidate{value: string(s.Name)} })
	all := map[string]source{
		"<id>":                     (*env).sessionCandidates,
		"--session":                (*env).sessionCandidates,
		"containers stop <names>":  (*env).sessionCandidates,
		"trash restore <id>":       trashCandidates,
		"agent show <name>":        agents,
		"agent update <name>":      agents,
		"agent delete <name>":      agents,
		"--agent":                  agents,
		"approvals show <id>":      (*env).approvalCandidates,
		"approvals allow <id>":     (*env).approvalCandidates,
		"approvals deny <id>":      (*env).approvalCandidates,
		"key revoke <id>":          keys,
		"--workspace":              workspaces,
		"workspace show <slug>":    workspaces,
		"workspace update <slug>":  workspaces,
		"workspace delete <slug>":  workspaces,
		"secret set <name>":        secrets,
		"secret rm <names>":        secrets,
		"runtime install <name>":   (*env).cliCandidates,
		"runtime path <name>":      (*env).cliCandidates,
		"--runtime":                (*env).runtimeCandidates,
		"--tag":                    (*env).tagCandidates,
		"session tag --add":        (*env).tagCandidates,
		"session tag --remove":     (*env).tagCandidates,
		"session tag <tags>":       (*env).tagCandidates,
		"--model":                  modelNames,
		"--models":                 modelNames,
		"--set":                    settingNames,
		"--type":                   words(holdfast.Words[holdfast.EventType]()...),
		"approvals allow --scope":  words(holdfast.ScopeOnce, holdfast.ScopeSession, holdfast.ScopeWorkspace),
		"approvals revoke --scope": words(holdfast.ScopeSession, holdfast.ScopeWorkspace),
		"approvals list --state":   words("pending", "allowed", "denied", "expired", "all"),
		"key create --scope":       words(holdfast.Words[holdfast.Scope]()...),
		"--trust":                  words(holdfast.Untrusted, holdfast.Trusted),
		"--default-trust":          words(holdfast.Untrusted, holdfast.Trusted),
		"--mount":                  words(holdfast.MountWorkspace, holdfast.MountTree),
		"--max-trust":              words(holdfast.Untrusted, holdfast.Trusted),
		"--mode":                   words(holdfast.ModeDefault, holdfast.ModeAcceptEdits, holdfast.ModeBypassPermissions, holdfast.ModePlan, holdfast.ModeDontAsk, holdfast.ModeAuto),
		"files put --mode":         words("0644", "0755"),
		"policy explain <tool>":    words("Bash", "Read", "Write", "Edit", "Glob", "Grep", "LS", "TodoWrite", "WebFetch"),
		"--status":                 words(holdfast.Words[holdfast.Status]()...),
		"--driver":                 driverNames,
		"context use <name>":       (*env).contextCandidates,
		"context rm <name>":        (*env).contextCandidates,
		"--context":                (*env).contextCandidates,
		"config explain <setting>": words(config.Keys()...),
		"--log-format":             words(config.Allowed("log_format")...),
		"--log-level":              words(config.Allowed("log_level")...),
	}
	for _, name := range []string{
		"--config", "--token-file", "--data", "--dir", "--raw", "bench --beside", "--key-file", "--record", "check command --settings", "check path --settings",
		"check command --cwd", "check command --home", "check path --cwd", "check path --home", "check path <input>",
		"policy explain --agent", "policy simulate --agent", "secret set --file", "--passphrase-file", "backup <file>", "restore <file>",
		"agent deploy <dir>", "files put <from>", "files get <to>", "cp <src>", "cp <dst>", "--from", "man <dir>", "audit export <file>", "audit verify <file>",
	} {
		all[name] = fileNames
	}
	return all
}

func words[T ~string](values ...T) func(*env, string) []candidate {
	return func(*env, string) (found []candidate) {
		for _, v := range values {
			found = append(found, candidate{value: string(v)})
		}
		return found
	}
}

func fileNames(*env, string) []candidate { return []candidate{{value: filesHere}} }

// values returns the candidates for the value of a flag or an argument.
func (e *env) values(node *kong.Node, v *kong.Value, last string) []candidate {
	if v.Enum != "" {
		return words(v.EnumSlice()...)(e, last)
	}
	name := "<" + v.Name + ">"
	if v.Flag != nil {
		name = "--" + v.Name
	}
	all := sources()
	source := all[commandOf(node)+" "+name]
	if source == nil {
		source = all[name]
	}
	if source == nil {
		return nil
	}
	return source(e, last)
}

// commandOf returns a command as it is typed, without the program's name.
func commandOf(node *kong.Node) string {
	if node.Parent == nil {
		return ""
	}
	return strings.TrimSpace(commandOf(node.Parent) + " " + node.Name)
}

// listed returns the result of list, or the zero value if the server fails or does not answer in time.
func listed[T any](e *env, list func(*client.Client, context.Context) (T, error)) (items T) {
	ctx, cancel := context.WithTimeout(e.ctx, completeTimeout)
	defer cancel()
	if c, err := e.client(); err == nil {
		if got, err := list(c, ctx); err == nil {
			items = got
		}
	}
	return items
}

// listedBy returns a source with a candidate of each entry that list returns.
func listedBy[T any](list func(*client.Client, context.Context) ([]T, error), of func(T) candidate) source {
	return func(e *env, _ string) (found []candidate) {
		for _, one := range listed(e, list) {
			found = append(found, of(one))
		}
		return found
	}
}

// isID reports whether a word may be the beginning of an id.
func isID(word string) bool { return strings.Trim(word, "0123456789abcdef-") == "" }

func (e *env) sessions(f holdfast.SessionFilter) []holdfast.Session {
	return listed(e, func(c *client.Client, ctx context.Context) (holdfast.SessionPage, error) { return c.Sessions(ctx, f) }).Sessions
}

// sessionCandidates returns the sessions whose id or title begins with the text last, and @last if it begins so.
func (e *env) sessionCandidates(last string) (found []candidate) {
	if strings.HasPrefix(lastName, last) {
		if id, err := e.last(); err == nil {
			found = append(found, candidate{lastName, shortID(id)})
		}
	}
	return append(found, candidatesOf(e, holdfast.SessionFilter{}, last)...)
}

// trashCandidates returns the sessions in the trash whose id or title begins with last.
func trashCandidates(e *env, last string) []candidate {
	return candidatesOf(e, holdfast.SessionFilter{Trash: true}, last)
}

// candidatesOf returns the sessions of a filter whose id or title begins with last.
func candidatesOf(e *env, f holdfast.SessionFilter, last string) (found []candidate) {
	begun := strings.ToLower(last)
	f.Name, f.Limit = begun, 100
	for _, s := range e.sessions(f) {
		switch title := line(s.Title); {
		case strings.HasPrefix(string(s.ID), begun):
			found = append(found, candidate{string(s.ID), cut(string(s.Status)+" "+title, 60)})
		case title == s.Title && strings.HasPrefix(strings.ToLower(title), begun):
			found = append(found, candidate{title, string(s.Status) + " " + shortID(s.ID)})
		}
	}
	return found
}

func (e *env) contextCandidates(string) (found []candidate) {
	all, err := e.readContexts()
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
		found = append(found, candidate{name, line(all.Contexts[name].URL)})
	}
	return append(found, candidate{thisMachine, "the server of the data directory"})
}

// tagCandidates returns the tags of the newest 100 sessions.
func (e *env) tagCandidates(last string) []candidate {
	var tags []string
	for _, s := range e.sessions(holdfast.SessionFilter{Limit: 100}) {
		tags = append(tags, s.Tags...)
	}
	slices.Sort(tags)
	return words(slices.Compact(tags)...)(e, last)
}

func (e *env) approvalCandidates(last string) (found []candidate) {
	if !isID(last) {
		return nil
	}
	page := listed(e, func(c *client.Client, ctx context.Context) (holdfast.ApprovalPage, error) {
		return c.Approvals(ctx, holdfast.ApprovalFilter{IDPrefix: last, Limit: 100})
	})
	for _, a := range page.Approvals {
		found = append(found, candidate{string(a.ID), cut(line(a.Tool)+" "+compact(a.Input), 60)})
	}
	return found
}

// cliCandidates returns the names of the agent CLIs that can be installed.
func (e *env) cliCandidates(string) (found []candidate) {
	store, _, err := runtimeDir{}.store(e)
	if err != nil {
		return nil
	}
	list, err := store.List()
	if err != nil {
		return nil
	}
	for _, s := range list {
		found = append(found, candidate{s.Name, s.About})
	}
	return found
}

// runtimeCandidates returns the runtimes of a server that starts with the settings of this environment.
func (e *env) runtimeCandidates(last string) []candidate {
	cfg, err := config.Load(config.Source{Getenv: e.getenv})
	if err != nil {
		return nil
	}
	names, err := app.RuntimeNames(cfg)
	if err != nil {
		return nil
	}
	return words(names...)(e, last)
}

func modelNames(e *env, last string) []candidate { return words(app.ModelNames()...)(e, last) }

func driverNames(e *env, last string) []candidate { return words(e.drivers.Names()...)(e, last) }

func settingNames(*env, string) (found []candidate) {
	for _, s := range config.Settings() {
		if s.Env != "" {
			found = append(found, candidate{value: s.Name + "="})
		}
	}
	return found
}
