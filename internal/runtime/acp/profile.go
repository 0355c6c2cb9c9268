package acp

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/policy"
)

// Prefix is the beginning of the name of each runtime for the Agent Client Protocol.
const Prefix = "acp:"

// ModelListener is the name of the listener at which an agent in its session's own box reaches the model
// broker. KeyedModelListener is that of a listener to which others can connect too, in a shared box or on the
// host; requests to it must carry a key.
const (
	ModelListener      = "model-http"
	KeyedModelListener = "model-http-keyed"

	modelAddress = "127.0.0.1:3129"
)

// Program is an installed agent, with the command line that starts it.
type Program struct {
	Argv []string
	Env  map[string]string
	// Version is the version of the installed package, empty if it is unknown.
	Version string
}

// Profile describes a kind of agent.
type Profile struct {
	// Name is the name of the runtime without Prefix.
	Name string
	// Find returns the installed program, with paths as the tools of sessions with this trust level see them;
	// KindUnavailable with a hint if it is not installed.
	Find func(trust holdfast.Trust) (Program, error)
	// Hint is the hint for an agent that does not start; empty means the command that installs it.
	Hint string
	// Args are added to the program's command line.
	Args []string
	// Env is added to the environment. In its values, {model} is replaced by the session's model, {model_url} by the
	// broker's URL, {model_key} by the key to send there, {home} and {temp} by the session's home and its directory
	// for temporary files, and {call} by the id of the process's call, which is unique.
	Env map[string]string
	// EnvFor returns further variables for a model.
	EnvFor func(model string) map[string]string
	// State is the directory, below the home, in which the agent stores its sessions. If State is empty or the
	// directory does not exist, the agent is not asked to load a session.
	State string
	// Results is a pattern below State of the files in which the agent stores long results of calls, so that its model
	// reads them; empty if there are none (see policy.AgentDir).
	Results string
	// Modes maps the permission modes of a session to the modes of the agent. A mode is set only if the agent
	// offers it.
	Modes map[holdfast.Mode]string
	// Meta is sent with session/new and session/load.
	Meta map[string]any
}

var profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

func (p *Profile) check() error {
	if !profileName.MatchString(p.Name) {
		return holdfast.Errorf(holdfast.KindInvalid, op, "%s cannot be the name of an ACP agent", holdfast.Quote(p.Name)).
			WithHint("use a name of small letters, digits and dashes, at most 40 characters")
	}
	if p.Find == nil {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the ACP agent %s has no command", holdfast.Quote(p.Name)).
			WithHint("name the command in the configuration: acp: {%s: {command: [PROGRAM, ARG]}}", p.Name)
	}
	if clean := strings.Trim(p.State, "/"); clean != p.State || slices.Contains(strings.Split(p.State, "/"), "..") {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the state directory %s of the ACP agent %s is not a relative path below the home directory", holdfast.Quote(p.State), holdfast.Quote(p.Name))
	}
	return nil
}

// Dirs returns State, the directory below the home in which the agent stores its sessions, as a list; nil without one.
func (p *Profile) Dirs() []policy.AgentDir {
	dir := path.Clean(p.State)
	if dir == "." {
		return nil
	}
	return []policy.AgentDir{{Path: dir, Results: p.Results}}
}

func (p *Profile) hint() string {
	if p.Hint != "" {
		return p.Hint
	}
	return "holdfast runtime install " + p.Name
}

