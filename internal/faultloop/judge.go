package faultloop

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/torture"
)

// evidence is the data about one session at the end of the load.
type evidence struct {
	id     holdfast.SessionID
	events []holdfast.Event
	sent   []message
	ended  map[holdfast.TurnID]int64
	direct []effect
	// lines maps each file to the number of its lines that contain the file's own name.
	lines map[string]int
}

// verdict is the result of checking one session.
type verdict struct {
	violations                                       []string
	messages, effects, lost, untold, doubled, unseen int
	unknown, gaps                                    int
}

func (v *verdict) say(format string, args ...any) {
	v.violations = append(v.violations, fmt.Sprintf(format, args...))
}

// judge reads everything back, shuts the server down and looks for leftovers.
func (l *loop) judge(ctx context.Context) error {
	if _, err := l.ready(ctx, "the load"); err != nil {
		return err
	}
	_, api := l.current()
	for _, w := range l.workers {
		ev, err := w.evidence(ctx, api)
		if err != nil {
			return fmt.Errorf("session %s cannot be read back: %w", w.id, err)
		}
		l.result.add(check(ev))
	}
	srv := l.server()
	if !srv.Terminate(time.Minute) {
		l.bad("the server did not end within a minute of SIGTERM")
	}
	l.result.Leftovers = append(l.result.Leftovers, torture.Leftovers(l.disk.data(), l.names())...)
	return nil
}

// check compares what was promised to clients with the evidence.
func check(ev evidence) verdict {
	var v verdict
	texts, ends := map[holdfast.TurnID]string{}, map[holdfast.TurnID][]int64{}
	for i, e := range ev.events {
		if e.Seq != int64(i)+1 {
			v.gaps++
			v.say("session %s: the event at position %d has number %d", ev.id, i+1, e.Seq)
			break
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
	for _, m := range ev.sent {
		v.messages++
		switch {
		case texts[m.turn] != m.text:
			v.unseen++
			v.say("session %s: the message of turn %s was acknowledged, but the log has %q as its text", ev.id, m.turn, texts[m.turn])
		case len(ends[m.turn]) != 1:
			v.say("session %s: turn %s has %d terminal events instead of one", ev.id, m.turn, len(ends[m.turn]))
		case ev.ended[m.turn] != 0 && ev.ended[m.turn] != ends[m.turn][0]:
			v.say("session %s: a client received the end of turn %s as event %d, but the log has it as event %d", ev.id, m.turn, ev.ended[m.turn], ends[m.turn][0])
		}
	}
	v.files(ev)
	return v
}

// madePattern matches the names of files that tools make.
var madePattern = regexp.MustCompile(`turn-[0-9]+-[0-9]+-[0-9]+`)

// files checks that each confirmed effect exists and that no effect exists twice.
func (v *verdict) files(ev evidence) {
	risks := risksOf(ev.events)
	name := map[string]string{}
	synced := map[string]bool{}
	for _, e := range ev.events {
		var d struct {
			ToolUseID string             `json:"tool_use_id"`
			Name      string             `json:"name"`
			Input     json.RawMessage    `json:"input"`
			Outcome   holdfast.ExitClass `json:"outcome"`
		}
		if json.Unmarshal(e.Data, &d) != nil || d.ToolUseID == "" {
			continue
		}
		key := string(e.Turn) + "/" + d.ToolUseID
		switch e.Type {
		case holdfast.EventToolRequested:
			name[key], synced[key] = madePattern.FindString(string(d.Input)), d.Name == "Write"
		case holdfast.EventToolUnknown:
			v.unknown++
		case holdfast.EventToolFinished:
			if d.Outcome == holdfast.ExitOK && name[key] != "" {
				told := slices.ContainsFunc(risks, func(r risk) bool { return r.seq > e.Seq && r.turns(e.Turn) })
				v.effect(ev, name[key], synced[key], told)
			}
		}
	}
	for _, f := range ev.direct {
		told := slices.ContainsFunc(risks, func(r risk) bool { return r.Direct && r.at.After(f.at.Add(-time.Second)) })
		v.effect(ev, f.name, f.synced, told)
	}
	for f, n := range ev.lines {
		if n > 1 {
			v.doubled++
			v.say("session %s: the effect %s happened %d times", ev.id, f, n)
		}
	}
}

// effect checks one confirmed effect. told reports that a notice named it as one that a power cut
// may have removed.
func (v *verdict) effect(ev evidence, name string, synced, told bool) {
	v.effects++
	if ev.lines[name] > 0 {
		return
	}
	v.lost++
	if synced || !told {
		v.untold++
		v.say("session %s: the file %s was confirmed, is missing, and no notice named it (synced: %v)", ev.id, name, synced)
	}
}

// risk is a notice that files may be lost.
type risk struct {
	holdfast.FilesAtRisk
	seq int64
	at  time.Time
}

func (r risk) turns(id holdfast.TurnID) bool {
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
