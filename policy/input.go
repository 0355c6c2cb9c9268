package policy

import (
	"context"
	"encoding/json"
	"net/url"
	"sync"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

// fields are the parts of a tool's input that rules can match.
type fields struct {
	// The call's subject is in Command, Path, URL or Name, depending on the tool's Subject.
	Command, Path, URL, Name string
	// Pattern is the pattern of a call of Glob.
	Pattern string
	// Unsandboxed is the raw value of the input field dangerouslyDisableSandbox, with which
	// a model asks to run a command outside of the sandbox.
	Unsandboxed json.RawMessage
}

// call is a request with its input parsed; each part is parsed only once.
type call struct {
	req Request
	fields
	// tool is the registered tool with the call's name, ignoring case, or the zero Tool if
	// none has that name. tools are the registered tools besides the standard ones.
	tool  Tool
	tools tools
	// readable is true if the input is a JSON object of allowed size in which the field of
	// the subject is a string or absent.
	readable bool
	analysis func() (*check.Analysis, error)
	clock    clock
}

func newCall(ctx context.Context, req Request, known tools) *call {
	c := readCall(req, known)
	c.clock = clock{ctx: ctx, left: judgingTime}
	c.analysis = sync.OnceValues(c.analyze)
	return c
}

// readCall returns a call that is not judged.
func readCall(req Request, known tools) *call {
	c := &call{req: req, tools: known}
	c.tool, _ = known.find(req.Tool)
	c.readable = len(req.Input) <= maxInput && c.read()
	return c
}

// read extracts the subject from the input, and reports whether that was possible. A field
// name must be spelled exactly as registered, as the tool itself expects it.
func (c *call) read() bool {
	var in map[string]json.RawMessage
	if json.Unmarshal(c.req.Input, &in) != nil {
		return false
	}
	to := c.subject()
	if to == nil {
		return true
	}
	if c.tool.Subject == SubjectCommand {
		c.Unsandboxed = in["dangerouslyDisableSandbox"]
	}
	if raw, ok := in["pattern"]; ok && c.tool.Name == "Glob" && json.Unmarshal(raw, &c.Pattern) != nil {
		return false
	}
	raw, ok := in[c.tool.Field]
	return !ok || json.Unmarshal(raw, to) == nil
}

// subject returns the part of the input that holds the call's subject; nil if its tool has none.
func (c *call) subject() *string {
	switch c.tool.Subject {
	case SubjectCommand:
		return &c.Command
	case SubjectPath:
		return &c.Path
	case SubjectURL:
		return &c.URL
	case SubjectName:
		return &c.Name
	}
	return nil
}

// SubjectOf returns the tool that a call names, and the call's subject: the text that the engine judges, from the field
// that the tool itself reads. It is empty if the tool has no subject, or the call leaves it out. SubjectOf returns false if
// neither the standard tools nor more have exactly that name, or if the engine cannot read the input.
func SubjectOf(name string, input json.RawMessage, more ...Tool) (Tool, string, bool) {
	c := readCall(Request{Tool: name, Input: input}, more)
	if c.tool.Name != name || name == "" || !c.readable {
		return Tool{}, "", false
	}
	to := c.subject()
	if to == nil {
		return c.tool, "", true
	}
	return c.tool, *to, true
}

// filePath returns the absolute path of the file or directory that a call names. A tool
// whose path is optional (Tool.Optional) uses the working directory if the call names none.
func (c *call) filePath() (string, bool) {
	switch {
	case !c.readable || c.tool.Subject != SubjectPath:
		return "", false
	case c.Path != "":
		return c.req.absolute(c.Path), true
	}
	return c.req.cwd(), c.tool.Optional
}

// wantsOut reports whether a command asks to run outside of the sandbox.
func (c *call) wantsOut() bool {
	v := string(c.Unsandboxed)
	return v != "" && v != "false" && v != "null"
}

// hostOf returns the host name of a URL; empty if the URL has none or is malformed.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// category returns the category of a denial for Settings.Ignores: network, command or file.
func category(of Subject, code check.Code) string {
	switch {
	case of == SubjectURL:
		return "network"
	case of == SubjectCommand && code != check.CodeDeniedPath && code != check.CodeOutside:
		return "command"
	}
	return "file"
}
