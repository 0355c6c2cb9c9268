package permit

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// InServer is the name of the runtime whose agents run in the server and keep their conversation only in the log. Every
// other runtime runs a program in the box, or on the host in a trusted session; that program keeps state in the home
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

// Walls returns the walls by the policy that the session has now.
func (l *Layers) Walls(ctx context.Context) (sandbox.Walls, error) {
	p, _, err := l.Policy(ctx)
	if err != nil {
		return sandbox.Walls{}, err
	}
	return Walls(l.s.Row, p), nil
}

// The code and text of the notice that a new trusted session with path rules gets.
const (
	noticeNoWalls = "walls.none"
	noWalls       = "the session is trusted: its path rules are judged by the text of each call, and no box enforces them"
)

// Unwalled adds a notice to the events of a new trusted session that has path rules:
// it runs without a box, so nothing enforces them.
func (p *Policies) Unwalled(ctx context.Context, row journal.Row, events []journal.Draft) ([]journal.Draft, error) {
	if row.Trust != holdfast.Trusted {
		return events, nil
	}
	v, err := p.Version(ctx, row.AgentVersion)
	if err != nil || v.Walls(policy.Home, policy.Cwd).Empty() {
		return events, err
	}
	return append(events, journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{Code: noticeNoWalls, Text: noWalls}}), nil
}
