package schema

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

// Migration 18 turns messages into lists of parts, each with a type. Before it a message of the
// user was one text, and the type of a part of an answer followed from which of its fields was set.
//
// The JSON shapes are copied here, so that the migration stays the same when the wire types change.

type (
	newPart struct {
		Type      string `json:"type"`
		Text      string `json:"text,omitempty"`
		ToolUseID string `json:"tool_use_id,omitempty"`
	}
	oldPart struct {
		Text      string `json:"text,omitempty"`
		ToolUseID string `json:"tool_use_id,omitempty"`
		Thinking  bool   `json:"thinking,omitempty"`
	}
	newMessage struct {
		Parts []newPart `json:"parts"`
		Steer bool      `json:"steer,omitempty"`
	}
	oldMessage struct {
		Text  string `json:"text"`
		Steer bool   `json:"steer,omitempty"`
	}
	newQueued struct {
		Number   json.RawMessage `json:"number"`
		Parts    []newPart       `json:"parts"`
		Position json.RawMessage `json:"position"`
	}
	oldQueued struct {
		Number   json.RawMessage `json:"number"`
		Text     string          `json:"text"`
		Position json.RawMessage `json:"position"`
	}
	answer[P any] struct {
		Parts      []P             `json:"parts"`
		Seen       json.RawMessage `json:"seen"`
		StopReason json.RawMessage `json:"stop_reason"`
		Model      json.RawMessage `json:"model"`
		Usage      json.RawMessage `json:"usage"`
	}
)

func partsOfMessages(ctx context.Context, tx *sql.Tx) error {
	return rewrite(ctx, tx, map[string]func([]byte) ([]byte, error){
		"message.user": func(data []byte) ([]byte, error) {
			return turned(data, func(m oldMessage) newMessage { return newMessage{[]newPart{{Type: "text", Text: m.Text}}, m.Steer} })
		},
		"turn.queued": func(data []byte) ([]byte, error) {
			return turned(data, func(q oldQueued) newQueued {
				return newQueued{q.Number, []newPart{{Type: "text", Text: q.Text}}, q.Position}
			})
		},
		"message.assistant": func(data []byte) ([]byte, error) {
			return turned(data, func(a answer[oldPart]) answer[newPart] {
				parts := make([]newPart, len(a.Parts))
				for i, p := range a.Parts {
					parts[i] = newPart{Type: "text", Text: p.Text}
					switch {
					case p.Thinking:
						parts[i] = newPart{Type: "thinking"}
					case p.ToolUseID != "":
						parts[i] = newPart{Type: "tool_use", ToolUseID: p.ToolUseID}
					}
				}
				return answer[newPart]{parts, a.Seen, a.StopReason, a.Model, a.Usage}
			})
		},
	})
}

func textsOfMessages(ctx context.Context, tx *sql.Tx) error {
	text := func(parts []newPart) (s string) {
		for i, p := range parts {
			if i > 0 {
				s += "\n\n"
			}
			s += p.Text
		}
		return s
	}
	return rewrite(ctx, tx, map[string]func([]byte) ([]byte, error){
		"message.user": func(data []byte) ([]byte, error) {
			return turned(data, func(m newMessage) oldMessage { return oldMessage{text(m.Parts), m.Steer} })
		},
		"turn.queued": func(data []byte) ([]byte, error) {
			return turned(data, func(q newQueued) oldQueued { return oldQueued{q.Number, text(q.Parts), q.Position} })
		},
		"message.assistant": func(data []byte) ([]byte, error) {
			return turned(data, func(a answer[newPart]) answer[oldPart] {
				parts := make([]oldPart, len(a.Parts))
				for i, p := range a.Parts {
					parts[i] = oldPart{p.Text, p.ToolUseID, p.Type == "thinking"}
				}
				return answer[oldPart]{parts, a.Seen, a.StopReason, a.Model, a.Usage}
			})
		},
	})
}

// turned decodes a JSON payload, converts it with to, and encodes the result.
func turned[From, To any](data []byte, to func(From) To) ([]byte, error) {
	var from From
	if err := json.Unmarshal(data, &from); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(to(from))
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// row is a row of the table events.
type row struct {
	id, at, sum int64
	event       holdfast.Event
}

func (r *row) checksum() int64 { return Sum(r.id, r.at, &r.event) }

// rewrite converts the payloads of events with the functions in turns, which has one for each type of event. It reads
// some rows at a time. A damaged row stays as it is, so that its damage is still reported.
func rewrite(ctx context.Context, tx *sql.Tx, turns map[string]func([]byte) ([]byte, error)) error {
	const at, page = `SELECT id, type, turn, at, data, sum, agent FROM events WHERE id > ? AND type IN ('message.user', 'message.assistant', 'turn.queued')
		ORDER BY id LIMIT ?`, 500
	for last := int64(-1); ; {
		rows, err := read(ctx, tx, at, last, page)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, r := range rows {
			last = r.id
			if r.sum >= 0 && r.sum != r.checksum() {
				continue
			}
			data, err := turns[string(r.event.Type)](r.event.Data)
			if err != nil {
				continue
			}
			if r.event.Data = data; r.sum >= 0 {
				r.sum = r.checksum()
			}
			if _, err := tx.ExecContext(ctx, `UPDATE events SET data = ?, sum = ? WHERE id = ?`, []byte(data), r.sum, r.id); err != nil {
				return err
			}
		}
	}
}

func read(ctx context.Context, tx *sql.Tx, query string, args ...any) (out []row, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.event.Type, &r.event.Turn, &r.at, (*[]byte)(&r.event.Data), &r.sum, &r.event.Agent); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}
