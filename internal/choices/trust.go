package choices

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// decideTrust returns the trust of a session: the requested one, or else the inherited one. A
// request above the caller's maximum is denied; an inherited trust is lowered to it.
func decideTrust(op string, asked *string, inherited, most holdfast.Trust) (holdfast.Trust, error) {
	if asked == nil {
		if inherited.Exceeds(most) {
			return most, nil
		}
		return inherited, nil
	}
	t, err := holdfast.Parse[holdfast.Trust](*asked)
	if err != nil {
		return "", err
	}
	return t, withinTrust(op, t, most)
}

// TurnTrust refuses a message whose caller may not run turns with the session's trust, or that asks
// for another trust: turns have no trust of their own, because that would need a second box on the
// same files.
func TurnTrust(row journal.Row, msg holdfast.SendMessage) error {
	asked := &msg.Trust
	if msg.Trust == "" {
		asked = nil
	}
	t, err := decideTrust("turn", asked, row.Trust, msg.MaxTrust)
	if err != nil {
		return err
	}
	if asked != nil && t != row.Trust {
		return holdfast.Errorf(holdfast.KindConflict, "turn", "the message asks for trust %s, but session %s has trust %s", holdfast.Quote(msg.Trust), row.ID, row.Trust).
			WithHint("holdfast session update %s --trust %s", row.ID, t)
	}
	return withinTrust("turn", row.Trust, msg.MaxTrust)
}

// withinTrust refuses a trust above the caller's maximum.
func withinTrust(op string, t, most holdfast.Trust) error {
	if !t.Exceeds(most) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, op, "trust %s is above the API key's maximum trust, which is %s",
		holdfast.Quote(string(t)), most).WithHint("ask for trust %s, or use another key, which the server's owner can make on its machine: env -u HOLDFAST_TOKEN holdfast key create --context local --max-trust %s", most, t)
}
