package policy

import (
	"path"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// byMode returns the opinion of the permission mode, which decides calls that no other stage
// decided.
func byMode(c *call) Decision {
	if _, err := holdfast.Parse[holdfast.Mode](string(c.req.Mode)); err != nil {
		return deny("mode", "%s is not a permission mode", holdfast.Quote(string(c.req.Mode)))
	}
	class := c.tool.Class
	switch {
	case (class == 0 || c.tool.Name != c.req.Tool) && !serverTool(c.req.Tool):
		return deny("mode", "%s is not a registered tool, and no permission mode allows unknown tools", holdfast.Quote(c.req.Tool))
	case class == ClassReads && !c.req.ReadOnly:
		return deny("mode", "%s has the name of a tool that only reads, but it changes things", holdfast.Quote(c.req.Tool))
	case class == ClassReads:
		return Decision{Verdict: Allowed, By: "mode"}
	}
	pass := Decision{Verdict: Allowed, By: "mode"}
	switch c.req.Mode {
	case holdfast.ModeBypassPermissions:
		return pass
	case holdfast.ModeAuto:
		if why := dangerous(c); why != "" {
			return modeAsks("permission mode auto does not allow this by itself: %s", why)
		}
		return pass
	case holdfast.ModeAcceptEdits:
		if class == ClassPlans || class == ClassEdits && inWorkspace(c) {
			return pass
		}
	case holdfast.ModeDefault, holdfast.ModeDontAsk:
		if class == ClassPlans {
			return pass
		}
	}
	if c.req.Mode == holdfast.ModeDontAsk {
		return deny("mode", "permission mode dontAsk allows only calls that a rule allows or that only read, and none of this applies to %s", holdfast.Quote(c.req.Tool))
	}
	return modeAsks("permission mode %s does not allow %s by itself", c.req.Mode, holdfast.Quote(c.req.Tool))
}

func modeAsks(format string, args ...any) Decision {
	d := ask("mode", format, args...)
	d.byMode = true
	return d
}

// inWorkspace reports whether the path that a call names lies below the tools' working directory. In a box it looks at
// the text only, because the box holds no files of others. On the host the path must also lead there through the links
// that exist now (I-49).
func inWorkspace(c *call) bool {
	p, ok := c.filePath()
	if !ok || !below(p, c.req.cwd()) || c.req.Sandboxed || c.req.FS == nil {
		return ok && below(p, c.req.cwd())
	}
	// The kernel follows a symlink before it applies the ".." after it, so the path as written may lead elsewhere than
	// the cleaned one: check both.
	for _, name := range []string{p, c.req.unclean(c.Path)} {
		if r, err := check.Normalize(c.req.FS, name); err != nil || !below(r.Physical, c.req.cwd()) {
			return false
		}
	}
	return true
}

func below(p, root string) bool {
	return p == root || root == "/" || strings.HasPrefix(p, root+"/")
}

// usualCwd and usualHome are the tools' working and home directories if a request names none.
const usualCwd, usualHome = "/workspace", "/home/agent"

func (r Request) cwd() string {
	if r.Cwd == "" {
		return usualCwd
	}
	return path.Clean(r.Cwd)
}

func (r Request) home() string {
	if r.Home == "" {
		return usualHome
	}
	return path.Clean(r.Home)
}

// absolute returns a path as tools resolve it, by the name that rules have for it: ~ is the home directory, and a relative path
// begins at the working directory.
func (r Request) absolute(p string) string {
	if p = path.Clean(r.unclean(p)); r.Named != nil {
		return r.Named(p)
	}
	return p
}

// unclean returns a path as tools resolve it, absolute but with "." and ".." still in it.
func (r Request) unclean(p string) string {
	switch {
	case p == "~" || strings.HasPrefix(p, "~/"):
		return r.home() + p[1:]
	case !strings.HasPrefix(p, "/"):
		return r.cwd() + "/" + p
	}
	return p
}
