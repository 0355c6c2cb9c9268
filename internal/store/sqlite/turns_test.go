package sqlite

import (
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// TestRememberedTurns: what the writer remembers of turns is dropped when a transaction is rolled back
// and when another program writes, and answers as the table does.
func TestRememberedTurns(t *testing.T) {
	s := openNew(t, Config{})
	if _, err := plain(t, s.path).ExecContext(t.Context(), `CREATE TRIGGER poison BEFORE INSERT ON events
		WHEN NEW.type = 'poison' BEGIN SELECT RAISE(ABORT, 'poisoned'); END`); err != nil {
		t.Fatal(err)
	}
	commit(t, s, creation(testID(1)))
	commit(t, s, creation(testID(2)))
	move := func(session int, id holdfast.TurnID, from, to holdfast.TurnStatus, number int64) journal.Encoded {
		c := appending(testID(session), payload, 1)
		c.Turns = []journal.TurnChange{{ID: id, From: from, To: to, Number: number}}
		return c
	}
	refused := func(what string, c journal.Encoded, kind holdfast.Kind) {
		t.Helper()
		if _, err := s.Commit(t.Context(), c); !holdfast.IsKind(err, kind) {
			t.Errorf("%s: %v, want %s", what, err, kind)
		}
	}
	const running, completed = holdfast.TurnRunning, holdfast.TurnCompleted

	poison := move(1, "b", "", running, 1)
	poison.Events[0].Type = "poison"
	refused("a change that the database refuses", poison, holdfast.KindInternal)
	refused("the end of a turn that was rolled back", move(1, "b", running, completed, 0), holdfast.KindNotFound)

	commit(t, s, move(1, "b", "", running, 1))
	refused("a turn that runs", move(1, "b", "", running, 2), holdfast.KindConflict)
	refused("a turn that runs in another session", move(2, "b", running, completed, 0), holdfast.KindNotFound)
	commit(t, s, move(1, "b", running, completed, 0))
	refused("the second end of a turn", move(1, "b", running, completed, 0), holdfast.KindConflict)
	refused("a turn that has ended", move(1, "b", "", running, 2), holdfast.KindConflict)
	commit(t, s, move(2, "a", "", running, 1)) // an id below the newest
	refused("a turn with an id below the newest", move(2, "a", "", running, 2), holdfast.KindConflict)

	// A refused change rolls back and so forgets: before each of these a change is written.
	commit(t, s, move(2, "c", "", running, 2))
	if _, err := plain(t, s.path).ExecContext(t.Context(), `DELETE FROM turns WHERE id = 'c'`); err != nil {
		t.Fatal(err)
	}
	refused("a turn that another program removed", move(2, "c", running, completed, 0), holdfast.KindNotFound)
	commit(t, s, move(2, "d", "", running, 3))
	if _, err := plain(t, s.path).ExecContext(t.Context(), `UPDATE turns SET id = 'e' WHERE id = 'b'`); err != nil {
		t.Fatal(err)
	}
	refused("a turn that another program named", move(1, "e", "", running, 2), holdfast.KindConflict)
}
