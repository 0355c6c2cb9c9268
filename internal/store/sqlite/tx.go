package sqlite

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// eventRow is an event on its way into the table.
type eventRow struct {
	id    int64
	event holdfast.Event
}

// load is a session as this transaction sees it; nil for an unknown one. The
// row must not be changed.
func (t *tx) load(id holdfast.SessionID) (*journal.Row, error) {
	if row := t.s.cache.get(id); row != nil {
		return row, nil
	}
	// The newest number is read from the table, where waiting events are not yet.
	if err := t.flush(); err != nil {
		return nil, err
	}
	row, err := scanRow(t.s.w.row.QueryRowContext(t.ctx, id))
	if ok, err := found(err); !ok {
		return nil, err
	}
	return &row, nil
}

// turn is a turn as this transaction sees it; nil for one the session lacks.
func (t *tx) turn(number int64, id holdfast.TurnID) (*journal.TurnRow, error) {
	var owner int64
	turn, err := scanTurn(t.s.w.turnGet.QueryRowContext(t.ctx, id), &owner)
	ok, err := found(err)
	if err != nil || !ok {
		return nil, err
	}
	if owner != number {
		return nil, holdfast.Errorf(holdfast.KindNotFound, "store.commit", "turn %s belongs to another session", id)
	}
	return &turn, nil
}

// keyUsed is what an idempotency key stands for; empty for a new key.
func (t *tx) keyUsed(k *journal.Key) (string, error) {
	return keyRef(k, t.s.w.keys.get.QueryRowContext(t.ctx, k.Scope, k.Value))
}

// keyRef reads hash and ref of a key.
func keyRef(k *journal.Key, row scanner) (string, error) {
	var hash, ref string
	ok, err := found(row.Scan(&hash, &ref))
	if err != nil || !ok {
		return "", err
	}
	if hash != k.Hash {
		return "", holdfast.Errorf(holdfast.KindConflict, "store.commit",
			"the idempotency key %s was used for another request", holdfast.Quote(k.Value)).
			WithHint("send each request with a key of its own")
	}
	return ref, nil
}

// append adds an event to those that are inserted together.
func (t *tx) append(number int64, e holdfast.Event) error {
	t.events = append(t.events, eventRow{id: number<<32 | e.Seq, event: e})
	t.pages += 1 + len(e.Data)/pageSize
	if len(t.events) >= 4*eventSlots[0] {
		return t.flush()
	}
	return nil
}

// flush inserts the waiting events with as few statements as it can: each
// statement costs several microseconds whatever its size.
func (t *tx) flush() error {
	rows := t.events
	t.events = nil
	for i, n := range eventSlots {
		for len(rows) >= n {
			args := make([]any, 0, 6*n)
			for _, r := range rows[:n] {
				typ, turn, at := string(r.event.Type), string(r.event.Turn), r.event.Time.UnixMilli()
				args = append(args, r.id, typ, turn, at, []byte(r.event.Data), eventSum(r.id, at, typ, turn, r.event.Data))
			}
			if _, err := t.s.w.insertEvents[i].ExecContext(t.ctx, args...); err != nil {
				return err
			}
			rows = rows[n:]
		}
	}
	return nil
}

// checkChange refuses what no state of the database could accept.
func checkChange(c *journal.Encoded) error {
	if c.Session == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "the change names no session")
	}
	if len(c.Data) != len(c.Events) {
		return holdfast.Errorf(holdfast.KindInternal, "store.commit", "%d events with %d payloads",
			len(c.Events), len(c.Data))
	}
	for i, e := range c.Events {
		if e.Type == "" {
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "event %d has no type", i+1)
		}
		if !json.Valid(c.Data[i]) || !utf8.Valid(c.Data[i]) {
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "the payload of %s is not JSON: %s",
				holdfast.Quote(string(e.Type)), holdfast.Quote(string(c.Data[i])))
		}
		if err := checkText("event", string(e.Type), string(e.Turn)); err != nil {
			return err
		}
	}
	if r := c.Create; r != nil {
		if _, err := holdfast.ParseStatus(string(r.Status)); err != nil {
			return err
		}
		if r.ID != "" && r.ID != c.Session {
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "the row of %s is for session %s",
				holdfast.Quote(string(r.ID)), c.Session)
		}
		if err := checkText("session", string(c.Session), string(r.Agent), string(r.AgentVersion), string(r.Trust),
			r.Runtime, r.Model, string(r.Mode), r.Title); err != nil {
			return err
		}
		if err := checkText("tag", r.Tags...); err != nil {
			return err
		}
		for name := range r.Env {
			if err := checkText("environment", name); err != nil {
				return err
			}
		}
	}
	return checkParts(c)
}

func checkParts(c *journal.Encoded) error {
	for _, st := range c.Status {
		if _, err := holdfast.ParseStatus(string(st)); err != nil {
			return err
		}
	}
	if p := c.Set; p != nil {
		if err := checkText("title", deref(p.Title)); err != nil {
			return err
		}
		if err := checkText("session", deref(p.Runtime), deref(p.Model), string(deref(p.Mode)), string(deref(p.Trust))); err != nil {
			return err
		}
		if err := checkText("tag", deref(p.Tags)...); err != nil {
			return err
		}
	}
	for _, tc := range c.Turns {
		if tc.ID == "" {
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "a turn has no id")
		}
		if err := checkText("turn", string(tc.ID)); err != nil {
			return err
		}
	}
	if err := checkStates(c); err != nil {
		return err
	}
	if err := checkApprovals(c); err != nil {
		return err
	}
	if k := c.Key; k != nil {
		if k.Scope == "" || k.Value == "" || k.Ref == "" {
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "the idempotency key %s is incomplete",
				holdfast.Quote(k.Value))
		}
		return checkText("idempotency key", k.Scope, k.Value, k.Hash, k.Ref)
	}
	return nil
}

// checkText refuses what not every database can keep as it is.
func checkText(what string, texts ...string) error {
	for _, s := range texts {
		if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "%s %s is not text: it has a NUL or is not UTF-8",
				what, holdfast.Quote(s))
		}
	}
	return nil
}

func cleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func conflict(format string, args ...any) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindConflict, "store.commit", format, args...)
}

func notFound(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "store", "there is no session %s", holdfast.Quote(string(id))).
		WithHint("holdfast session list shows them")
}
