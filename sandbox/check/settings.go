package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

const op = "sandbox settings"

// Settings say what an agent's commands may touch. The zero value restricts
// nothing. The field names of the JSON are those of the article.
type Settings struct {
	// AllowedReadPaths and AllowedWritePaths are roots; empty allows all.
	AllowedReadPaths  []string `json:"allowedReadPaths,omitempty"`
	AllowedWritePaths []string `json:"allowedWritePaths,omitempty"`
	// DeniedPaths are roots that neither may touch; they win over what is allowed.
	DeniedPaths []string `json:"deniedPaths,omitempty"`
	// DeniedWritePaths are roots that may be read but not written; they win over
	// AllowedWritePaths.
	DeniedWritePaths []string `json:"deniedWritePaths,omitempty"`
	// DeniedCommands count only without AllowedCommands.
	DeniedCommands []string `json:"deniedCommands,omitempty"`
	// AllowedCommands, if not nil, are the only commands; empty allows none.
	AllowedCommands []string `json:"allowedCommands,omitzero"`
	// AllowNestedSandbox lets an agent in a sandbox start another one.
	AllowNestedSandbox bool `json:"allowNestedSandbox,omitempty"`
	// AutoAllowBashIfSandboxed approves Bash where a sandbox of the system is in force.
	AutoAllowBashIfSandboxed bool `json:"autoAllowBashIfSandboxed,omitempty"`
	// AllowUnsandboxedCommands lets the model ask for a command outside; it is then
	// still decided upon.
	AllowUnsandboxedCommands bool `json:"allowUnsandboxedCommands,omitempty"`
	// EnableWeakerNestedSandbox lets a child agent's settings be weaker than these.
	EnableWeakerNestedSandbox bool `json:"enableWeakerNestedSandbox,omitempty"`
	// IgnoreViolations leaves denials out of reports, by category (file, network,
	// command) and pattern. It permits nothing.
	IgnoreViolations map[string][]string `json:"ignoreViolations,omitempty"`
	// Network restricts domains; nil adds no restriction.
	Network *Network `json:"network,omitempty"`
	// Ripgrep is the search program of the Grep tool; nil takes the usual one.
	Ripgrep *Ripgrep `json:"ripgrep,omitempty"`
}

// Network restricts what may be reached.
type Network struct {
	// AllowedDomains are names, or `*.` and a name for all below it. Empty allows none.
	AllowedDomains          []string `json:"allowedDomains,omitempty"`
	AllowManagedDomainsOnly bool     `json:"allowManagedDomainsOnly,omitempty"`
	AllowLocalBinding       bool     `json:"allowLocalBinding,omitempty"`
	AllowUnixSockets        bool     `json:"allowUnixSockets,omitempty"`
	AllowAllUnixSockets     bool     `json:"allowAllUnixSockets,omitempty"`
	HTTPProxyPort           *int     `json:"httpProxyPort,omitempty"`
	SOCKSProxyPort          *int     `json:"socksProxyPort,omitempty"`
}

// Ripgrep is a search program and the arguments that come first.
type Ripgrep struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// maxSettings bounds a file of settings.
const maxSettings = 1 << 20

// ReadSettings is ParseSettings of what r holds; over 1 MiB is invalid.
func ReadSettings(r io.Reader) (Settings, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSettings+1))
	switch {
	case err != nil:
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "%w", err)
	case len(b) > maxSettings:
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "over %d bytes", maxSettings)
	}
	return ParseSettings(b)
}

// ParseSettings reads settings as JSON. Unknown fields and rules that make no
// sense are invalid; the error names them.
func ParseSettings(b []byte) (Settings, error) {
	var s Settings
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); errors.Is(err, io.EOF) {
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "they are empty").WithHint("{} is settings that deny nothing")
	} else if err != nil {
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "something follows the settings")
	}
	return s, s.Validate()
}

func bad(field string, i int, why, value string) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "%s[%d]: %s: %s", field, i, why, holdfast.Quote(value))
}

// Validate refuses rules that would not mean what they seem to: an empty or
// relative path, a command with blanks, a domain that is none.
func (s Settings) Validate() error {
	for _, l := range []struct {
		field string
		paths []string
	}{
		{"allowedReadPaths", s.AllowedReadPaths},
		{"allowedWritePaths", s.AllowedWritePaths},
		{"deniedPaths", s.DeniedPaths},
		{"deniedWritePaths", s.DeniedWritePaths},
	} {
		for i, p := range l.paths {
			if err := validPath(l.field, i, p); err != nil {
				return err
			}
		}
	}
	for _, l := range []struct {
		field string
		names []string
	}{{"deniedCommands", s.DeniedCommands}, {"allowedCommands", s.AllowedCommands}} {
		for i, c := range l.names {
			if err := validCommand(l.field, i, c); err != nil {
				return err
			}
		}
	}
	for category, patterns := range s.IgnoreViolations {
		if category != "file" && category != "network" && category != "command" {
			return holdfast.Errorf(holdfast.KindInvalid, op, "ignoreViolations: %s is no category", holdfast.Quote(category)).
				WithHint("use file, network or command")
		}
		for i, p := range patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				return bad("ignoreViolations."+category, i, "not a pattern", p)
			}
		}
	}
	if s.Network != nil {
		return s.Network.validate()
	}
	return nil
}

