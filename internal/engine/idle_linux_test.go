package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/stages"
)

// noted is a stage that notes whether turns were idle.
type noted chan bool

func (noted) Name() string { return "noted" }

func (n noted) After(_ context.Context, s stages.Settled) error {
	n <- s.Idle
	return nil
}

// TestIdleTurns: a turn is idle only if nothing in the scope's box can have changed the files
// since the turn before it, whichever session did it, and if that is known.
func TestIdleTurns(t *testing.T) {
	for _, driver := range []string{"mem", "local"} {
		t.Run(driver, func(t *testing.T) {
			idle := make(noted, 1)
			h := newHouse(t, driver, idle)
			ids := h.shared.members()
			box := ids[0].Box()
			turn := func(session int, what string, want bool, does ...step) {
				t.Helper()
				sent := h.send(ids[session], script(append(does, say("ok"))...))
				if got := h.ended(ids[session], sent.ID); got.Status != holdfast.TurnCompleted {
					t.Fatalf("%s: turn %+v\n%s", what, got, h.dump(ids[session]))
				}
				if got := <-idle; got != want {
					t.Errorf("%s: idle %v, want %v", what, got, want)
				}
			}
			read := step{"tool": "Read", "input": step{"file_path": "f"}}
			grep := step{"tool": "Grep", "input": step{"pattern": "one"}}
			exec := func(session int, command string) {
				t.Helper()
				if res, err := h.Exec(t.Context(), ids[session], holdfast.ExecRequest{Command: command}, nil, nil); err != nil || res.Class != holdfast.ExitOK {
					t.Fatalf("%s: %+v, %v", command, res, err)
				}
			}
			turn(0, "the first turn", false)
			turn(0, "no box", true)
			turn(0, "a command", false, bash("echo one > f"))
			turn(0, "only reads", true, read, grep)
			turn(1, "the first turn of another session, which only reads", false, read)
			turn(1, "another session that only reads", true, read)
			exec(1, "echo two > f")
			turn(0, "a command by hand in another session", false, read)
			turn(0, "only reads again", true, read)
			// A process that lives on may change files during any turn.
			turn(0, "a background process", false, bash("(until [ -e go ]; do sleep 0.01; done) >/dev/null 2>&1 & echo started"))
			turn(0, "a process that lives", false)
			turn(1, "a process that lives, in another session", false, read)
			if err := os.WriteFile(filepath.Join(h.shared.dir, "shared", "workspace", "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			live := h.pool.Load().Live(box)
			until(t, func() bool { // the count of processes counts as the present one for a second
				_, ok := live.Rest(t.Context())
				return ok
			})
			turn(0, "a process that has ended since", false, read)
			turn(0, "no process", true, read)
			if err := h.pool.Load().Stop(t.Context(), box, "test", 0); err != nil {
				t.Fatal(err)
			}
			turn(0, "a box that stopped", false)
			turn(0, "a stopped box", true)
			exec(1, "true")
			if err := h.pool.Load().Stop(t.Context(), box, "test", 0); err != nil {
				t.Fatal(err)
			}
			turn(0, "a box that started and stopped", false)
			turn(0, "a box that starts", false, read)
			turn(0, "a box that runs", true, read)
			h.kill(box)
			until(t, func() bool { return h.pool.Load().Live(box) == nil })
			turn(0, "a box that was lost", false)
			turn(1, "a box of a lost one", false, bash("true"))
			h.stop(false)
			h.start()
			turn(0, "the next server", false, read)
			turn(0, "the next server's box", true, read)
		})
	}
}
