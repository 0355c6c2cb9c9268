package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

const op = "agent settings"

// reader converts the parsed tree of one file to settings; err is the first error.
type reader struct {
	file    string
	tools   []policy.Tool
	tighten bool
	out     *Settings
	err     error
}

// bad returns the error that refuses a field, or the whole file if path is empty.
func (r *reader) bad(path, format string, args ...any) *holdfast.Error {
	where := r.file
	if path != "" {
		where += ": " + path
	}
	return holdfast.Errorf(holdfast.KindInvalid, op, "error in the settings file %s: %s", where, fmt.Sprintf(format, args...))
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// notice adds a notice for the person who deploys, about a setting that has no effect here.
func (r *reader) notice(format string, args ...any) {
	r.out.Notices = append(r.out.Notices, r.file+": "+fmt.Sprintf(format, args...))
}

// each reads the keys of an object by their functions in known; other keys, and keys without a value, are refused.
func (r *reader) each(path string, o object, known map[string]func(path string, v any)) {
	for _, f := range o {
		at := f.key
		if path != "" {
			at = path + "." + f.key
		}
		read, ok := known[f.key]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			r.fail(r.bad(path, "the key %s is not known", holdfast.Quote(f.key)).WithHint("the keys known there are %s", strings.Join(names, ", ")))
			return
		}
		if f.value == nil {
			r.fail(r.bad(at, "no value is given").WithHint("write a value or remove the key"))
			return
		}
		read(at, f.value)
	}
}

// own reads holdfast.yaml.
func (r *reader) own(root object) {
	r.each("", root, map[string]func(string, any){
		"description":            r.label(&r.out.Description, 1000),
		"runtime":                r.label(&r.out.Runtime, 100),
		"model":                  r.label(&r.out.Model, 200),
		"mode":                   r.mode(&r.out.Mode),
		"hooks":                  r.hooks,
		"workspace_instructions": r.oneOf(&r.out.WorkspaceInstructions, "allow", "deny"),
		"permissions": r.under(map[string]func(string, any){
			"allow": r.rules(&r.out.Rules.Allow, false), "ask": r.rules(&r.out.Rules.Ask, true), "deny": r.rules(&r.out.Rules.Deny, true),
			"sandbox": r.sandbox,
		}),
	})
}

// cosmetic are the keys of Claude Code's settings, besides hooks and permissions, that cause no notice: they do
// not change an agent's permissions.
var cosmetic = []string{
	"$schema", "alwaysThinkingEnabled", "attribution", "autoUpdatesChannel", "cleanupPeriodDays", "companyAnnouncements", "feedbackSurveyState",
	"includeCoAuthoredBy", "language", "outputStyle", "plansDirectory", "prefersReducedMotion", "showTurnDuration", "spinnerTipsEnabled",
	"spinnerTipsOverride", "spinnerVerbs", "statusLine", "terminalProgressBarEnabled", "theme", "fileSuggestion",
}

// claude reads .claude/settings.json. Its keys other than hooks and permissions are left to Claude
// Code.
func (r *reader) claude(root object) {
	known := map[string]func(string, any){
		"hooks": r.hooks,
		"permissions": r.under(map[string]func(string, any){
			"allow": r.rules(&r.out.Rules.Allow, false), "ask": r.rules(&r.out.Rules.Ask, true), "deny": r.rules(&r.out.Rules.Deny, true),
			"defaultMode":                  r.defaultMode,
			"additionalDirectories":        r.ignore("tools work in the box's own directories"),
			"disableBypassPermissionsMode": r.ignore("a session's mode is chosen when it is created"),
		}),
	}
	for _, f := range root {
		if known[f.key] != nil {
			continue
		}
		known[f.key] = func(string, any) {}
		if !slices.Contains(cosmetic, f.key) {
			r.notice("%s is ignored: it means nothing here", holdfast.Quote(f.key))
		}
	}
	r.each("", slices.DeleteFunc(slices.Clone(root), func(f field) bool { return f.value == nil && !slices.Contains([]string{"hooks", "permissions"}, f.key) }), known)
}

func (r *reader) ignore(why string) func(string, any) {
	return func(path string, _ any) { r.notice("%s is ignored: %s", path, why) }
}

// under returns a function that reads an object by the keys in known.
func (r *reader) under(known map[string]func(string, any)) func(string, any) {
	return func(path string, v any) {
		o, ok := v.(object)
		if !ok {
			r.fail(r.bad(path, "the value must be a map of keys and values"))
			return
		}
		r.each(path, o, known)
	}
}

// label returns a function that reads a text of at most most bytes.
func (r *reader) label(out *string, most int) func(string, any) {
	return func(path string, v any) {
		s, ok := v.(string)
		switch {
		case !ok:
			r.fail(r.bad(path, "%s is not text", holdfast.Quote(show(v))).WithHint("put the value into quotes"))
		case strings.TrimSpace(s) == "":
			r.fail(r.bad(path, "the value is empty").WithHint("write a value or remove the key"))
		case len(s) > most:
			r.fail(r.bad(path, "the text %s is longer than %d bytes", holdfast.Quote(s), most))
		case strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) && c != '\n' }):
			r.fail(r.bad(path, "the text %s contains a control character", holdfast.Quote(s)))
		default:
			*out = strings.TrimSpace(s)
		}
	}
}

