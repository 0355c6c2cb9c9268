package schema

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast"
)

// environmentsInEnvelopes is migration 19. Before it, the environments of sessions were sealed with a
// separate key, in a format whose first byte is 1. It removes such environments from ended sessions, which do
// not need them any more. If another session has one, it refuses the database.
func environmentsInEnvelopes(ctx context.Context, tx *sql.Tx) error {
	const former = ` FROM sessions WHERE substr(sealed_env, 1, 1) = x'01' AND status <> 'ended'`
	var n int64
	var first sql.NullString
	if err := tx.QueryRowContext(ctx, `SELECT count(*), min(id)`+former).Scan(&n, &first); err != nil {
		return err
	}
	if n > 0 {
		return holdfast.Errorf(holdfast.KindUnavailable, "store.open",
			"the environment variables of %d sessions (the first is session %s) were sealed with secret.key by an earlier release, and this release cannot open them", n, first.String).
			WithHint("end these sessions with the release that made them: holdfast session end %s", first.String)
	}
	_, err := tx.ExecContext(ctx, `UPDATE sessions SET sealed_env = NULL WHERE substr(sealed_env, 1, 1) = x'01'`)
	return err
}

// nothing is the way back from migration 19, which changed the schema of no table: it does nothing.
func nothing(context.Context, *sql.Tx) error { return nil }
