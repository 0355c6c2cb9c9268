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

// Settings are the sandbox settings: what an agent's commands may access. The zero value
// restricts nothing. The JSON field names are those of Claude Code's sandbox settings.
type Settings struct {
	// AllowedReadPaths and AllowedWritePaths list the directories and files that may be read
	// and written, with everything below them; an empty list allows all paths.
	AllowedReadPaths  []string `json:"allowedReadPaths,omitempty"`
	AllowedWritePaths []string `json:"allowedWritePaths,omitempty"`
	// DeniedPaths may be neither read nor written, even if another list allows them.
	DeniedPaths []string `json:"deniedPaths,omitempty"`
	// DeniedWritePaths may be read but not written, even if AllowedWritePaths allows it.
	DeniedWritePaths []string `json:"deniedWritePaths,omitempty"`
	// DeniedCommands may not run. The list is ignored if AllowedCommands is set.
	DeniedCommands []string `json:"deniedCommands,omitempty"`
	// AllowedCommands, if not nil, are the only commands that may run; empty allows none.
	AllowedCommands []string `json:"allowedCommands,omitzero"`
	// AllowNestedSandbox lets an agent in a sandbox start another sandbox.
	AllowNestedSandbox bool `json:"allowNestedSandbox,omitempty"`
	// AutoAllowBashIfSandboxed allows Bash calls that an operating-system sandbox confines.
	AutoAllowBashIfSandboxed bool `json:"autoAllowBashIfSandboxed,omitempty"`
	// AllowUnsandboxedCommands lets the model request to run a command outside of the
	// sandbox; the policy still decides about the request.
	AllowUnsandboxedCommands bool `json:"allowUnsandboxedCommands,omitempty"`
	// EnableWeakerNestedSandbox lets a child agent's settings allow more than these.
	EnableWeakerNestedSandbox bool `json:"enableWeakerNestedSandbox,omitempty"`
	// IgnoreViolations lists, for each of the categories file, network and command, patterns of
	// denials that reports leave out. The denials stay in force.
	IgnoreViolations map[string][]string `json:"ignoreViolations,omitempty"`
	// Network restricts domains; nil adds no restriction.
	Network *Network `json:"network,omitempty"`
	// Ripgrep is the search program of the Grep tool; nil means the default one.
	Ripgrep *Ripgrep `json:"ripgrep,omitempty"`
}

// Network restricts the network destinations that commands may reach.
type Network struct {
	// AllowedDomains lists host names, IP addresses, or `*.` and a domain for all names below it. Empty allows none.
	AllowedDomains          []string `json:"allowedDomains,omitempty"`
	AllowManagedDomainsOnly bool     `json:"allowManagedDomainsOnly,omitempty"`
	AllowLocalBinding       bool     `json:"allowLocalBinding,omitempty"`
	AllowUnixSockets        bool     `json:"allowUnixSockets,omitempty"`
	AllowAllUnixSockets     bool     `json:"allowAllUnixSockets,omitempty"`
	HTTPProxyPort           *int     `json:"httpProxyPort,omitempty"`
	SOCKSProxyPort          *int     `json:"socksProxyPort,omitempty"`
}

// Ripgrep is a search program and its first arguments.
type Ripgrep struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// maxSettings is the greatest size of a settings file, in bytes.
const maxSettings = 1 << 20

// ReadSettings parses the settings in r with ParseSettings; over 1 MiB is invalid.
func ReadSettings(r io.Reader) (Settings, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSettings+1))
	switch {
	case err != nil:
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "the sandbox settings cannot be read: %w", err)
	case len(b) > maxSettings:
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "the sandbox settings are larger than %d bytes", maxSettings)
	}
	return ParseSettings(b)
}

// ParseSettings parses settings in JSON. Unknown fields and rules that Validate refuses are
// invalid; the error names them.
func ParseSettings(b []byte) (Settings, error) {
	var s Settings
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); errors.Is(err, io.EOF) {
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "the sandbox settings are empty").WithHint("write {} for sandbox settings that deny nothing")
	} else if err != nil {
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "the sandbox settings cannot be parsed: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Settings{}, holdfast.Errorf(holdfast.KindInvalid, op, "text follows the sandbox settings after the end of their JSON")
	}
	return s, s.Validate()
}

