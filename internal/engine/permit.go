package engine

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

// Decide asks whether a tool may run: hooks, then the policy of the server with
// the layers of this session, then a person. An untrusted session's tools run in
// a box or not at all.
func (h *host) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	req.Session, req.Mode, req.Sandboxed = h.u.id, h.row.Mode, h.row.Trust == holdfast.Untrusted
	p, err := h.policy()
	if err != nil {
		return policy.Decision{}, err
	}
	return p.Decide(ctx, req)
}

// policy is what decides in this turn.
func (h *host) policy() (*policy.Engine, error) { return h.e.cfg.Policy, nil }
