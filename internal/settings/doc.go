// Package settings reads the agent settings in a folder, that of a deployed version or a workspace:
// the files holdfast.yaml and .claude/settings.json.
//
// internal/agents reads those of a version, the engine those of a workspace, the CLI those of a
// folder; it imports the vocabulary, policy, hook, the sandbox checker, internal/rooted, internal/hostgit and a YAML
// parser. Invariants: a file that it cannot read completely is refused, with file, field and value
// named; settings of a workspace, which the agent can write, only tighten the policy; a file of any
// content costs bounded time and memory.
package settings

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// OwnFile and ClaudeFile are the paths of the settings files in a folder.
const (
	OwnFile    = "holdfast.yaml"
	ClaudeFile = ".claude/settings.json"
)

// Files returns the paths of the settings files in a folder.
func Files() []string { return []string{OwnFile, ClaudeFile} }

// Misspelled returns the path in Files that name was probably meant to be; "" if name is right or
// something else.
func Misspelled(name string) string {
	for _, want := range Files() {
		if name == want {
			return ""
		}
		if strings.EqualFold(name, want) || strings.EqualFold(name, strings.TrimSuffix(want, ".yaml")+".yml") {
			return want
		}
	}
	return ""
}

// MaxClaude and MaxOwn are the largest sizes of .claude/settings.json and holdfast.yaml, in bytes. The limit of YAML is
// lower because YAML takes more time per byte.
const (
	MaxClaude = 1 << 20
	MaxOwn    = 64 << 10
)

// Settings are the settings in a folder. The zero value sets nothing.
type Settings struct {
	// Description, Runtime, Model and Mode are empty if the folder sets none. Whether the server has
	// that model and runtime is not checked here.
	Description, Runtime, Model string
	Mode                        holdfast.Mode
	// WorkspaceInstructions is true if an agent also gets the instructions in its session's
	// workspace.
	WorkspaceInstructions bool
	// Rules are the permission rules of both files together.
	Rules   policy.RuleSet
	Sandbox *check.Settings
	// Hooks are the hooks of both files together, checked as hooks that run in a box: they run
	// nowhere else.
	Hooks hook.Config
	// Notices are texts about settings that have no effect here.
	Notices []string
	// Sums are the SHA-256 hashes of the files that were read, by path.
	Sums map[string][sha256.Size]byte
}

// Choices returns the settings for an agent's sessions: description, runtime, model and mode.
func (s Settings) Choices() holdfast.AgentSettings {
	return holdfast.AgentSettings{Description: s.Description, Runtime: s.Runtime, Model: s.Model, Mode: s.Mode}
}

// Layer returns the policy layer of the settings: rules and sandbox settings.
func (s Settings) Layer() policy.Config {
	return policy.Config{Rules: s.Rules, Sandbox: s.Sandbox}
}

// Empty reports whether Layer adds nothing to a policy.
func (s Settings) Empty() bool {
	return s.Sandbox == nil && len(s.Rules.Allow)+len(s.Rules.Ask)+len(s.Rules.Deny) == 0
}

// ReadDir parses the settings in a folder on disk that only its owner can write; not_found if there
// is no such folder.
func ReadDir(dir string, tools []policy.Tool) (Settings, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return Settings{}, holdfast.Errorf(holdfast.KindNotFound, op, "the agent's folder %s does not exist or is not a directory", holdfast.Quote(dir))
	}
	files := map[string][]byte{}
	for _, name := range Files() {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "%w", err)
		}
		files[name] = data
	}
	return Parse(files, tools)
}

// Parse parses the settings of an agent's folder from its files by path; other files are ignored.
// It returns invalid for contradictory or malformed settings, and for any unknown key in
// holdfast.yaml and in permissions. Rules may name the standard tools and the given ones.
func Parse(files map[string][]byte, tools []policy.Tool) (Settings, error) {
	return parse(files, tools, false)
}

// Tightening parses the settings of a workspace, which an agent can write. Only deny rules, ask
// rules and restrictions of the sandbox are used. The other settings are only checked, except for
// hooks and the single allow rules. It fails as Parse does.
func Tightening(files map[string][]byte, tools []policy.Tool) (policy.Config, error) {
	s, err := parse(files, tools, true)
	if err != nil {
		return policy.Config{}, err
	}
	cfg := policy.Config{Rules: policy.RuleSet{Ask: s.Rules.Ask, Deny: s.Rules.Deny}, Tighten: true}
	if s.Sandbox != nil {
		cfg.Sandbox = &check.Settings{
			AllowedReadPaths: s.Sandbox.AllowedReadPaths, AllowedWritePaths: s.Sandbox.AllowedWritePaths, DeniedPaths: s.Sandbox.DeniedPaths,
			DeniedWritePaths: s.Sandbox.DeniedWritePaths,
			DeniedCommands:   s.Sandbox.DeniedCommands, AllowedCommands: s.Sandbox.AllowedCommands,
		}
		if n := s.Sandbox.Network; n != nil {
			cfg.Sandbox.Network = &check.Network{AllowedDomains: n.AllowedDomains}
		}
	}
	return cfg, nil
}

func parse(files map[string][]byte, tools []policy.Tool, tighten bool) (Settings, error) {
	var s Settings
	for _, f := range []struct {
		name string
		read func(*reader, object)
		tree func([]byte) (any, error)
		most int
	}{{OwnFile, (*reader).own, yamlTree, MaxOwn}, {ClaudeFile, (*reader).claude, jsonTree, MaxClaude}} {
		data, ok := files[f.name]
		if !ok {
			continue
		}
		r := &reader{file: f.name, tools: tools, tighten: tighten, out: &s}
		if len(data) > f.most {
			return Settings{}, r.bad("", "the file is larger than %d bytes", f.most)
		}
		tree, err := f.tree(data)
		if err != nil {
			return Settings{}, r.bad("", "the file cannot be parsed: %s", err).WithHint("correct the settings file, or remove it")
		}
		if root, ok := tree.(object); ok {
			f.read(r, root)
		} else if tree != nil {
			r.fail(r.bad("", "the file must be a map of keys and values"))
		}
		if r.err != nil {
			return Settings{}, r.err
		}
		if s.Sums == nil {
			s.Sums = map[string][sha256.Size]byte{}
		}
		s.Sums[f.name] = sha256.Sum256(data)
	}
	return s, nil
}