// environ returns the variables for the agent in addition to the box's environment. url is the URL of the broker; key
// is the key that the broker expects, or a placeholder: it is never the key of a model provider.
func (p *Profile) environ(prog Program, at runtime.Place, model, url, key string, call holdfast.CallID) []string {
	env := map[string]string{}
	fill := strings.NewReplacer("{model}", model, "{model_url}", url, "{model_key}", key, "{home}", at.Home, "{temp}", at.Temp, "{call}", string(call))
	add := func(more map[string]string) {
		for k, v := range more {
			env[k] = fill.Replace(v)
		}
	}
	add(p.Env)
	if p.EnvFor != nil {
		add(p.EnvFor(model))
	}
	for k, v := range prog.Env {
		env[k] = v
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// bare splits a model's name such as PROVIDER/NAME into its two parts. The provider is empty if the name has none.
func bare(model string) (provider, name string) {
	provider, name, ok := strings.Cut(model, "/")
	if !ok {
		return "", model
	}
	return provider, name
}

// heldKey is the placeholder that an agent sends as its API key if the broker needs no key. Only the server has
// the provider's key.
const heldKey = "held-by-the-server"

// ClaudeCode returns the profile of Claude Code with its ACP adapter. Settings in files that the
// agent can write are switched off (HZ-6).
func ClaudeCode(find func(holdfast.Trust) (Program, error)) Profile {
	return Profile{
		Name: "claude-code-acp", Find: find, State: ".claude", Results: "projects/*/*/tool-results/**",
		Env: map[string]string{
			"CLAUDE_CONFIG_DIR": "{home}/.claude", "ANTHROPIC_BASE_URL": "{model_url}", "ANTHROPIC_API_KEY": "{model_key}",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
			"DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_EAGER_FLUSH": "1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
			"CLAUDE_CODE_MAX_RETRIES": "4", "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false", "NO_BROWSER": "1", "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
		},
		EnvFor: func(model string) map[string]string {
			_, name := bare(model)
			return map[string]string{"ANTHROPIC_MODEL": name, "ANTHROPIC_CUSTOM_MODEL_OPTION": name, "ANTHROPIC_SMALL_FAST_MODEL": name}
		},
		Modes: map[holdfast.Mode]string{holdfast.ModePlan: "plan", "": "default"},
		Meta: map[string]any{"claudeCode": map[string]any{"options": map[string]any{
			"settingSources": []string{}, "promptSuggestions": false,
			"settings": map[string]any{"permissions": map[string]any{"ask": []string{
				"Read", "Glob", "Grep", "LS", "Bash", "Write", "Edit", "NotebookEdit", "WebFetch", "WebSearch", "Task",
			}}},
		}}},
	}
}

// OpenCode returns the profile of opencode. The profile makes opencode ask before every tool call and read no settings
// of the workspace.
func OpenCode(find func(holdfast.Trust) (Program, error)) Profile {
	return Profile{
		Name: "opencode", Find: find, Args: []string{"acp"}, State: ".local/share/opencode",
		Env: map[string]string{
			"OPENCODE_DISABLE_PROJECT_CONFIG": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "OPENCODE_DISABLE_SHARE": "1",
			// opencode would read settings below the home, which the agent can write. So each process gets
			// its own configuration directory, whose name cannot be guessed in advance.
			"XDG_CONFIG_HOME":     "{temp}/.config-{call}",
			"OPENCODE_PERMISSION": `{"*":"ask"}`,
		},
		EnvFor: func(model string) map[string]string {
			config, err := json.Marshal(openCodeConfig(model))
			if err != nil {
				return nil // cannot happen: strings and numbers always encode
			}
			return map[string]string{"OPENCODE_CONFIG_CONTENT": string(config)}
		},
	}
}

func openCodeConfig(model string) map[string]any {
	provider, name := bare(model)
	npm := "@ai-sdk/anthropic"
	if provider == "openai" {
		npm = "@ai-sdk/openai-compatible"
	} else {
		provider = "anthropic"
	}
	full := provider + "/" + name
	return map[string]any{
		"provider": map[string]any{provider: map[string]any{
			"npm":     npm,
			"options": map[string]any{"baseURL": "{model_url}/v1", "apiKey": "{model_key}"},
			"models": map[string]any{name: map[string]any{
				"name": name, "tool_call": true, "limit": map[string]any{"context": 200_000, "output": 32_000},
			}},
		}},
		"model": full, "small_model": full, "enabled_providers": []string{provider},
		"share": "disabled", "autoupdate": false, "permission": map[string]any{"*": "ask"},
	}
}
