package torture

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/holdfast-run/holdfast"
)

// evidence is everything recorded about one session by the end of the load.
type evidence struct {
	id     holdfast.SessionID
	events []holdfast.Event
	// acked are the turns whose message was acknowledged; seen maps each turn whose terminal
	// event a reader received to the number of that event.
	acked map[holdfast.TurnID]bool
	seen  map[holdfast.TurnID]int64
	// lines counts how often each line occurs in the workspace's file.
	lines map[string]int
	// boxKills are the kills of the boxd of the session's box.
	boxKills []kill
}

// kill is a kill of a boxd, which happened between two moments. boot is the id of the life of the
// box that it ended; it is empty if the server did not report it.
type kill struct {
	from, to time.Time
	boot     string
}

// linePattern matches the command with which a tool of the load appends its unique line.
var linePattern = regexp.MustCompile(`echo (L-[0-9a-z-]+) >>`)

// call is one tool use as the log records it.
type call struct {
	line, boot      string
	started, ended  time.Time
	intents, closes int
	unknown         bool
	outcome         holdfast.ExitClass
}

// check returns the violations of a session's promises; empty if it found none.
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
			say("the event at position %d has number %d", i+1, e.Seq)
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
			say("turn %s was acknowledged but is not in the log", t)
		}
	}
	for t := range stored {
		if ends[t] != 1 {
			say("turn %s has %d terminal events instead of one", t, ends[t])
		}
	}
	for t, seq := range ev.seen {
		if endSeq[t] != seq {
			say("turn %s: a reader received its end as event %d, but the log has it as event %d", t, seq, endSeq[t])
		}
	}
	bad = append(bad, checkCalls(ev, foldCalls(ev.events))...)
	return bad
}

// foldCalls collects the tool uses in a log.
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
			say("tool use %s: its line %s occurs %d times in the file", key, c.line, n)
		case c.intents == 0 && n > 0:
			say("tool use %s: its line %s was written, but the log has no intent", key, c.line)
		case !c.unknown && c.outcome == holdfast.ExitOK && n != 1:
			say("tool use %s: it finished ok, but its line %s occurs %d times in the file", key, c.line, n)
		case c.intents > 0 && c.closes != 1:
			say("tool use %s: it has %d outcomes", key, c.closes)
		}
		if c.unknown && !inFlight(c, ev.boxKills) {
			say("tool use %s: its outcome is unknown, but its box was not killed between %s and %s", key,
				c.started.Format(time.StampMilli), c.ended.Format(time.StampMilli))
		}
	}
	for line, n := range ev.lines {
		if !known[line] {
			say("line %s occurs %d times in the file, but no tool use should write it", line, n)
		}
	}
	return bad
}

// inFlight reports whether a call was running when its box was killed: its intent names the life
// that the kill ended, or, if that life is unknown, the kill happened between intent and outcome.
// Event times are whole milliseconds.
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
