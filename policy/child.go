package policy

import (
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Child returns the engine of a child agent that has sandbox settings of its own. Calls of
// the child have to pass its own settings and those of its parent, except for parent settings
// with EnableWeakerNestedSandbox. Settings that allow nothing that the parent allows are
// invalid.
//
// Parent and child share a box, which enforces only the parent's path rules. Paths that are
// denied only to the child are checked in the text of its commands, and enforced by the
// kernel with the layers that Scope returns. If no layer can express the restriction, Bash
// is denied.
func (e *Engine) Child(s check.Settings) (*Engine, error) {
	own := s
	parents := []check.Settings{{}}
	if len(e.sandboxes) > 0 {
		parents = nil
		for _, p := range e.sandboxes {
			parents = append(parents, p.settings)
		}
	}
	var err error
	for _, p := range parents {
		if own, err = p.Narrow(own); err != nil {
			return nil, err
		}
	}
	out, err := e.With(Config{Sandbox: &own})
	if err != nil {
		return nil, err
	}
	last := len(out.sandboxes) - 1
	out.sandboxes[last].child = &s
	out.sandboxes = slices.DeleteFunc(slices.Clone(out.sandboxes), func(p sandboxed) bool {
		return p.child == nil && p.settings.EnableWeakerNestedSandbox
	})
	if out.walls == nil { // the parent is the main agent: the box enforces all of the parent's settings
		out.walls = new(walls)
		for _, p := range e.sandboxes {
			out.walls.denied = append(out.walls.denied, p.settings.DeniedPaths...)
			out.walls.readOnly = append(out.walls.readOnly, p.settings.DeniedWritePaths...)
		}
	}
	return out, nil
}

// walls are the denied and the read-only paths that the box of a child agent enforces
// already, because they are also its parent's.
type walls struct{ denied, readOnly []string }

// layers returns what the kernel has to enforce on the processes of a child agent: one layer for each child agent, from
// the outermost to this one, whose settings list allowed paths.
func (e *Engine) layers(req Request) []check.Layer {
	var out []check.Layer
	for _, s := range e.sandboxes {
		if s.child == nil || len(s.child.AllowedReadPaths)+len(s.child.AllowedWritePaths) == 0 {
			continue
		}
		l := check.Layer{Read: check.InHome(s.child.AllowedReadPaths, req.home()), Write: check.InHome(s.child.AllowedWritePaths, req.home())}
		denied, readOnly := e.unwalled(req.home())
		for _, d := range denied {
			if apart(l.Read, d, req) && apart(l.Write, d, req) {
				l.Denied = append(l.Denied, d)
			}
		}
		for _, d := range readOnly {
			if apart(l.Write, d, req) {
				l.ReadOnly = append(l.ReadOnly, d)
			}
		}
		out = append(out, l)
	}
	return out
}

// unwalled returns the paths that the settings deny to child agents, and those that they make
// read-only for them, although the box itself allows the access.
func (e *Engine) unwalled(home string) (denied, readOnly []string) {
	for _, s := range e.sandboxes {
		if s.child == nil {
			continue
		}
		hidden := check.InHome(e.walls.denied, home)
		for _, d := range check.InHome(s.child.DeniedPaths, home) {
			if !underAny(d, hidden) {
				denied = append(denied, d)
			}
		}
		fixed := append(hidden, check.InHome(e.walls.readOnly, home)...)
		for _, d := range check.InHome(s.child.DeniedWritePaths, home) {
			if !underAny(d, fixed) {
				readOnly = append(readOnly, d)
			}
		}
	}
	return denied, readOnly
}

// unheld denies a command of a child agent if neither the box nor a layer can enforce its
// denied paths: the kernel's Landlock accepts only lists of allowed paths.
func (e *Engine) unheld(c *call) Decision {
	if c.tool.Subject != SubjectCommand || !c.req.Sandboxed {
		return Decision{}
	}
	layers := e.layers(c.req)
	denied, readOnly := e.unwalled(c.req.home())
	for _, x := range []struct {
		field, lists string
		paths        []string
		of           func(check.Layer) []string
	}{
		{"deniedPaths", "allowedReadPaths and allowedWritePaths", denied, func(l check.Layer) []string { return l.Denied }},
		{"deniedWritePaths", "allowedWritePaths", readOnly, func(l check.Layer) []string { return l.ReadOnly }},
	} {
		for _, d := range x.paths {
			if !slices.ContainsFunc(layers, func(l check.Layer) bool { return slices.Contains(x.of(l), d) }) {
				return deny("sandbox", "%s of this agent name %s, for which a box has no walls: this child agent shares the box of its parent. "+
					"Deny the path in the parent's settings, or give this agent %s that leave it out", x.field, holdfast.Quote(d), x.lists)
			}
		}
	}
	return Decision{}
}

// apart reports whether a layer's list of allowed paths keeps a child agent from path d. It does so
// only below workspace and home: elsewhere each layer also allows the paths that programs need.
func apart(list []string, d string, req Request) bool {
	if list == nil || !below(d, workspaceOf(req.cwd())) && !below(d, req.home()) {
		return false
	}
	return !slices.ContainsFunc(list, func(r string) bool { return below(d, r) || below(r, d) })
}

func underAny(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return below(p, r) })
}

// workspaceOf returns the workspace that contains a working directory.
func workspaceOf(cwd string) string {
	if below(cwd, usualCwd) {
		return usualCwd
	}
	return cwd
}
