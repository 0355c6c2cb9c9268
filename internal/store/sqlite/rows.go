package sqlite

import (
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// scanner is a row of a result.
type scanner interface{ Scan(dst ...any) error }

// scanRow reads rowCols and the newest sequence number.
func scanRow(sc scanner) (journal.Row, error) {
	var r journal.Row
	var tags, env, spent, budget string
	var created, active int64
	var last sql.NullInt64
	var network, source sql.NullString
	err := sc.Scan(&r.Number, &r.ID, &r.Status, &r.Agent, &r.AgentVersion, &r.Trust, &r.Runtime, &r.Model, &r.Mode,
		&r.Title, &tags, &env, &r.SealedEnv, &r.Error, &r.Revision, &r.CompletedTurns, &r.LastTurn, &r.FilesSeeded,
		&r.HadFiles, &created, &active, &spent, &budget, &r.BoxUID, &network, &source, &last)
	if err != nil {
		return r, err
	}
	r.CreatedAt, r.LastActiveAt, r.LastSeq = fromMS(created), fromMS(active), last.Int64&journal.MaxSeq
	if err := json.Unmarshal([]byte(tags), &r.Tags); err != nil {
		return r, holdfast.Errorf(holdfast.KindInternal, "store.row", "tags of %s: %w", r.ID, err)
	}
	var names []string
	if err := json.Unmarshal([]byte(env), &names); err != nil {
		return r, holdfast.Errorf(holdfast.KindInternal, "store.row", "env of %s: %w", r.ID, err)
	}
	if err := decodeSpent(&r, spent, budget); err != nil {
		return r, err
	}
	if network.Valid {
		if err := json.Unmarshal([]byte(network.String), &r.Network); err != nil {
			return r, holdfast.Errorf(holdfast.KindInternal, "store.row", "network of %s: %w", r.ID, err)
		}
	}
	if source.Valid {
		if err := json.Unmarshal([]byte(source.String), &r.Source); err != nil {
			return r, holdfast.Errorf(holdfast.KindInternal, "store.row", "source of %s: %w", r.ID, err)
		}
	}
	if len(names) > 0 {
		r.Env = make(map[string]string, len(names))
		for _, n := range names {
			r.Env[n] = "***"
		}
	}
	return r, nil
}

// encodeSource is a source as it is stored; nil is null.
func encodeSource(s *holdfast.Source) *string {
	if s == nil {
		return nil
	}
	raw, _ := json.Marshal(s) // texts and a flag always encode
	out := string(raw)
	return &out
}

// encodeNetwork is a list of destinations as it is stored; nil is null.
func encodeNetwork(list []string) *string {
	if list == nil {
		return nil
	}
	raw, _ := json.Marshal(list) // texts always encode
	s := string(raw)
	return &s
}

// budgets are the bounds as they are stored.
type budgets struct {
	Session *holdfast.Budget `json:"session,omitempty"`
	Turn    *holdfast.Budget `json:"turn,omitempty"`
}

func encodeSpent(r *journal.Row) (spent, budget string, err error) {
	if r.Spent != (holdfast.Spent{}) {
		b, err := json.Marshal(r.Spent)
		if err != nil {
			return "", "", err
		}
		spent = string(b)
	}
	if r.Budget != nil || r.TurnBudget != nil {
		b, err := json.Marshal(budgets{r.Budget, r.TurnBudget})
		if err != nil {
			return "", "", err
		}
		budget = string(b)
	}
	return spent, budget, nil
}

func decodeSpent(r *journal.Row, spent, budget string) error {
	if spent != "" {
		if err := json.Unmarshal([]byte(spent), &r.Spent); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "store.row", "spent of %s: %w", r.ID, err)
		}
	}
	if budget != "" {
		var b budgets
		if err := json.Unmarshal([]byte(budget), &b); err != nil {
			return holdfast.Errorf(holdfast.KindInternal, "store.row", "budget of %s: %w", r.ID, err)
		}
		r.Budget, r.TurnBudget = b.Session, b.Turn
	}
	return nil
}

func encodeTags(tags []string) (string, error) {
	if tags == nil {
		tags = []string{}
	}
	b, err := json.Marshal(tags)
	return string(b), err
}

// encodeEnv stores the names only: the values are in sealed_env.
func encodeEnv(env map[string]string) (string, error) {
	return encodeTags(slices.Sorted(maps.Keys(env)))
}

// scanTurn reads turnCols; the second column lands in session.
func scanTurn(sc scanner, session any) (journal.TurnRow, error) {
	var t journal.TurnRow
	var created int64
	var started, ended sql.NullInt64
	err := sc.Scan(&t.ID, session, &t.Number, &t.Status, &t.MessageSeq, &t.EndSeq, &created, &started, &ended)
	t.CreatedAt, t.StartedAt, t.EndedAt = fromMS(created), fromNullMS(started), fromNullMS(ended)
	return t, err
}

func fromMS(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func fromNullMS(ms sql.NullInt64) *time.Time {
	if !ms.Valid {
		return nil
	}
	t := fromMS(ms.Int64)
	return &t
}

func toNullMS(t *time.Time) sql.NullInt64 {
	if t == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.UnixMilli(), Valid: true}
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
