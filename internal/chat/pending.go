package chat

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// pending counts the messages of this chat that the server has not confirmed, and holds the turns of confirmed
// messages until these turns end. The log can report the end of a turn before the server confirms the turn's
// message: pending remembers such ends until no message waits.
type pending struct {
	waiting int
	open    map[holdfast.TurnID]bool
	ended   map[holdfast.TurnID]bool
}

func newPending() pending {
	return pending{open: map[holdfast.TurnID]bool{}, ended: map[holdfast.TurnID]bool{}}
}

// none reports whether all messages of this chat are confirmed and all their turns have ended.
func (p *pending) none() bool { return p.waiting == 0 && len(p.open) == 0 }

// sent records that a message goes to the server.
func (p *pending) sent() { p.waiting++ }

// answered records that the server accepted or refused a message, so that the message no longer counts as waiting.
func (p *pending) answered() {
	if p.waiting--; p.waiting == 0 {
		clear(p.ended)
	}
}

// confirmed records that the server accepted a message as this turn, and reports whether the
// turn has ended already.
func (p *pending) confirmed(turn holdfast.TurnID) (ended bool) {
	if ended = p.ended[turn]; !ended {
		p.open[turn] = true
	}
	p.answered()
	return ended
}

// over records the end of a turn, whoever sent its message.
func (p *pending) over(turn holdfast.TurnID) {
	if p.waiting > 0 {
		p.ended[turn] = true
	}
	delete(p.open, turn)
}

// status returns a line about the messages that wait, for /status; running reports whether any turn runs.
func (p *pending) status(running bool) Show {
	switch {
	case p.waiting > 0:
		return say("%s on the way to the server", plain.Count(p.waiting, "message", "messages"))
	case len(p.open) > 1:
		return say("a turn runs, %s", plain.Count(len(p.open)-1, "message waits", "messages wait"))
	case running || len(p.open) > 0:
		return say("a turn runs")
	}
	return say("nothing runs")
}
