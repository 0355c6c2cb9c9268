package sandbox

import "strings"

// Mark is the name of an environment variable. A driver without a process namespace may set it
// for all processes of a box, to find them when the box's boxd has died. Its value is the same
// in each boot of the box.
const Mark = "HOLDFAST_BOX"

// Inherits reports whether processes in a box (tools, terminals, hooks and agents) inherit the
// named variable from the server's environment, with every driver. In addition a process may get
// the box's own HOME, USER and TMPDIR, and it gets the variables of its session (SetEnv) and
// those of its ExecRequest.
func Inherits(name string) bool {
	switch name {
	case "PATH", "USER", "LANG", "TERM", "TZ":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}
