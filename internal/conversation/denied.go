package conversation

import (
	"iter"

	"github.com/holdfast-run/holdfast"
)

const (
	// maxDenials bounds the denied calls that DeniedCalls returns.
	maxDenials = 100
	// maxDeniedInput bounds the input that is shown of one.
	maxDeniedInput = 2 << 10
)

// DeniedCalls returns the calls of a turn that were denied, in their order, at most 100, with inputs of at
// most 2 KiB. Events that do not decode are left out. At an error of the log it returns what it has.
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