func validPath(field string, i int, p string) error {
	switch {
	case p == "":
		return bad(field, i, "an empty path would match everything or nothing", p)
	case strings.ContainsRune(p, 0):
		return bad(field, i, "a path with a NUL byte", p)
	case !strings.HasPrefix(p, "/") && p != "~" && !strings.HasPrefix(p, "~/"):
		return bad(field, i, "a relative path", p).WithHint("write it from the root, or from ~/")
	}
	return nil
}

func validCommand(field string, i int, c string) error {
	if c == "" || strings.ContainsAny(c, " \t\r\n\x00;|&<>()$`\"'\\*?[]{}#~!=") || strings.HasSuffix(c, "/") {
		return bad(field, i, "not the name of a command", c).WithHint("name the program alone, as git; arguments belong into policy rules such as Bash(git *)")
	}
	return nil
}

func (n *Network) validate() error {
	for i, d := range n.AllowedDomains {
		if !ValidDomain(d) {
			return bad("network.allowedDomains", i, "not a domain", d).WithHint("write example.com, or *.example.com for all below it")
		}
	}
	for name, port := range map[string]*int{"httpProxyPort": n.HTTPProxyPort, "socksProxyPort": n.SOCKSProxyPort} {
		if port != nil && (*port < 1 || *port > 65535) {
			return holdfast.Errorf(holdfast.KindInvalid, op, "network.%s: %d is not a port", name, *port)
		}
	}
	return nil
}

// Unsupported names a field that asks for something nothing here carries out: such
// settings would promise a wall that is not there. It is nil, or invalid.
func (s Settings) Unsupported() error {
	if s.Network == nil {
		return nil
	}
	for _, f := range []struct {
		name string
		port *int
	}{{"httpProxyPort", s.Network.HTTPProxyPort}, {"socksProxyPort", s.Network.SOCKSProxyPort}} {
		if f.port != nil {
			return holdfast.Errorf(holdfast.KindInvalid, op, "network.%s: nothing would go through port %d: boxes have neither a network nor a proxy", f.name, *f.port).
				WithHint("remove network.%s", f.name)
		}
	}
	return nil
}

// Ignores reports whether a denial is left out of reports: whether a pattern of its
// category (file, network, command) in IgnoreViolations matches the subject.
func (s Settings) Ignores(category, subject string) bool {
	return slices.ContainsFunc(s.IgnoreViolations[category], func(pattern string) bool {
		ok, err := path.Match(pattern, subject)
		return pattern == "*" || err == nil && ok
	})
}

// Lint names rules that are legal and probably not meant so, or mean nothing here.
func (s Settings) Lint() []string {
	var out []string
	idle := func(set bool, field, why string) {
		if set {
			out = append(out, field+" has no effect: "+why)
		}
	}
	idle(s.AllowNestedSandbox, "allowNestedSandbox", "a box lets no sandbox be started in it")
	idle(s.Ripgrep != nil, "ripgrep", "the box searches by itself")
	if n := s.Network; n != nil {
		const own = "the loopback of a box and the sockets in it are its own, and nothing of the host can be reached through them"
		idle(n.AllowLocalBinding, "network.allowLocalBinding", own)
		idle(n.AllowUnixSockets, "network.allowUnixSockets", own)
		idle(n.AllowAllUnixSockets, "network.allowAllUnixSockets", own)
	}
	if len(s.AllowedReadPaths) > 0 && len(s.AllowedWritePaths) == 0 {
		out = append(out, "allowedReadPaths is set and allowedWritePaths is not: every path may be written")
	}
	for i, p := range s.DeniedWritePaths {
		if slices.ContainsFunc(s.DeniedPaths, func(root string) bool { return within(clean(p), clean(root)) }) {
			idle(true, fmt.Sprintf("deniedWritePaths[%d]", i), p+" may not be read either: it lies in deniedPaths")
		}
	}
	if s.AllowUnsandboxedCommands {
		out = append(out, "allowUnsandboxedCommands lets such a command be decided upon; in a boxed session it still runs in the box")
	}
	if s.AllowedCommands != nil && len(s.DeniedCommands) > 0 {
		out = append(out, "deniedCommands has no effect beside allowedCommands")
	}
	return out
}

// Equal reports whether both say the same, field by field; no list and an empty
// one differ for AllowedCommands only.
func (s Settings) Equal(o Settings) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// String lists the fields that are set.
func (s Settings) String() string {
	var out []string
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			b, err := json.Marshal(f.Interface())
			if err != nil {
				b = []byte(err.Error())
			}
			out = append(out, fmt.Sprintf("%s: %s", name, b))
		}
	}
	if len(out) == 0 {
		return "no restrictions"
	}
	return strings.Join(out, ", ")
}
