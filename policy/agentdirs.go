package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// AgentDir is a directory in which an agent keeps its configuration and its conversations. File tools get no
// access to it, in any mode. Commands get access, because the agent's own program runs as a command.
type AgentDir struct {
	// Path is the directory, relative to the home.
	Path string
	// Results is a pattern below the directory of the files in which the agent stores results of calls that are too
	// long for its model; empty if it stores none. Read may open them. A segment matches as in path.Match; `**` is
	// any number of directories.
	Results string
}

// check refuses a directory that is not below the home.
func (d AgentDir) check() error {
	if d.Path == "" || d.Path != path.Clean(d.Path) || path.IsAbs(d.Path) || d.Path == "." || d.Path == ".." || strings.HasPrefix(d.Path, "../") {
		return holdfast.Errorf(holdfast.KindInvalid, "policy", "the agent directory %s is not a clean relative path below the home", holdfast.Quote(d.Path)).
			WithHint("name the directory relative to the home, as .claude")
	}
	return nil
}

// AgentDirs returns the directories of agents, relative to the home.
func (e *Engine) AgentDirs() []string {
	var out []string
	for _, d := range e.agentDirs {
		if !slices.Contains(out, d.Path) {
			out = append(out, d.Path)
		}
	}
	return out
}

// ofAgents denies a call of a file tool that names an agent's directory or a file in it, except a Read of a stored
// result. A search by the agent's own program is also denied if the searched directory contains an agent's directory.
func ofAgents(dirs []AgentDir, c *call) Decision {
	p, ok := c.filePath()
	if !ok {
		return Decision{}
	}
	if c.tool.Name == "Read" && results(dirs, c.req, p) {
		return Decision{}
	}
	p, searches := c.searched(p)
	for _, d := range dirs {
		root := path.Join(c.req.home(), d.Path)
		switch {
		case below(p, root):
			return deny("agent directories", "%s is in ~/%s, where an agent keeps its configuration and its conversations: file tools do not open it",
				holdfast.Quote(p), d.Path)
		case searches && c.req.Unscoped && below(root, p):
			return deny("agent directories", "%s contains ~/%s, where an agent keeps its configuration and its conversations: search a directory that does not",
				holdfast.Quote(p), d.Path)
		}
	}
	return Decision{}
}

// results reports whether a path names a file in which an agent stores the result of a call.
func results(dirs []AgentDir, req Request, p string) bool {
	return slices.ContainsFunc(dirs, func(d AgentDir) bool {
		return d.Results != "" && matchPath(req, literal(path.Join(req.home(), d.Path))+"/"+d.Results, p)
	})
}

// searched returns the directory in which a call of Grep or Glob that names dir searches. searches is false for other tools.
func (c *call) searched(dir string) (in string, searches bool) {
	switch c.tool.Name {
	case "Glob":
		return c.globbed(dir), true
	case "Grep":
		return dir, true
	}
	return dir, false
}

// globbed returns the directory in which a call of Glob begins to search: its pattern may begin with directories, and
// may be absolute. For a pattern with .. after a wildcard that is /, because it may search everywhere.
func (c *call) globbed(dir string) string {
	parts := strings.Split(c.Pattern, "/")
	fixed := slices.IndexFunc(parts, func(s string) bool { return strings.ContainsAny(s, `*?[{\`) })
	if fixed < 0 {
		fixed = len(parts)
	}
	prefix := strings.Join(parts[:fixed], "/")
	switch {
	case slices.Contains(parts[fixed:], ".."):
		return "/"
	case prefix == "" && (fixed == 0 || !strings.HasPrefix(c.Pattern, "/")):
		return dir
	case strings.HasPrefix(c.Pattern, "/"), prefix == "~", strings.HasPrefix(prefix, "~/"):
		return c.req.absolute(prefix + "/")
	}
	return path.Join(dir, prefix)
}
