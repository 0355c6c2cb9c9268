// Package settings reads what a folder says about its agent: holdfast.yaml and
// .claude/settings.json, of a version that is deployed or of a workspace.
//
// internal/agents reads those of a version, the engine those of a workspace, the
// CLI those of a folder; it imports the vocabulary, policy, hook and the sandbox
// checker. Invariants: what it cannot read whole it refuses, naming file, field
// and value; what a workspace says, which the agent can write, only tightens; a
// file of any content costs bounded time and memory.
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

// The files, by their paths in the folder.
const (
	OwnFile    = "holdfast.yaml"
	ClaudeFile = ".claude/settings.json"
)

// Files are the paths that settings are read from.
func Files() []string { return []string{OwnFile, ClaudeFile} }

// Misspelled is the path in Files that name was probably meant to be; empty for
// one that is right or something else.
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

// Limits on the files, in bytes. YAML takes more time for each of them.
const (
	MaxClaude = 1 << 20
	MaxOwn    = 64 << 10
)

// Settings are what a folder says. The zero value says nothing.
type Settings struct {
	// Description, Runtime, Model and Mode are empty where the folder names none.
	// Whether the server has that model and runtime is not checked here.
	Description, Runtime, Model string
	Mode                        holdfast.Mode
	// WorkspaceInstructions: the instructions that a session's workspace holds are passed on
	// to its agent.
	WorkspaceInstructions bool
	// Rules are those of both files together.
	Rules   policy.RuleSet
	Sandbox *check.Settings
	// Hooks are those of both files together, sound as hooks of a box: they run
	// nowhere else.
	Hooks hook.Config
	// Notices say what is there and means nothing here.
	Notices []string
	// Sums are the SHA-256 of the files that were read.
	Sums map[string][sha256.Size]byte
}

// Choices are what the settings choose for an agent's sessions.
func (s Settings) Choices() holdfast.AgentSettings {
	return holdfast.AgentSettings{Description: s.Description, Runtime: s.Runtime, Model: s.Model, Mode: s.Mode}
}

// Layer is what the settings add to a policy.
func (s Settings) Layer() policy.Config {
	return policy.Config{Rules: s.Rules, Sandbox: s.Sandbox}
}

// Empty reports that Layer adds nothing.
func (s Settings) Empty() bool {
	return s.Sandbox == nil && len(s.Rules.Allow)+len(s.Rules.Ask)+len(s.Rules.Deny) == 0
}

// ReadDir is Parse of a folder on disk, which its owner alone writes; not_found when
// there is none.
func ReadDir(dir string, tools []policy.Tool) (Settings, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return Settings{}, holdfast.Errorf(holdfast.KindNotFound, op, "%s is not a folder", holdfast.Quote(dir))
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

// Parse reads the settings of an agent's folder from its files by path; it ignores
// files that hold no settings. Invalid: settings that make no sense, and every unknown
// key in holdfast.yaml and in permissions. Rules may name the standard tools and those
// of tools.
func Parse(files map[string][]byte, tools []policy.Tool) (Settings, error) {
	return parse(files, tools, false)
}

// Tightening reads the settings of a workspace, which an agent can write. Of them
// count deny rules, ask rules and what the sandbox refuses; the rest is only held
// against the known keys. Errors are those of Parse.
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
			return Settings{}, r.bad("", "is over %d bytes", f.most)
		}
		tree, err := f.tree(data)
		if err != nil {
			return Settings{}, r.bad("", "cannot be read: %s", err).WithHint("mend the file, or leave it out")
		}
		if root, ok := tree.(object); ok {
			f.read(r, root)
		} else if tree != nil {
			r.fail(r.bad("", "does not hold keys and values"))
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
