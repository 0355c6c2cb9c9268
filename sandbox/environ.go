package sandbox

import "strings"

// Mark is the environment variable that a driver without a process namespace may give all
// processes of a box, to find them when its boxd is gone. Its value is the same after each
// start of the box.
const Mark = "HOLDFAST_BOX"

// Inherits reports whether processes in a box inherit a variable of the server's environment:
// tools, terminals, hooks and agents, with every driver. A box may have values of its own for
// HOME, USER and TMPDIR. Beyond that a process gets only the variables that its session was
// given (SetEnv), and those of its ExecRequest.
func Inherits(name string) bool {
	switch name {
	case "PATH", "USER", "LANG", "TERM", "TZ":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}
