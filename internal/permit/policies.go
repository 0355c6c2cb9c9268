package permit

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/versions"
	"github.com/holdfast-run/holdfast/policy"
)

// Sources loads the layers that are added to the server's policy. Safe for concurrent use.
type Sources interface {
	// Layer returns the policy layer of an agent version; not_found for an unknown version.
	Layer(ctx context.Context, version holdfast.VersionID) (policy.Config, error)
	// Workspace returns a reader of the settings in a session's workspace.
	Workspace(ctx context.Context, row journal.Row) (Workspace, error)
	// Rules returns the rules stored under a key (see Key): those with the scope workspace first, then those with the
	// scope session, the oldest rule of each scope first.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
	// Changes returns a number that grows whenever the rules of any key may have changed.
	Changes() int64
}

// Workspace reads the policy settings in a workspace's files. Only one goroutine may use it at a
// time.
type Workspace interface {
	// Look reads the settings files that changed, and reports whether the result of Layer or HostGit changed. It
	// fails only if ctx ends before it is done.
	Look(ctx context.Context) (changed bool, err error)
	// Layer returns the policy layer of the files as of the last Look. It only tightens the policy.
	Layer() policy.Config
	// IsLent reports whether the workspace is a directory of a user's own.
	IsLent() bool
	// HostGit returns the paths of a user's own directory that the git of the host obeys, besides .git, as of the last Look. They are
	// relative and have slashes; each stands for itself and all that is below it. It fails if they are not known.
	HostGit() ([]string, error)
}

// Policies makes the policies of sessions from the server's policy. It caches those of agent
// versions, which never change. Create one with New. Safe for concurrent use.
type Policies struct {
	server *policy.Engine
	from   Sources
	kept   versions.Cache[*policy.Engine]
}

// New returns the Policies of a server.
func New(server *policy.Engine, from Sources) *Policies {
	return &Policies{server: server, from: from}
}

// Version returns the server's policy with the layer of an agent version. It fails as Sources.Layer
// does, or if the layer is not valid with the server's policy.
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
