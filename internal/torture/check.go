package torture

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// evidence is everything recorded about one session by the end of the load.
type evidence struct {
	id     holdfast.SessionID
	events []holdfast.Event
	// sent are the acknowledged messages; ended maps each turn to the number of the event that ended it,
	// if a stream returned that event; direct are the acknowledged effects outside of turns.
	sent   []message
	ended  map[holdfast.TurnID]int64
	direct []effect
	// holes are pairs of event numbers: a stream returned the two events in a row, but left out those between them.
	holes [][2]int64
	// entries are the entries of the session's transcript; nil in a run of snapshots.
	entries []holdfast.TranscriptEntry
	// lines maps the name of each file to the number of lines in it that are exactly this name.
	lines map[string]int
	// began and ends are set only if the sessions share a workspace. began is how often each command of any session
	// began, as a file in the shared tree says; ends is how often each one of this session ended, as its home says.
	began, ends map[string]int
	// restarts are the times at which a fault killed the server process; set only if the sessions share a workspace.
	restarts []time.Time
	// kills are the faults that may have hidden the outcome of a call in the session's box.
	kills []kill
}

// message is the text of an acknowledged message, with the turn that the acknowledgement names.
type message struct {
	turn holdfast.TurnID
	text string
}

// effect is a file that the server confirmed as written.
type effect struct {
	name string
	// synced is true if the server promised that the file is on the disk.
	synced bool
	at     time.Time
}

// kill is a fault that happened between two moments: a kill of a boxd, a power cut or a full disk. boot
// is the boot id of the box whose boxd was killed; it is empty for the other faults, which may end any call.
type kill struct {
	from, to time.Time
	boot     string
}

// call is one tool use as the log records it.
type call struct {
	name, boot      string
	turn            holdfast.TurnID
	seq             int64 // the number of the event with the outcome
	started, ended  time.Time
	intents, closes int
	synced, unknown bool
	outcome         holdfast.ExitClass
	content         string
}

// risk is a notice that files may be lost.
type risk struct {
	holdfast.FilesAtRisk
	seq int64
	at  time.Time
}

// check compares what was promised to a session's clients with the evidence.
func (r *Result) check(ev evidence) {
	say := func(format string, args ...any) { r.bad("session "+string(ev.id)+": "+format, args...) }
	texts, ends := map[holdfast.TurnID]string{}, map[holdfast.TurnID][]int64{}
	for i, e := range ev.events {
		if e.Seq != int64(i)+1 {
			r.Gaps++
			say("the event at position %d has number %d", i+1, e.Seq)
			break
		}
		if _, known := ends[e.Turn]; !known && e.Turn != "" {
			ends[e.Turn] = nil
		}
		switch {
		case e.Type == holdfast.EventMessageUser:
			var m holdfast.UserMessage
			_ = e.Decode(&m)
			texts[e.Turn] += m.Text()
		case e.EndsTurn():
			ends[e.Turn] = append(ends[e.Turn], e.Seq)
		}
	}
	for _, h := range ev.holes {
		r.Gaps++
		say("a stream continued after event %d with event %d", h[0], h[1])
	}
	for _, m := range ev.sent {
		r.Messages++
		if texts[m.turn] != m.text {
			r.LostMessages++
			say("the message of turn %s was acknowledged, but the log has %q as its text", m.turn, texts[m.turn])
		}
	}
	for t, seqs := range ends {
		if len(seqs) != 1 {
			say("turn %s has %d terminal events instead of one", t, len(seqs))
		} else if told := ev.ended[t]; told != 0 && told != seqs[0] {
			say("a client received the end of turn %s as event %d, but the log has it as event %d", t, told, seqs[0])
		}
	}
	calls := foldCalls(ev.events)
	r.files(ev, calls, say)
	r.conversation(ev, say)
	if ev.began != nil {
		r.siblings(ev, calls, say)
	}
}

