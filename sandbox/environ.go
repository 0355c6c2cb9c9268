package sandbox

import "strings"

// Mark is the variable that a driver without a process namespace may give all processes of a
// box, to find them when its boxd is gone. Its value is the same in every life of the box.
const Mark = "HOLDFAST_BOX"

// Inherits reports whether a variable of the server's environment is passed on to
// what it starts: the allow table of every driver, for tools, terminals, hooks and
// agents alike. HOME, USER and TMPDIR may also be the box's own values. What a
// session was given with --env comes on top; nothing else does.
func Inherits(name string) bool {
	switch name {
	case "PATH", "USER", "LANG", "TERM", "TZ":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}
