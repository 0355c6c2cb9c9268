package branch

import (
	"iter"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Copied holds the copies of events and turns for a forked session. They are stored in one change.
type Copied struct {
	Events []journal.Draft
	Turns  []journal.TurnChange
	// Turn is the last copied turn that started, Number its number. They are "" and 0 if no copied turn started.
	Turn   holdfast.TurnID
	Number int64
}

// Copy returns copies of those events of a log that belong to the conversation and lie in the spans of a branch; the
// last span must end with a turn's end. The first copy gets the number after+1 in the log of the new session. newID
// makes the ids of the copied turns.
func Copy(log iter.Seq2[holdfast.Event, error], spans []journal.Span, after int64, newID func() (string, error)) (Copied, error) {
	c := copier{seq: after, numbers: map[int64]int64{}, turns: map[holdfast.TurnID]*copied{}}
	for ev, err := range log {
		if err != nil {
			return Copied{}, err
		}
		for len(spans) > 0 && ev.Seq > spans[0].Upto {
			spans = spans[1:]
		}
		if len(spans) == 0 {
			break
		}
		if ev.Seq <= spans[0].After || ev.Agent != "" {
			continue
		}
		if err := ev.Whole(); err != nil {
			return Copied{}, err
		}
		if err := c.add(ev, newID); err != nil {
			return Copied{}, err
		}
	}
	return c.out, nil
}

// copier makes the copies. numbers maps the numbers of copied events to those of their copies.
type copier struct {
	out     Copied
	seq     int64
	numbers map[int64]int64
	turns   map[holdfast.TurnID]*copied
	// last is the number of the newest copied turn, counted from 1.
	last int64
}

// copied is a turn that is being copied. number is the number of the copy among the new session's turns; 0 until it has
// one. message is the number, in the new session, of the event with the turn's first message; 0 until it is copied.
type copied struct {
	id              holdfast.TurnID
	number, message int64
}

// add copies an event, if it belongs to the conversation.
func (c *copier) add(ev holdfast.Event, newID func() (string, error)) error {
	var data any = ev.Data
	switch ev.Type {
	case holdfast.EventMessageUser:
		if t, err := c.turn(ev.Turn, newID); err != nil {
			return err
		} else if t.message == 0 {
			t.message = c.seq + 1
		}
	case holdfast.EventTurnStarted:
		t, err := c.turn(ev.Turn, newID)
		if err != nil {
			return err
		}
		data = c.begin(t)
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		t := c.turns[ev.Turn]
		if t == nil {
			return nil
		}
		var end holdfast.TurnEnded
		if err := ev.Decode(&end); err != nil {
			return err
		}
		data = c.end(ev.Type, t, end)
	case holdfast.EventMessageAssistant:
		var m holdfast.AssistantMessage
		if err := ev.Decode(&m); err != nil {
			return err
		}
		m.Seen = c.numbers[m.Seen]
		data = m
	case holdfast.EventThinking, holdfast.EventToolRequested, holdfast.EventToolAllowed, holdfast.EventToolDenied,
		holdfast.EventToolStarted, holdfast.EventToolFinished, holdfast.EventToolUnknown:
	case holdfast.EventHookRan:
		var ran holdfast.HookRan
		if err := ev.Decode(&ran); err != nil {
			return err
		}
		ran.MessageSeq = c.numbers[ran.MessageSeq]
		data = ran
	default:
		return nil
	}
	c.seq++
	c.numbers[ev.Seq] = c.seq
	d := journal.Draft{Type: ev.Type, Data: data, Copied: ev.Time}
	if t := c.turns[ev.Turn]; t != nil {
		d.Turn = t.id
	}
	c.out.Events = append(c.out.Events, d)
	return nil
}

// turn returns the copy of the turn with an id, and makes it if there is none yet.
func (c *copier) turn(id holdfast.TurnID, newID func() (string, error)) (*copied, error) {
	if t := c.turns[id]; t != nil {
		return t, nil
	}
	own, err := newID()
	t := &copied{id: holdfast.TurnID(own)}
	c.turns[id] = t
	return t, err
}

// begin adds the row of a turn that starts with the next copied event, and returns the payload of this event.
func (c *copier) begin(t *copied) holdfast.TurnStartedData {
	c.insert(t, holdfast.TurnRunning)
	c.out.Turn, c.out.Number = t.id, t.number
	return holdfast.TurnStartedData{Number: t.number, MessageSeq: t.message}
}

// insert adds the row of a turn, with the next number.
func (c *copier) insert(t *copied, status holdfast.TurnStatus) {
	c.last++
	t.number = c.last
	c.out.Turns = append(c.out.Turns, journal.TurnChange{ID: t.id, To: status, Number: t.number, MessageSeq: t.message})
}

// end marks a turn as ended by the next copied event, and returns the payload of this event. A turn that never started
// gets its row first.
func (c *copier) end(typ holdfast.EventType, t *copied, end holdfast.TurnEnded) holdfast.TurnEnded {
	to := map[holdfast.EventType]holdfast.TurnStatus{
		holdfast.EventTurnCompleted: holdfast.TurnCompleted, holdfast.EventTurnFailed: holdfast.TurnFailed,
		holdfast.EventTurnInterrupted: holdfast.TurnInterrupted,
	}[typ]
	from := holdfast.TurnRunning
	if t.number == 0 { // the turn never started
		from = holdfast.TurnQueued
		c.insert(t, from)
	}
	c.out.Turns = append(c.out.Turns, journal.TurnChange{ID: t.id, From: from, To: to, EndSeq: c.seq + 1})
	end.Number, end.MessageSeq = t.number, t.message
	return end
}