// conversation checks that the transcript has each acknowledged message, and for each completed turn the calls that its
// message asks for, one result of each, and the answer.
func (r *Result) conversation(ev evidence, say func(string, ...any)) {
	if ev.entries == nil {
		return
	}
	turns, completed := map[holdfast.TurnID][]holdfast.TranscriptEntry{}, map[holdfast.TurnID]bool{}
	for _, e := range ev.entries {
		turns[e.Turn] = append(turns[e.Turn], e)
	}
	for _, e := range ev.events {
		completed[e.Turn] = completed[e.Turn] || e.Type == holdfast.EventTurnCompleted
	}
	for _, m := range ev.sent {
		var text, answer string
		var calls []string
		results := map[string]int{}
		for _, e := range turns[m.turn] {
			switch e.Role {
			case holdfast.RoleUser:
				text += e.Text
			case holdfast.RoleTool:
				calls = append(calls, madePattern.FindString(string(e.Input)))
				results[e.ToolUseID] += 0
			case holdfast.RoleResult:
				results[e.ToolUseID]++
			case holdfast.RoleAssistant:
				answer = e.Text
			}
		}
		if text != m.text {
			r.LostMessages++
			say("the message of turn %s was acknowledged, but the transcript has %q as its text", m.turn, text)
		}
		if !completed[m.turn] {
			if ev.began != nil { // in a workspace every turn must complete: no fault pauses a process or fills the disk
				say("turn %s did not complete", m.turn)
			}
			continue
		}
		if want := slices.Compact(madePattern.FindAllString(m.text, -1)); !slices.Equal(calls, want) {
			say("turn %s: the transcript has the calls %q, its message asks for %q", m.turn, calls, want)
		}
		for use, n := range results {
			if n != 1 {
				say("turn %s: the transcript has %d results of tool use %s", m.turn, n, use)
			}
		}
		if answer != answers {
			say("turn %s: the transcript has %q as the answer", m.turn, answer)
		}
	}
}

// files checks that each confirmed effect exists or a notice named its loss, that no effect happened
// twice, that each started call has one outcome, and that a fault explains each unknown outcome.
func (r *Result) files(ev evidence, calls map[string]*call, say func(string, ...any)) {
	risks := risksOf(ev.events)
	missing := func(name string, synced, told, kept bool) {
		r.Lost++
		switch {
		case kept:
			r.Untold++
			say("the file %s was confirmed, is missing, and a snapshot holds it", name)
		case synced || !told:
			r.Untold++
			say("the file %s was confirmed, is missing, and no notice named it (synced: %v)", name, synced)
		}
	}
	known := map[string]bool{}
	for key, c := range calls {
		known[c.name] = true
		n := ev.lines[c.name]
		for _, name := range madePattern.FindAllString(c.content, -1) {
			if name != c.name {
				say("tool use %s: its outcome is that of %s, but it is the call of %s", key, name, c.name)
			}
		}
		switch {
		case c.intents == 0 && n > 0:
			say("tool use %s: its file %s was written, but the log has no intent", key, c.name)
		case c.intents > 0 && c.closes != 1:
			say("tool use %s: it has %d outcomes", key, c.closes)
		case c.unknown:
			r.Unknown++
			if !inFlight(c, ev.kills) {
				say("tool use %s: its outcome is unknown, but its box was not killed between %s and %s", key,
					c.started.Format(time.StampMilli), c.ended.Format(time.StampMilli))
			}
		case c.outcome == holdfast.ExitOK && c.name != "":
			r.Effects++
			if !c.synced && !strings.Contains(c.content, c.name+" "+hasEnded) {
				say("tool use %s: the output of the command of %s is %q", key, c.name, c.content)
			}
			if n == 0 {
				told := slices.ContainsFunc(risks, func(r risk) bool { return r.seq > c.seq && r.names(c.turn) })
				missing(c.name, c.synced, told, kept(ev.events, c.seq, c.ended))
			}
		}
	}
	for _, f := range ev.direct {
		r.Effects++
		if ev.lines[f.name] == 0 {
			told := slices.ContainsFunc(risks, func(r risk) bool { return r.Direct && r.at.After(f.at.Add(-time.Second)) })
			missing(f.name, f.synced, told, kept(ev.events, 0, f.at))
		}
	}
	for f, n := range ev.lines {
		if n > 1 {
			r.Doubled++
			say("the effect %s happened %d times", f, n)
		}
		if n > 0 && strings.HasPrefix(f, "turn-") && !known[f] {
			say("the file %s was written, but no tool use should write it", f)
		}
	}
}

