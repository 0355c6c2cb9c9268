package policy

import (
	"encoding/json"
	"net/url"
	"sync"

	"github.com/holdfast-run/holdfast/sandbox/check"
)

// fields are the parts of a tool's input that rules are about.
type fields struct {
	Command  string `json:"command"`
	FilePath string `json:"file_path"`
	Path     string `json:"path"`
	URL      string `json:"url"`
	Subagent string `json:"subagent_type"`
	// Unsandboxed is the model's wish to run a command outside of the sandbox.
	Unsandboxed json.RawMessage `json:"dangerouslyDisableSandbox"`
}

// call is a request with its input taken apart, each part once.
type call struct {
	Request
	fields
	// readable: the input is an object.
	readable bool
	analysis func() (*check.Analysis, error)
}

func newCall(req Request) *call {
	c := &call{Request: req}
	c.readable = json.Unmarshal(req.Input, &c.fields) == nil
	c.analysis = sync.OnceValues(func() (*check.Analysis, error) { return check.Analyze(c.Command, req.cwd(), req.home()) })
	return c
}

// filePath is the file or directory that a call names, absolute; searching tools
// without one work in the working directory.
func (c *call) filePath() (string, bool) {
	if !c.readable {
		return "", false
	}
	p := c.FilePath
	if p == "" {
		p = c.Path
	}
	if p == "" {
		if tools[c.Tool] != reads || c.Tool == "Read" {
			return "", false
		}
		return c.cwd(), true
	}
	return c.absolute(p), true
}

// wantsOut reports whether a command asks to run outside of the sandbox.
func (c *call) wantsOut() bool {
	v := string(c.Unsandboxed)
	return c.Tool == "Bash" && v != "" && v != "false" && v != "null"
}

// hostOf is the host of an address; empty for none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
