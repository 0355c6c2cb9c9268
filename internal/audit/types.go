package audit

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

// The types of records about keys, secrets and workspaces. They do not come from an event of a session, and neither
// does ChainHeads.
const (
	KeyCreated holdfast.EventType = "key.created"
	KeyRevoked holdfast.EventType = "key.revoked"

	SecretSet      holdfast.EventType = "secret.set"
	SecretRemoved  holdfast.EventType = "secret.removed"
	SecretsRotated holdfast.EventType = "secret.rotated"

	WorkspaceCreated holdfast.EventType = "workspace.created"
	WorkspaceChanged holdfast.EventType = "workspace.changed"
	WorkspaceDeleted holdfast.EventType = "workspace.deleted"
)

// whole returns the payload of an event unchanged, for event types whose whole payload is recorded.
func whole(data []byte) ([]byte, bool) { return data, true }

// audited has, for each type of event that is recorded, the function that picks the recorded part of
// its payload. Events of other types are not recorded.
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
	// These events come from the egress proxy and the model broker.
	"egress.allowed": whole,
	"egress.denied":  whole,
}

// Of returns the part of an event's payload that is recorded; false if the event is not recorded.
func Of(typ holdfast.EventType, data []byte) ([]byte, bool) {
	pick := audited[typ]
	if pick == nil {
		return nil, false
	}
	return pick(data)
}

// created returns the payload of a created session without its title and budgets: the title is
// personal and must not outlive the session.
func created(data []byte) ([]byte, bool) {
	var d holdfast.SessionCreated
	if json.Unmarshal(data, &d) != nil {
		return data, true
	}
	d.Title, d.Budget, d.TurnBudget = "", nil, nil
	return encode(d, data), true
}

// updated returns a change of a session's trust, mode or network; false if the event has only other
// changes, which are not recorded.
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
