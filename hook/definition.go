package hook

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Where is where a hook runs.
type Where string

// The places. A function runs in the process, an address is asked over HTTP.
const (
	OnHost Where = "host"
	InBox  Where = "box"
	InHTTP Where = "http"
	InProc Where = "server"
)

// The bounds of a hook's time.
const (
	DefaultTimeout = 30 * time.Second
	MinTimeout     = time.Millisecond
	MaxTimeout     = 10 * time.Minute
)

// Func is a hook as a function. A nil Output is none. It runs in a goroutine of
// its own and should heed ctx; when it does not, it is no longer waited for.
type Func func(ctx context.Context, in Input) (*Output, error)

// Definition is a hook. Exactly one of Func, Command and URL is set.
type Definition struct {
	Event Event
	// Matcher selects tools: a plain word is the exact name, anything else is a
	// regular expression (RE2) that is searched in it; empty and * are every event.
	// Where it is set and the event is about no tool, the hook is not run.
	Matcher string
	// Name is how the hook is called in events; empty takes the command or address.
	Name string
	// Timeout bounds a run; 0 is DefaultTimeout, the least is MinTimeout.
	Timeout time.Duration
	// FailClosed makes a failure of the hook a denial.
	FailClosed bool

	Func Func
	// Command is run by /bin/bash -c, its input on stdin; Where is OnHost (the zero
	// value) or InBox.
	Command string
	Where   Where
	// URL gets the input as a POST; Secret, if set, goes along as a bearer token.
	URL, Secret string
}

// Hook is a definition that was found sound.
type Hook struct {
	def Definition
	// order is the number of its registration.
	order int64
	match func(tool string) bool
}

// Where is where the hook runs.
func (h *Hook) Where() Where { return h.def.Where }

// Order is the number of the hook's registration, in its registry and from 1.
func (h *Hook) Order() int64 { return h.order }

// Name is the hook's name in events: without what might be a secret.
func (h *Hook) Name() string { return h.def.Name }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// newHook checks a definition. Its errors are invalid and name the field.
func newHook(d Definition) (*Hook, error) {
	bad := func(field, format string, args ...any) *holdfast.Error {
		return holdfast.Errorf(holdfast.KindInvalid, op, field+": "+format, args...)
	}
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
	return h, h.place(bad)
}

// place checks what belongs to the hook's kind, and names it.
func (h *Hook) place(bad func(field, format string, args ...any) *holdfast.Error) error {
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
		// Neither a user nor a query is shown: there may be a secret in them.
		name = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	if d.Secret != "" && (d.Where != InHTTP || strings.ContainsAny(d.Secret, "\r\n\x00")) {
		return bad("secret_file", "a secret is one line, and for a url")
	}
	if d.Name == "" {
		d.Name = name
	}
	d.Name = clean(d.Name, maxName)
	return nil
}

// wants reports whether the hook is for an event.
func (h *Hook) wants(in Input) bool {
	return h.def.Event == in.Event && (h.match == nil || in.ToolName != "" && h.match(in.ToolName))
}
