package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// states is the table agent_states: the states of a session's agents that store their conversation
// themselves, each with a reference to that conversation.
type states struct {
	newest, put, remove *sql.Stmt
	list                *sql.Stmt
}

func newStates(s *db.Setup) *states {
	a := &states{}
	s.Write(&a.newest, `SELECT coalesce(max(generation), 0) FROM agent_states WHERE session = ?`)
	s.Write(&a.put, `INSERT INTO agent_states (session, generation, runtime, health, state) VALUES (?,?,?,?,?)
		ON CONFLICT DO UPDATE SET runtime = excluded.runtime, health = excluded.health, state = excluded.state`)
	s.Write(&a.remove, `DELETE FROM agent_states WHERE session = ?`)
	s.Read(&a.list, `SELECT state FROM agent_states WHERE session = (SELECT number FROM sessions WHERE id = ?)
		ORDER BY generation`)
	return a
}

// write stores the agent states that a change to a session contains.
func (a *states) write(t *db.Tx, row *journal.Row, list []holdfast.AgentState) error {
	for _, s := range list {
		s.Upto = min(s.Upto, row.LastSeq)
		raw, err := json.Marshal(s)
		if err != nil {
			return err
		}
		t.Pages += 2 + len(raw)/db.PageSize
		if _, err := a.put.ExecContext(t.Ctx, row.Number, s.Generation, s.Runtime, s.Health, raw); err != nil {
			return err
		}
	}
	return nil
}

// AgentStates lists the states of a session's agents that store their conversation themselves, in order of
// generation.
func (s *Sessions) AgentStates(ctx context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	found, err := s.states.list.QueryContext(ctx, id)
	return db.Collect("store.states", found, err, func(sc db.Scanner) (st holdfast.AgentState, err error) {
		var raw []byte
		if err := sc.Scan(&raw); err != nil {
			return st, err
		}
		if err := json.Unmarshal(raw, &st); err != nil {
			return st, holdfast.Errorf(holdfast.KindInternal, "store.states", "a stored agent state of session %s cannot be decoded: %w", id, err)
		}
		return st, nil
	})
}
