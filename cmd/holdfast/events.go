package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

type sessionEventsCmd struct {
	ID     string   `arg:"" help:"${session}"`
	After  int64    `placeholder:"N" xor:"from" help:"Only events after this number."`
	Tail   int64    `short:"n" placeholder:"N" xor:"from" help:"Only the last N events, and what follows."`
	Follow bool     `short:"f" help:"Go on as events happen, until the session ends."`
	Type   []string `placeholder:"TYPE" help:"Only these types. Their lines are not cut."`
}

// Run prints the log.
func (s *sessionEventsCmd) Run(e *env) error {
	if s.After < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "session events", "--after %d is negative", s.After)
	}
	if s.Tail < 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "session events", "--tail %d is negative", s.Tail)
	}
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	if s.Tail > 0 {
		one, err := c.Session(e.ctx, id)
		if err != nil {
			return err
		}
		s.After = max(0, one.LastSeq-s.Tail)
	}
	want := map[holdfast.EventType]bool{}
	for _, t := range s.Type {
		want[holdfast.EventType(t)] = true
	}
	if len(want) > 0 {
		// Let the server check the types: the stream would wait for an unknown type without end.
		f := holdfast.EventFilter{Types: slices.Collect(maps.Keys(want)), Limit: 1}
		if _, err := c.Events(e.ctx, id, f); err != nil {
			return err
		}
	}
	seq := c.AllEvents(e.ctx, id, s.After)
	if s.Follow {
		seq = c.Follow(e.ctx, id, s.After)
	}
	last, follow := s.After, ""
	if s.Follow {
		follow = " --follow"
	}
	for ev, err := range seq {
		if err != nil {
			if s.Follow && e.ctx.Err() != nil {
				return nil // the user ended --follow with Ctrl-C, which is no error
			}
			return goOn(err, "to go on: holdfast session events %s --after %d%s", id, last, follow)
		}
		last = max(last, ev.Seq)
		if len(want) == 0 || want[ev.Type] {
			if err := e.event(ev, len(want) > 0); err != nil {
				return err
			}
		}
		if s.Follow && ev.Type == holdfast.EventSessionEnded {
			return nil
		}
	}
	return nil
}

// event prints one event on a line, which is cut unless whole is set.
func (e *env) event(ev holdfast.Event, whole bool) error {
	if e.json {
		return e.print(ev)
	}
	seq := "-"
	if ev.Seq > 0 {
		seq = fmt.Sprint(ev.Seq)
	}
	what := told(ev)
	if what == "" {
		what = compact(ev.Data)
	}
	if what = line(what); !whole {
		what = cut(what, 160)
	}
	_, err := fmt.Fprintf(e.stdout, "%6s  %s  %-18s %s\n", seq, ev.Time.Local().Format("15:04:05.000"), line(string(ev.Type)), what)
	return err
}

// told describes an event in words if its JSON is hard to read: what agents with a conversation
// of their own did, and what boxes asked of the network. It returns "" for other events, and for
// those that do not decode.
func told(ev holdfast.Event) string {
	words := ""
	say := func(format string, args ...any) { words = fmt.Sprintf(format, args...) }
	read := func(v any) bool { return ev.Decode(v) == nil }
	switch ev.Type {
	case holdfast.EventAgentStarted:
		if d := (holdfast.AgentStarted{}); read(&d) {
			say("%s %s, tier %s, %d of %d turns loaded in %.0f ms", strings.TrimSpace(d.Runtime+" "+d.Version), d.AgentID, d.Tier, d.Turns, d.Of, d.DurationMS)
			if d.Truncated {
				words += ", not all had room"
			}
			if d.Reason != "" {
				words += ": " + d.Reason
			}
		}
	case holdfast.EventAgentMirrored:
		if d := (holdfast.AgentMirrored{}); read(&d) {
			bytes := 0
			for _, entry := range d.Entries {
				bytes += len(entry)
			}
			say("%d entries, %d bytes of the transcript of state %d %s", len(d.Entries), bytes, d.Generation, d.File)
		}
	case holdfast.EventAgentQuarantined:
		if d := (holdfast.AgentQuarantined{}); read(&d) {
			if say("%s %s put aside: %s", d.Runtime, d.AgentID, d.Reason); d.Kept != "" {
				words += ", kept in " + d.Kept
			}
		}
	case holdfast.EventEgressAllowed, holdfast.EventEgressDenied:
		if d := (holdfast.EgressDecision{}); read(&d) {
			words = egress(d)
		}
	}
	return words
}

// egress describes a connection out of a box in one line.
func egress(d holdfast.EgressDecision) string {
	host := d.Host
	if d.Port != 0 {
		host = net.JoinHostPort(d.Host, strconv.Itoa(d.Port))
	}
	s := strings.TrimSpace(d.Via + ": " + d.Method + " " + host + d.Path)
	if d.Count > 1 {
		s += fmt.Sprintf(", %d times", d.Count)
	}
	if d.Sent+d.Received > 0 {
		s += fmt.Sprintf(", %d bytes out, %d in, %.0f ms", d.Sent, d.Received, d.DurationMS)
	}
	if d.Rule != "" {
		s += ", rule " + d.Rule
	}
	if d.Reason != "" {
		s += ": " + d.Reason
	}
	return s
}

type sessionTranscriptCmd struct {
	ID string `arg:"" help:"${session}"`
}

// Run prints the conversation.
func (s *sessionTranscriptCmd) Run(e *env) error {
	c, id, err := e.onSession(s.ID)
	if err != nil {
		return err
	}
	all := []holdfast.TranscriptEntry{}
	for after := int64(0); ; {
		entries, next, err := c.Transcript(e.ctx, id, after, 0)
		if err != nil {
			return err
		}
		all = append(all, entries...)
		if after = next; next == 0 {
			break
		}
	}
	if e.json {
		return e.print(map[string]any{"entries": all})
	}
	for _, t := range all {
		if err := e.entry(t); err != nil {
			return err
		}
	}
	return nil
}

// entry prints one entry of the transcript: a message whole, a tool call, its result or a notice on a line. It does
// not print thinking, nor an answer without text.
func (e *env) entry(t holdfast.TranscriptEntry) error {
	var err error
	switch t.Role {
	case holdfast.RoleUser, holdfast.RoleAssistant:
		if t.Text == "" {
			return nil // an answer that has no text, only tool calls
		}
		_, err = fmt.Fprintf(e.stdout, "%s:\n%s\n\n", t.Role, indent(prose(t.Text)))
	case holdfast.RoleTool:
		_, err = fmt.Fprintf(e.stdout, "tool: %s %s\n", line(t.Tool), cut(line(compact(t.Input)), 160))
	case holdfast.RoleResult:
		_, err = fmt.Fprintf(e.stdout, "  %s: %s\n\n", line(t.Outcome), cut(line(t.Text), 160))
	case holdfast.RoleNotice:
		_, err = fmt.Fprintf(e.stdout, "(turn %s: %s)\n\n", line(t.Outcome), line(t.Text))
	}
	return err
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}