// oneOf returns a function that reads a setting whose value must be the text in the parameter yes, for which it sets
// out to true, or the text in the parameter no, for which it sets out to false.
func (r *reader) oneOf(out *bool, yes, no string) func(string, any) {
	return func(path string, v any) {
		switch s, _ := v.(string); s {
		case yes, no:
			*out = s == yes
		default:
			r.fail(r.bad(path, "%s is neither %s nor %s", holdfast.Quote(show(v)), yes, no).WithHint("write %s: %s", path, yes))
		}
	}
}

func (r *reader) mode(out *holdfast.Mode) func(string, any) {
	return func(path string, v any) {
		s, _ := v.(string)
		m, err := holdfast.Parse[holdfast.Mode](s)
		if err != nil {
			r.fail(r.bad(path, "%s is not a permission mode", holdfast.Quote(show(v))).WithHint("%s", holdfast.HintOf(err)))
			return
		}
		*out = m
	}
}

// defaultMode reads Claude Code's key for the mode, which a mode in holdfast.yaml overrides.
func (r *reader) defaultMode(path string, v any) {
	var m holdfast.Mode
	if r.mode(&m)(path, v); r.out.Mode == "" {
		r.out.Mode = m
	}
}

// rules returns a function that reads a list of rules. In a workspace, lists that do not tighten
// are ignored.
func (r *reader) rules(out *[]policy.Rule, tightens bool) func(string, any) {
	return func(path string, v any) {
		list, ok := v.([]any)
		if !ok {
			r.fail(r.bad(path, "%s is not a list of rules", holdfast.Quote(show(v))).WithHint(`write a list, as ["Bash(git *)"]`))
			return
		}
		if r.tighten && !tightens {
			return
		}
		for i, item := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			s, ok := item.(string)
			if !ok {
				r.fail(r.bad(at, "%s is not a rule", holdfast.Quote(show(item))).WithHint("put the value into quotes"))
				return
			}
			rule, err := policy.ParseRule(s, r.tools...)
			if err != nil {
				r.fail(holdfast.Errorf(holdfast.KindInvalid, op, "error in the settings file %s: %s: %w", r.file, at, err).WithHint("%s", holdfast.HintOf(err)))
				return
			}
			*out = append(*out, r.spelled(rule, tightens)...)
		}
	}
}

// spelled returns a rule of this file as rules in the server's notation. In Claude Code's settings,
// a path that begins with one slash is relative to the folder, and one with two is absolute. A rule
// that tightens and has a single slash is used both ways.
func (r *reader) spelled(rule policy.Rule, tightens bool) []policy.Rule {
	if r.file != ClaudeFile || !rule.OfPaths(r.tools...) || !strings.HasPrefix(rule.Spec, "/") || strings.HasPrefix(rule.Spec, "//") {
		return []policy.Rule{rule}
	}
	below := rule
	below.Spec = "." + rule.Spec
	if tightens {
		return []policy.Rule{below, rule}
	}
	return []policy.Rule{below}
}

// sandbox reads the sandbox settings, which check.ParseSettings defines.
func (r *reader) sandbox(path string, v any) {
	if _, ok := v.(object); !ok {
		r.fail(r.bad(path, "the value must be a map of keys and values"))
		return
	}
	raw, err := json.Marshal(v)
	if err != nil {
		r.fail(r.bad(path, "%s", err))
		return
	}
	s, err := check.ParseSettings(raw)
	if err == nil && !r.tighten {
		err = s.Unsupported()
	}
	if err != nil {
		r.fail(holdfast.Errorf(holdfast.KindInvalid, op, "error in the settings file %s: %s: %w", r.file, path, err).WithHint("%s", holdfast.HintOf(err)))
		return
	}
	r.out.Sandbox = &s
	for _, l := range s.Lint() {
		r.notice("%s: %s", path, l)
	}
}

// hooks reads hooks; those of a workspace are ignored.
func (r *reader) hooks(path string, v any) {
	o, ok := v.(object)
	if !ok {
		r.fail(r.bad(path, "the value must be a map from events to the hooks that they run"))
		return
	}
	if r.tighten || len(o) == 0 {
		return
	}
	raw, err := json.Marshal(o)
	if err != nil {
		r.fail(r.bad(path, "%s", err))
		return
	}
	var c hook.Config
	if r.file == ClaudeFile {
		c, err = hook.ParseSettings(raw)
	} else if err = json.Unmarshal(raw, &c); err == nil {
		err = new(hook.Registry).Load(c, hook.InBox)
	}
	if err != nil {
		r.fail(holdfast.Errorf(holdfast.KindInvalid, op, "error in the settings file %s: %w", r.file, err).WithHint("%s", holdfast.HintOf(err)))
		return
	}
	if r.out.Hooks == nil {
		r.out.Hooks = hook.Config{}
	}
	for event, groups := range c {
		r.out.Hooks[event] = append(r.out.Hooks[event], groups...)
	}
}

// show returns a value as JSON, for error texts.
func show(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}