// madePattern matches the names of the files that the tools of turns make.
var madePattern = regexp.MustCompile(`turn-[0-9]+-[0-9]+-[0-9]+`)

// foldCalls collects the tool uses in a log.
func foldCalls(events []holdfast.Event) map[string]*call {
	calls := map[string]*call{}
	for _, e := range events {
		var d struct {
			ToolUseID string             `json:"tool_use_id"`
			Name      string             `json:"name"`
			Input     json.RawMessage    `json:"input"`
			Outcome   holdfast.ExitClass `json:"outcome"`
			Boot      string             `json:"boot"`
			Content   string             `json:"content"`
		}
		if json.Unmarshal(e.Data, &d) != nil || d.ToolUseID == "" {
			continue
		}
		key := string(e.Turn) + "/" + d.ToolUseID
		c := calls[key]
		if c == nil {
			c = &call{turn: e.Turn}
			calls[key] = c
		}
		switch e.Type {
		case holdfast.EventToolRequested:
			c.name, c.synced = madePattern.FindString(string(d.Input)), d.Name == "Write"
		case holdfast.EventToolStarted:
			c.intents++
			if c.started.IsZero() {
				c.started, c.boot = e.Time, d.Boot
			}
		case holdfast.EventToolFinished, holdfast.EventToolUnknown:
			c.closes++
			c.ended, c.seq, c.outcome, c.unknown, c.content = e.Time, e.Seq, d.Outcome, e.Type == holdfast.EventToolUnknown, d.Content
		}
	}
	return calls
}

// noticed is how long after the kill of a box the server may start calls in the box, not having noticed the kill.
const noticed = time.Second

// inFlight reports whether a call was running when its box was killed: its intent names the boot id
// of the killed box, or, if the kill has no boot id, the kill happened between intent and outcome,
// or so shortly before the intent that the server had not noticed it. Event times are whole
// milliseconds.
func inFlight(c *call, kills []kill) bool {
	for _, k := range kills {
		if c.ended.Before(k.from.Add(-time.Millisecond)) {
			continue
		}
		if k.boot != "" && k.boot == c.boot || k.boot == "" && !c.started.After(k.to.Add(noticed)) {
			return true
		}
	}
	return false
}

// names reports whether a notice of files at risk names a turn.
func (r risk) names(id holdfast.TurnID) bool {
	return slices.ContainsFunc(r.Turns, func(t holdfast.TurnAtRisk) bool { return t.ID == id })
}

func risksOf(events []holdfast.Event) []risk {
	var out []risk
	for _, e := range events {
		var n holdfast.Notice
		if e.Type == holdfast.EventNotice && e.Decode(&n) == nil && n.AtRisk != nil {
			out = append(out, risk{*n.AtRisk, e.Seq, e.Time})
		}
	}
	return out
}

// kept reports whether a snapshot holds an effect, and was taken before the first notice of files at risk after the
// effect. seq is the number of the effect's outcome in the log, 0 outside of turns; at is when it was acknowledged.
func kept(events []holdfast.Event, seq int64, at time.Time) bool {
	for _, e := range events {
		if e.Seq <= seq || e.Time.Before(at) {
			continue
		}
		var n holdfast.Notice
		var taken holdfast.SnapshotTaken
		switch {
		case e.Type == holdfast.EventNotice && e.Decode(&n) == nil && n.AtRisk != nil:
			return false
		case e.Type != holdfast.EventSnapshotTaken || e.Decode(&taken) != nil:
		case seq > 0 && taken.Seq >= seq:
			return true
		case seq == 0 && e.Time.Add(-time.Duration(taken.DurationMS*float64(time.Millisecond))-time.Second).After(at):
			return true
		}
	}
	return false
}
