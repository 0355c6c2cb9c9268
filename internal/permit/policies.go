package permit

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/versions"
	"github.com/holdfast-run/holdfast/policy"
)

// Sources gives the layers that are added to the server's policy. Safe for concurrent use.
type Sources interface {
	// Layer returns what an agent version adds; not_found for an unknown version.
	Layer(ctx context.Context, version holdfast.VersionID) (policy.Config, error)
	// Workspace returns a reader of the settings in a session's workspace.
	Workspace(ctx context.Context, row journal.Row) (Workspace, error)
	// Rules returns the rules of a session and of its workspace, which a key names (see Key): those
	// of the workspace first, each scope's in the order in which they came.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
}

// Workspace reads what the files of a workspace add to a policy. One caller at a time uses it.
type Workspace interface {
	// Look reads the files that changed, and reports whether Layer returns something else now. It
	// fails only if ctx ends before it knows.
	Look(ctx context.Context) (changed bool, err error)
	// Layer returns what the files added at the last Look. It only tightens.
	Layer() policy.Config
}

// Policies makes the policies of sessions from the server's policy. It keeps those of agent
// versions, which never change. Make one with New. Safe for concurrent use.
type Policies struct {
	server *policy.Engine
	from   Sources
	kept   versions.Cache[*policy.Engine]
}

// New makes the policies of a server.
func New(server *policy.Engine, from Sources) *Policies {
	return &Policies{server: server, from: from}
}

// Version returns the server's policy with the layer of an agent version. It fails as
// Sources.Layer does, and where the layer does not fit.
func (p *Policies) Version(ctx context.Context, id holdfast.VersionID) (*policy.Engine, error) {
	if v, ok := p.kept.Get(id); ok {
		return v, nil
	}
	layer, err := p.from.Layer(ctx, id)
	if err != nil {
		return nil, err
	}
	v, err := p.server.With(layer)
	if err != nil {
		return nil, err
	}
	return p.kept.Keep(id, v), nil
}
