package resident

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Listing lists the workspace before and after one tool use, to find the files that the use
// changes. The box stores it under a name that another server finds, too. The zero value lists
// nothing.
type Listing struct {
	host Host
	name string
}

// NewListing makes the Listing of a tool use.
func NewListing(host Host, turn holdfast.TurnID, u *Use) Listing {
	sum := sha256.Sum256([]byte(string(turn) + " " + u.ID))
	return Listing{host: host, name: hex.EncodeToString(sum[:])}
}

// Begin lists the workspace before the use. Errors are reported by End.
func (l Listing) Begin(ctx context.Context) {
	if l.host == nil {
		return
	}
	if box, err := l.host.Box(ctx); err == nil {
		_ = box.Watch(ctx, l.name)
	}
}

// End returns the files that differ since Begin.
func (l Listing) End(ctx context.Context) sandbox.Changes {
	if l.host == nil {
		return sandbox.Changes{}
	}
	box, err := l.host.Box(ctx)
	if err != nil {
		return sandbox.Changes{Unseen: err.Error()}
	}
	return box.Watched(ctx, l.name)
}
