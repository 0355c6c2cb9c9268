package engine

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// decideTrust is where a session's trust is decided: what was asked for, else
// what it inherits. Above the most that who asks may have, a wish is denied and
// what is inherited is lowered. Nothing else turns a request into a trust level.
func decideTrust(op string, asked *string, inherited, most holdfast.Trust) (holdfast.Trust, error) {
	if asked == nil {
		if inherited.Exceeds(most) {
			return most, nil
		}
		return inherited, nil
	}
	t, err := holdfast.ParseTrust(*asked)
	if err != nil {
		return "", err
	}
	return t, withinTrust(op, t, most)
}

// turnTrust refuses a message whose turn may not run with the session's trust. A
// turn has none of its own yet: its box would be a second one on the same files.
func turnTrust(row journal.Row, msg holdfast.SendMessage) error {
	asked := &msg.Trust
	if msg.Trust == "" {
		asked = nil
	}
	t, err := decideTrust("turn", asked, row.Trust, msg.MaxTrust)
	if err != nil {
		return err
	}
	if asked != nil && t != row.Trust {
		return holdfast.Errorf(holdfast.KindConflict, "turn", "trust %s is not that of session %s, which is %s", holdfast.Quote(msg.Trust), row.ID, row.Trust).
			WithHint("holdfast session update %s --trust %s", row.ID, t)
	}
	return withinTrust("turn", row.Trust, msg.MaxTrust)
}

// withinTrust refuses a trust that is above what who asks may have.
func withinTrust(op string, t, most holdfast.Trust) error {
	if !t.Exceeds(most) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, op, "trust %s is above this key's maximum, which is %s",
		holdfast.Quote(string(t)), most).WithHint("ask for %s, or make a key for it: holdfast key create --max-trust %s", most, t)
}

// lowered is the notice of a new session whose trust is below the server's
// default because of who asks; nil when it is not.
func (e *Engine) lowered(req holdfast.CreateSession) *journal.Draft {
	if req.Trust != "" || !e.cfg.DefaultTrust.Exceeds(req.MaxTrust) {
		return nil
	}
	return &journal.Draft{Type: holdfast.EventNotice, Data: holdfast.Notice{
		Code: "trust.lowered",
		Text: "the session is " + string(req.MaxTrust) + ", not " + string(e.cfg.DefaultTrust) + " as the server's default: the key that made it may not have more",
	}}
}
