package chat

import (
	"context"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// doer calls the server and returns the Input that applies the result to the conversation.
type doer func(context.Context, *client.Client) Input

// then returns a doer whose Input calls also before it applies the result of d.
func (d doer) then(also func(*Talk)) doer {
	return func(ctx context.Context, c *client.Client) Input {
		in := d(ctx, c)
		return func(t *Talk) []Effect {
			also(t)
			return in(t)
		}
	}
}

func stopped(id holdfast.SessionID, turn holdfast.TurnID, byKey bool) doer {
	return func(ctx context.Context, c *client.Client) Input {
		_, err := c.Interrupt(ctx, id)
		return func(t *Talk) []Effect { return t.stopped(err, turn, byKey) }
	}
}

// refresh reads the session from the server again, for its usage and for changes made by others.
// An error is not shown, because the next call reports it too.
func refresh(id holdfast.SessionID) Effect {
	return Call{callLimit, func(ctx context.Context, c *client.Client) Input {
		s, err := c.Session(ctx, id)
		return func(t *Talk) []Effect {
			if err == nil && t.Session.ID == id {
				t.Session = s
				t.live.settle(s.LastSeq)
			}
			return nil
		}
	}}
}

// recall fetches the open questions of the session, to show those that were asked before the chat began.
func recall(id holdfast.SessionID) Effect {
	return Call{callLimit, func(ctx context.Context, c *client.Client) Input {
		var open []holdfast.Approval
		var failed error
		for a, err := range c.AllApprovals(ctx, holdfast.ApprovalFilter{Session: string(id)}) {
			if failed = err; err == nil {
				open = append(open, a)
			}
		}
		return func(t *Talk) (out []Effect) {
			for _, a := range open {
				out = append(out, t.Ask(a)...)
			}
			if failed != nil {
				out = append(out, trouble(failed))
			}
			return out
		}
	}}
}
