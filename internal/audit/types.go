package audit

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

// The types of records that are no event of a session.
const (
	KeyCreated holdfast.EventType = "key.created"
	KeyRevoked holdfast.EventType = "key.revoked"

	SecretSet      holdfast.EventType = "secret.set"
	SecretRemoved  holdfast.EventType = "secret.removed"
	SecretsRotated holdfast.EventType = "secret.rotated"
)

// whole records a payload as it is.
func whole(data []byte) ([]byte, bool) { return data, true }

// audited says which events are recorded, and what of their payload. An event
// without a row is not.
//
//nolint:gochecknoglobals // a table
var audited = map[holdfast.EventType]func(data []byte) ([]byte, bool){
	holdfast.EventToolAllowed:      whole,
	holdfast.EventToolDenied:       whole,
	holdfast.EventApprovalAsked:    whole,
	holdfast.EventApprovalAnswered: whole,
	holdfast.EventApprovalExpired:  whole,
	holdfast.EventRulesChanged:     whole,
	holdfast.EventHookRan:          whole,
	holdfast.EventSessionCreated:   created,
	holdfast.EventSessionUpdated:   updated,
	// The egress proxy has these names.
	"egress.allowed": whole,
	"egress.denied":  whole,
}

// Of is what is recorded of an event's payload, and whether anything is. It costs
// nothing for events that are not.
func Of(typ holdfast.EventType, data []byte) ([]byte, bool) {
	pick := audited[typ]
	if pick == nil {
		return nil, false
	}
	return pick(data)
}

// created is the decision about a session's trust. Its title is a person's: it
// goes with the session.
func created(data []byte) ([]byte, bool) {
	var d holdfast.SessionCreated
	if json.Unmarshal(data, &d) != nil {
		return data, true
	}
	d.Title, d.Budget, d.TurnBudget = "", nil, nil
	return encode(d, data), true
}

// updated is a change of trust, mode or network; any other is none.
func updated(data []byte) ([]byte, bool) {
	var d holdfast.SessionUpdated
	if json.Unmarshal(data, &d) != nil {
		return data, true
	}
	if d.Trust == nil && d.Mode == nil && d.Network == nil {
		return nil, false
	}
	keep := func(c holdfast.SessionChange) holdfast.SessionChange {
		return holdfast.SessionChange{Trust: c.Trust, Mode: c.Mode, Network: c.Network}
	}
	return encode(holdfast.SessionUpdated{SessionChange: keep(d.SessionChange), From: keep(d.From)}, data), true
}

func encode(v any, otherwise []byte) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return otherwise
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
