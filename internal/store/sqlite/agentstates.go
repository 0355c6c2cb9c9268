package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

const stateList = `SELECT state FROM agent_states WHERE session = (SELECT number FROM sessions WHERE id = ?) ORDER BY generation`

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

func (c *change) applyStates(t *tx) error {
	for _, s := range c.States {
		s.Upto = min(s.Upto, c.planned.Row.LastSeq)
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		t.pages += 2 + len(raw)/pageSize
		if _, err := t.s.w.states.put.ExecContext(t.ctx, c.planned.Row.Number, s.Generation, s.Runtime, s.Health, raw); err != nil {
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
