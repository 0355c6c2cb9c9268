package torture

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/holdfast-run/holdfast"
)

// evidence is what is known of one session when the load is over.
type evidence struct {
	id     holdfast.SessionID
	events []holdfast.Event
	// acked are the turns whose message was acknowledged, seen those whose
	// terminal event a reader was given.
	acked map[holdfast.TurnID]bool
	seen  map[holdfast.TurnID]int64
	// lines counts the lines in the workspace.
	lines map[string]int
	// boxKills are the moments its boxd was killed.
	boxKills []kill
}

// kill is a boxd that was killed between two moments. boot names the life of
// the box that ended; it is empty when the server did not know it.
type kill struct {
	from, to time.Time
	boot     string
}

// linePattern finds the unique line that a tool of the load appends.
var linePattern = regexp.MustCompile(`echo (L-[0-9a-z-]+) >>`)

// call is one tool use as the log tells it.
type call struct {
	line, boot      string
	started, ended  time.Time
	intents, closes int
	unknown         bool
	outcome         holdfast.ExitClass
}

// check returns what is wrong with a session; nothing is what it should return.
func check(ev evidence) []string {
	var bad []string
	say := func(format string, args ...any) {
		bad = append(bad, fmt.Sprintf("session %s: ", ev.id)+fmt.Sprintf(format, args...))
	}
	stored := map[holdfast.TurnID]bool{}
	ends := map[holdfast.TurnID]int{}
	endSeq := map[holdfast.TurnID]int64{}
	for i, e := range ev.events {
		if e.Seq != int64(i)+1 {
			say("event %d has seq %d", i+1, e.Seq)
			break
		}
		switch {
		case e.Type == holdfast.EventTurnQueued || e.Type == holdfast.EventTurnStarted:
			stored[e.Turn] = true
		case e.EndsTurn():
			ends[e.Turn]++
			endSeq[e.Turn] = e.Seq
		}
	}
	for t := range ev.acked {
		if !stored[t] {
			say("turn %s was acknowledged and is not stored", t)
		}
	}
	for t := range stored {
		if ends[t] != 1 {
			say("turn %s has %d terminal states", t, ends[t])
		}
	}
	for t, seq := range ev.seen {
		if endSeq[t] != seq {
			say("turn %s: its end was shown as event %d and is stored as %d", t, seq, endSeq[t])
		}
	}
	bad = append(bad, checkCalls(ev, foldCalls(ev.events))...)
	return bad
}

// foldCalls reads the tool uses out of a log.
func foldCalls(events []holdfast.Event) map[string]*call {
	calls := map[string]*call{}
	for _, e := range events {
		var d struct {
			ToolUseID string                   `json:"tool_use_id"`
			Input     struct{ Command string } `json:"input"`
			Outcome   holdfast.ExitClass       `json:"outcome"`
			Boot      string                   `json:"boot"`
		}
		if json.Unmarshal(e.Data, &d) != nil || d.ToolUseID == "" {
			continue
		}
		key := string(e.Turn) + "/" + d.ToolUseID
		c := calls[key]
		if c == nil {
			c = &call{}
			calls[key] = c
		}
		switch e.Type {
		case holdfast.EventToolRequested:
			if m := linePattern.FindStringSubmatch(d.Input.Command); m != nil {
				c.line = m[1]
			}
		case holdfast.EventToolStarted:
			c.intents++
			if c.started.IsZero() {
				c.started, c.boot = e.Time, d.Boot
			}
		case holdfast.EventToolFinished:
			c.closes++
			c.ended, c.outcome = e.Time, d.Outcome
		case holdfast.EventToolUnknown:
			c.closes++
			c.ended, c.unknown = e.Time, true
		}
	}
	return calls
}

func checkCalls(ev evidence, calls map[string]*call) []string {
	var bad []string
	say := func(format string, args ...any) {
		bad = append(bad, fmt.Sprintf("session %s: ", ev.id)+fmt.Sprintf(format, args...))
	}
	known := map[string]bool{}
	for key, c := range calls {
		if c.line == "" {
			continue
		}
		known[c.line] = true
		n := ev.lines[c.line]
		switch {
		case n > 1:
			say("%s: line %s stands %d times", key, c.line, n)
		case c.intents == 0 && n > 0:
			say("%s: line %s was written without an intent", key, c.line)
		case !c.unknown && c.outcome == holdfast.ExitOK && n != 1:
			say("%s: finished ok and line %s stands %d times", key, c.line, n)
		case c.intents > 0 && c.closes != 1:
			say("%s: %d outcomes", key, c.closes)
		}
		if c.unknown && !inFlight(c, ev.boxKills) {
			say("%s: outcome unknown, but no kill of its box fell between %s and %s", key,
				c.started.Format(time.StampMilli), c.ended.Format(time.StampMilli))
		}
	}
	for line, n := range ev.lines {
		if !known[line] {
			say("line %s stands %d times and no tool was asked for it", line, n)
		}
	}
	return bad
}

// inFlight reports whether a call was under way when its box was killed: its
// intent names the life that ended, or, where that is not known, the kill fell
// between intent and outcome. Event times are whole milliseconds.
func inFlight(c *call, kills []kill) bool {
	for _, k := range kills {
		if c.ended.Before(k.from.Add(-time.Millisecond)) {
			continue
		}
		if k.boot != "" && k.boot == c.boot || k.boot == "" && !c.started.After(k.to.Add(time.Millisecond)) {
			return true
		}
	}
	return false
}
