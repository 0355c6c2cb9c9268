package permit

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// Sources is where layers come from. Safe for concurrent use.
type Sources interface {
	// Layer is what an agent version adds; not_found for an unknown version.
	Layer(ctx context.Context, version holdfast.VersionID) (policy.Config, error)
	// Workspace is what lies in a session's workspace.
	Workspace(ctx context.Context, row journal.Row) (Workspace, error)
	// Rules returns the rules of a session and of its workspace, which a key names (see Key): those
	// of the workspace first, each scope's in the order in which they came.
	Rules(ctx context.Context, key string) ([]journal.Rule, error)
}

// Workspace is what the files of a workspace add to a policy. One caller at a time uses it.
type Workspace interface {
	// Look reads them, and reports whether Layer is another one now.
	Look() bool
	// Layer only tightens.
	Layer() policy.Config
}

// Policies are the server's policy and what agent versions, which never change, add to it. Make
// them with New. Safe for concurrent use.
type Policies struct {
	server *policy.Engine
	from   Sources

	mu   sync.Mutex
	kept map[holdfast.VersionID]*policy.Engine
}

// maxVersions is how many agent versions' policies are kept.
const maxVersions = 64

// New makes the policies of a server.
func New(server *policy.Engine, from Sources) *Policies {
	return &Policies{server: server, from: from, kept: map[holdfast.VersionID]*policy.Engine{}}
}

// Version is the server's policy with the layer of an agent version. Errors are those of
// Sources.Layer, and of a layer that does not fit.
func (p *Policies) Version(ctx context.Context, id holdfast.VersionID) (*policy.Engine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.kept[id]; v != nil {
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
	for old := range p.kept {
		if len(p.kept) < maxVersions {
			break
		}
		delete(p.kept, old)
	}
	p.kept[id] = v
	return v, nil
}
