package policy

import (
	"context"
	"encoding/json"
	"net/url"
	"sync"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

// fields are the parts of a tool's input that rules are about.
type fields struct {
	// Command, Path, URL and Name hold the subject of the call; its tool decides which.
	Command, Path, URL, Name string
	// Unsandboxed is the model's wish to run a command outside of the sandbox.
	Unsandboxed json.RawMessage
}

// call is a request with its input taken apart, each part once.
type call struct {
	req Request
	fields
	// tool is the registered tool that the call means, ignoring case; the zero Tool if
	// none is registered under that name. tools are all of them.
	tool  Tool
	tools tools
	// readable: the input is an object, and the subject in it is a text.
	readable bool
	analysis func() (*check.Analysis, error)
	clock    clock
}

func newCall(ctx context.Context, req Request, known tools) *call {
	c := &call{req: req, tools: known, clock: clock{ctx: ctx, left: judgingTime}}
	c.tool, _ = known.find(req.Tool)
	c.readable = len(req.Input) <= maxInput && c.read()
	c.analysis = sync.OnceValues(c.analyze)
	return c
}

// read takes the subject out of the input. Field names must be spelled exactly as
// registered, because tools read them so: another spelling is another field.
func (c *call) read() bool {
	var in map[string]json.RawMessage
	if json.Unmarshal(c.req.Input, &in) != nil {
		return false
	}
	var to *string
	switch c.tool.Subject {
	case SubjectNone:
		return true
	case SubjectCommand:
		to, c.Unsandboxed = &c.Command, in["dangerouslyDisableSandbox"]
	case SubjectPath:
		to = &c.Path
	case SubjectURL:
		to = &c.URL
	case SubjectName:
		to = &c.Name
	}
	raw, ok := in[c.tool.Field]
	return !ok || json.Unmarshal(raw, to) == nil
}

// filePath is the file or directory that a call names, absolute; searching tools
// without one work in the working directory.
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

// hostOf is the host of an address; empty for none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
