package policy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

//go:embed danger.json
var dangerJSON []byte

// danger is the content of danger.json: the calls that mode auto does not allow by itself.
type danger struct {
	// Commands lists command names by the reason why they are dangerous. Arguments lists
	// commands that are dangerous with certain words, Secrets patterns of secret files.
	Commands  map[string][]string `json:"commands"`
	Arguments []struct {
		Command string   `json:"command"`
		Words   []string `json:"words"`
		Why     string   `json:"why"`
	} `json:"arguments"`
	Secrets []string `json:"secrets"`

	byName map[string]string
}

var dangers = sync.OnceValues(func() (*danger, error) {
	d := &danger{byName: map[string]string{}}
	if err := json.Unmarshal(dangerJSON, d); err != nil {
		return nil, err
	}
	for why, names := range d.Commands {
		for _, n := range names {
			d.byName[n] = why
		}
	}
	return d, nil
})

// dangerous says what is dangerous about a call, or returns an empty string if nothing is.
func dangerous(c *call) string {
	d, err := dangers()
	if err != nil {
		return "the list of dangers cannot be read: " + err.Error()
	}
	switch c.tool.Class {
	case ClassEdits:
		p, ok := c.filePath()
		switch {
		case !ok:
			return "the call names no file"
		case !inWorkspace(c):
			return p + " lies outside of the workspace"
		}
		return d.secret(c, p)
	case ClassRuns:
		switch {
		case c.tool.Subject == SubjectCommand:
			return d.command(c)
		case c.tool.Subject == SubjectURL:
			return c.req.Tool + " reaches the network"
		case c.tool.Name == "Task":
			return ""
		}
		return c.req.Tool + " may run commands of its own"
	case ClassPlans, ClassSearches:
		return ""
	}
	return "it is not known what the tool " + holdfast.Quote(c.req.Tool) + " does"
}

func (d *danger) command(c *call) string {
	if !c.readable {
		return "the command of the call cannot be read"
	}
	an, err := c.analysis()
	switch {
	case err != nil:
		return "the command cannot be read: " + err.Error()
	case len(an.Opaque) > 0:
		return an.Opaque[0].Reason
	case len(an.Unsure) > 0:
		return an.Unsure[0].Reason
	}
	for _, cmd := range an.Commands {
		c.clock.tick()
		if why := d.call(c, cmd); why != "" {
			return why
		}
	}
	for _, r := range an.Redirects {
		p := c.req.absolute(r.Path)
		if r.Writes && !below(p, c.req.cwd()) && !strings.HasPrefix(p, "/dev/") && !below(p, "/tmp") {
			return p + " lies outside of the workspace"
		}
		if why := d.secret(c, p); why != "" {
			return why
		}
	}
	return ""
}

func (d *danger) call(c *call, cmd check.Command) string {
	name := path.Base(cmd.Name)
	if why := d.byName[name]; why != "" {
		return name + " " + why
	}
	for _, a := range d.Arguments {
		if a.Command == name && !slices.ContainsFunc(a.Words, func(w string) bool { return !slices.Contains(cmd.Args, w) }) {
			return fmt.Sprintf("%s %s %s", name, strings.Join(a.Words, " "), a.Why)
		}
	}
	for _, arg := range cmd.Args {
		c.clock.tick()
		if _, v, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
			arg = v
		}
		if why := d.secret(c, c.req.absolute(arg)); why != "" {
			return why
		}
	}
	return ""
}

func (d *danger) secret(c *call, p string) string {
	c.clock.tick()
	for _, pattern := range d.Secrets {
		if matchPath(c.req, pattern, p) {
			return p + " may hold secrets"
		}
	}
	return ""
}
