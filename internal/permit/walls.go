package permit

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// InServer is the name of the runtime whose agents run in the server and keep their conversation
// only in the log. Every other runtime runs a program in the box, which keeps state in the home
// directory.
const InServer = "native"

// Walls returns the path rules of a policy that the session's box enforces. A trusted
// session has no box: only the text of its calls is checked.
func Walls(row journal.Row, p *policy.Engine) sandbox.Walls {
	if row.Trust != holdfast.Untrusted {
		return sandbox.Walls{}
	}
	w := p.Walls(policy.Home, policy.Cwd)
	return sandbox.Walls{
		Masked: w.Masked, ReadOnly: w.ReadOnly, Readable: w.Readable, Writable: w.Writable,
		Patterns: w.Patterns, WritePatterns: w.WritePatterns, KeepHome: row.Runtime != InServer,
	}
}