func bad(field string, i int, why, value string) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, op, "setting %s[%d]: %s: %s", field, i, why, holdfast.Quote(value))
}

// Validate refuses rules that would not have the effect that they seem to have: an empty or
// relative path, a command with blanks, an invalid domain.
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
			return holdfast.Errorf(holdfast.KindInvalid, op, "ignoreViolations: %s is not a category of violations", holdfast.Quote(category)).
				WithHint("use the category file, network or command")
		}
		for i, p := range patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				return bad("ignoreViolations."+category, i, "the value is not a valid glob pattern", p)
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
		return bad(field, i, "the path contains a NUL byte", p)
	case !strings.HasPrefix(p, "/") && p != "~" && !strings.HasPrefix(p, "~/"):
		return bad(field, i, "the path is relative", p).WithHint("write the path from the root, or from ~/")
	}
	return nil
}

func validCommand(field string, i int, c string) error {
	if c == "" || strings.ContainsAny(c, " \t\r\n\x00;|&<>()$`\"'\\*?[]{}#~!=") || strings.HasSuffix(c, "/") {
		return bad(field, i, "the value is not the name of a command", c).WithHint("name the program alone, as git; arguments belong into policy rules such as Bash(git *)")
	}
	return nil
}

func (n *Network) validate() error {
	for i, d := range n.AllowedDomains {
		if !ValidDomain(d) {
			return bad("network.allowedDomains", i, "the value is neither a domain nor an IP address", d).WithHint("write a domain as example.com, or *.example.com for all names below it")
		}
	}
	for name, port := range map[string]*int{"httpProxyPort": n.HTTPProxyPort, "socksProxyPort": n.SOCKSProxyPort} {
		if port != nil && (*port < 1 || *port > 65535) {
			return holdfast.Errorf(holdfast.KindInvalid, op, "network.%s: %d is not a port number", name, *port)
		}
	}
	return nil
}

// Unsupported returns an error (invalid) that names a field which Holdfast cannot carry out,
// or nil. Accepting such a field would promise a protection that does not exist.
func (s Settings) Unsupported() error {
	if s.Network == nil {
		return nil
	}
	for _, f := range []struct {
		name string
		port *int
	}{{"httpProxyPort", s.Network.HTTPProxyPort}, {"socksProxyPort", s.Network.SOCKSProxyPort}} {
		if f.port != nil {
			return holdfast.Errorf(holdfast.KindInvalid, op, "network.%s: nothing would go through port %d, because boxes have no network and no such proxy", f.name, *f.port).
				WithHint("remove network.%s", f.name)
		}
	}
	return nil
}

// Ignores reports whether a denial is to be left out of reports, because a pattern in
// IgnoreViolations for its category (file, network, command) matches its subject.
func (s Settings) Ignores(category, subject string) bool {
	return slices.ContainsFunc(s.IgnoreViolations[category], func(pattern string) bool {
		ok, err := path.Match(pattern, subject)
		return pattern == "*" || err == nil && ok
	})
}

// Lint returns warnings about rules that are legal but have no effect in Holdfast, or are probably a mistake.
func (s Settings) Lint() []string {
	var out []string
	idle := func(set bool, field, why string) {
		if set {
			out = append(out, field+" has no effect: "+why)
		}
	}
	idle(s.AllowNestedSandbox, "allowNestedSandbox", "no sandbox can be started inside of a box")
	idle(s.Ripgrep != nil, "ripgrep", "the box has its own search program")
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
		out = append(out, "allowUnsandboxedCommands lets the policy allow an unsandboxed command, but in an untrusted session it still runs in the box")
	}
	if s.AllowedCommands != nil && len(s.DeniedCommands) > 0 {
		out = append(out, "deniedCommands has no effect: allowedCommands is set, too")
	}
	return out
}

// Equal reports whether s and o have equal fields. A nil and an empty list are equal, except for AllowedCommands.
func (s Settings) Equal(o Settings) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// String returns the fields that are set, with their values.
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
