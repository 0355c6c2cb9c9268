package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

const stateList = `SELECT state FROM agent_states WHERE session = (SELECT number FROM sessions WHERE id = ?) ORDER BY generation`

// maxStateData bounds what a runtime keeps with a state.
const maxStateData = 256 << 10

// stateStmts are the writer's.
type stateStmts struct {
	newest, put, delete *sql.Stmt
}

func (w *writeStmts) prepareStates(p *preparer) {
	p.add(&w.states.newest, `SELECT coalesce(max(generation), 0) FROM agent_states WHERE session = ?`)
	p.add(&w.states.put, `INSERT INTO agent_states (session, generation, runtime, health, state) VALUES (?,?,?,?,?)
		ON CONFLICT DO UPDATE SET runtime = excluded.runtime, health = excluded.health, state = excluded.state`)
	p.add(&w.states.delete, `DELETE FROM agent_states WHERE session = ?`)
}

// checkStates refuses agent states that cannot be kept.
func checkStates(c *journal.Encoded) error {
	for _, s := range c.States {
		switch {
		case s.Generation < 1, s.Runtime == "", s.AgentID == "",
			!slices.Contains([]holdfast.AgentHealth{holdfast.HealthCurrent, holdfast.HealthQuarantined, holdfast.HealthLeft}, s.Health):
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "agent state %d of %s is incomplete", s.Generation, holdfast.Quote(s.Runtime))
		case len(s.Data) > maxStateData:
			return holdfast.Errorf(holdfast.KindTooLarge, "store.commit", "%d bytes of agent state are over %d", len(s.Data), maxStateData)
		case len(s.Data) > 0 && (!json.Valid(s.Data) || !utf8.Valid(s.Data)):
			return holdfast.Errorf(holdfast.KindInvalid, "store.commit", "the data of agent state %d is no JSON", s.Generation)
		}
		if err := checkText("agent state", s.Runtime, s.AgentID, s.Version, string(s.Call), string(s.Box), s.Boot); err != nil {
			return err
		}
	}
	return nil
}

// planStates checks that generations follow each other.
func (c *change) planStates(t *tx, row *journal.Row) error {
	if len(c.States) == 0 {
		return nil
	}
	var newest int64
	if err := t.s.w.states.newest.QueryRowContext(t.ctx, row.Number).Scan(&newest); err != nil {
		return err
	}
	for _, s := range c.States {
		if s.Generation > newest+1 {
			return conflict("agent state %d of session %s does not follow %d", s.Generation, c.Session, newest)
		}
		newest = max(newest, s.Generation)
	}
	return nil
}

func (c *change) applyStates(t *tx) error {
	for _, s := range c.States {
		s.Upto = min(s.Upto, c.row.LastSeq)
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		t.pages += 2 + len(raw)/pageSize
		if _, err := t.s.w.states.put.ExecContext(t.ctx, c.row.Number, s.Generation, s.Runtime, s.Health, raw); err != nil {
			return err
		}
	}
	return nil
}

// AgentStates implements engine.Store.
func (s *Store) AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	rows, err := s.r.states.QueryContext(ctx, id)
	if err != nil {
		return nil, failure("store.states", err)
	}
	defer rows.Close()
	var out []holdfast.AgentState
	for rows.Next() {
		var raw []byte
		var st holdfast.AgentState
		if err := rows.Scan(&raw); err != nil {
			return nil, failure("store.states", err)
		}
		if err := json.Unmarshal(raw, &st); err != nil {
			return nil, holdfast.Errorf(holdfast.KindInternal, "store.states", "an agent state of session %s does not decode: %w", id, err)
		}
		out = append(out, st)
	}
	if err := rows.Err(); err != nil {
		return nil, failure("store.states", err)
	}
	return out, nil
}
