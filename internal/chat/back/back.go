// Package back finds the checkpoint to which a chat goes back.
//
// Package chat uses it. It imports packages client and plain. Invariant: an abandoned checkpoint is never the target.
package back

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Turns returns the newest checkpoint from before the last n turns of the conversation. began is the number of
// the event after which the last turn before this checkpoint began; 0 if there is no earlier checkpoint.
func Turns(ctx context.Context, c *client.Client, id holdfast.SessionID, n int) (to holdfast.Checkpoint, began int64, err error) {
	seen, number := -1, int64(-1)
	for cp, err := range c.AllCheckpoints(ctx, id) {
		if err != nil {
			return to, 0, err
		}
		if cp.Abandoned || cp.Number == number {
			continue
		}
		switch seen, number = seen+1, cp.Number; seen {
		case n:
			to = cp
		case n + 1:
			return to, cp.Seq, nil
		}
	}
	if to.ID == "" {
		return to, 0, holdfast.Errorf(holdfast.KindNotFound, "checkpoint", "the session has no checkpoint from %s ago", plain.Count(n, "turn", "turns")).
			WithHint("list the checkpoints: holdfast session checkpoints %s", id)
	}
	return to, 0, nil
}
