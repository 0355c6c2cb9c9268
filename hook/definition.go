package hook

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Where names the place where a hook runs.
type Where string

// The places: commands run on the host or in the box; http is for hooks with a URL; server (this
// process) is for Go functions.
const (
	OnHost Where = "host"
	InBox  Where = "box"
	InHTTP Where = "http"
	InProc Where = "server"
)

// The default, least and greatest timeout of a hook.
const (
	DefaultTimeout = 30 * time.Second
	MinTimeout     = time.Millisecond
	MaxTimeout     = 10 * time.Minute
)

// Func is a hook as a Go function. A nil Output has no effect. The function runs in its own
// goroutine and should return when ctx ends; Run does not wait for it any longer then.
type Func func(ctx context.Context, in Input) (*Output, error)

// Definition defines a hook. Exactly one of Func, Command and URL is set.
type Definition struct {
	Event Event
	// Matcher selects tools: a plain word is the exact name of a tool, anything else a regular
	// expression (RE2) that is searched in the name. If Matcher is neither empty nor *, the hook
	// does not run for events without a tool.
	Matcher string
	// Name is the hook's name in log events; empty means the command or URL.
	Name string
	// Timeout limits the time of a run, between MinTimeout and MaxTimeout; 0 means DefaultTimeout.
	Timeout time.Duration
	// FailClosed makes it a denial if the hook fails, times out, cannot be run or gives an invalid answer. After a tool call
	// a denial refuses nothing: the model is only told about it.
	FailClosed bool

	Func Func
	// Command is run with /bin/bash -c and gets the input on stdin. Where is OnHost (also if
	// empty) or InBox.
	Command string
	Where   Where
	// URL gets the input in a POST request, with Secret, if set, as the bearer token.
	URL, Secret string
}

// Hook is a valid Definition, ready to run.
type Hook struct {
	def Definition
	// order is the number of the hook's registration.
	order int64
	match func(tool string) bool
}

// Where returns the place where the hook runs.
func (h *Hook) Where() Where { return h.def.Where }

// Order returns the number of the hook's registration in its registry, from 1.
func (h *Hook) Order() int64 { return h.order }

// Name returns the hook's name in log events, without parts of a URL that may be secret.
func (h *Hook) Name() string { return h.def.Name }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// bad is an error about a field of a definition.
func bad(field, format string, args ...any) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindInvalid, op, field+": "+format, args...)
}

// newHook validates a definition and returns its Hook. Its errors have the kind invalid and name
// the field.
func newHook(d Definition) (*Hook, error) {
	if _, err := ParseEvent(string(d.Event)); err != nil {
		return nil, bad("event", "%w", err).WithHint("%s", holdfast.HintOf(err))
	}
	h := &Hook{def: d}
	switch {
	case d.Matcher == "" || d.Matcher == "*":
		h.def.Matcher = ""
	case plainWord.MatchString(d.Matcher):
		h.match = func(tool string) bool { return tool == d.Matcher }
	default:
		re, err := regexp.Compile(d.Matcher)
		if err != nil {
			return nil, bad("matcher", "%s is not a regular expression: %w", holdfast.Quote(d.Matcher), err)
		}
		h.match = re.MatchString
	}
	if h.def.Timeout == 0 {
		h.def.Timeout = DefaultTimeout
	}
	if h.def.Timeout < MinTimeout || h.def.Timeout > MaxTimeout {
		return nil, bad("timeout", "%s is not within %s and %s", d.Timeout, MinTimeout, MaxTimeout)
	}
	n := 0
	for _, set := range []bool{d.Func != nil, d.Command != "", d.URL != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		return nil, bad("command", "give exactly one of a function, a command and a url")
	}
	return h, h.place()
}

// place validates the fields of the hook's kind (function, command or URL), and sets where the hook runs and its name.
func (h *Hook) place() error {
	d := &h.def
	name := "function"
	switch {
	case d.Func != nil:
		d.Where = InProc
	case d.Command != "":
		name = d.Command
		if d.Where == "" {
			d.Where = OnHost
		}
		if d.Where != OnHost && d.Where != InBox {
			return bad("where", "%s is neither host nor box", holdfast.Quote(string(d.Where)))
		}
		if strings.ContainsRune(d.Command, 0) || strings.TrimSpace(d.Command) == "" {
			return bad("command", "%s is not a command", holdfast.Quote(d.Command))
		}
	default:
		u, err := url.Parse(d.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return bad("url", "%s is not an http or https address", holdfast.Quote(d.URL))
		}
		d.Where = InHTTP
		// The name has neither the user nor the query of the URL: they may hold a secret.
		name = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	if d.Secret != "" && (d.Where != InHTTP || strings.ContainsAny(d.Secret, "\r\n\x00")) {
		return bad("secret_file", "a secret must be one line, and is allowed only for a hook with a url")
	}
	if d.Name == "" {
		d.Name = name
	}
	d.Name = clean(d.Name, maxName)
	return nil
}

// wants reports whether the hook's event and matcher fit an event.
func (h *Hook) wants(in Input) bool {
	return h.def.Event == in.Event && (h.match == nil || in.ToolName != "" && h.match(in.ToolName))
}
