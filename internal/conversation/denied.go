package conversation

import (
	"iter"

	"github.com/holdfast-run/holdfast"
)

const (
	// maxDenials is the largest number of calls that DeniedCalls returns.
	maxDenials = 100
	// maxDeniedInput is the largest input that is returned, in bytes; a larger one is left out.
	maxDeniedInput = 2 << 10
)

// DeniedCalls returns the denied calls of a turn in order, at most 100. Inputs over 2 KiB are left
// out, and so are events that do not decode. If the log fails it returns the calls so far with the
// error.
func DeniedCalls(log iter.Seq2[holdfast.Event, error], turn holdfast.TurnID) ([]holdfast.DeniedCall, error) {
	asked := map[string]holdfast.ToolRequested{}
	var out []holdfast.DeniedCall
	for ev, err := range log {
		if err != nil {
			return out, err
		}
		if ev.Turn != turn {
			continue
		}
		switch ev.Type {
		case holdfast.EventToolRequested:
			var t holdfast.ToolRequested
			if ev.Decode(&t) == nil {
				asked[t.ToolUseID] = t
			}
		case holdfast.EventToolDenied:
			var d holdfast.ToolDecision
			if ev.Decode(&d) != nil {
				continue
			}
			t := asked[d.ToolUseID]
			c := holdfast.DeniedCall{ToolUseID: d.ToolUseID, Tool: t.Name, Input: t.Input}
			if len(c.Input) > maxDeniedInput {
				c.Input = nil
			}
			if out = append(out, c); len(out) == maxDenials {
				return out, nil
			}
		}
	}
	return out, nil
}
