package collect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// crowded returns a world, closed, in which a collection has everything to do: session 1 and its fork 2
// have checkpoints to drop, small and mostly unneeded packs, and packs whose grace has ended.
func crowded(t testing.TB) *world {
	w := newWorld(t, Config{Rules: Rules{Count: 5, Age: -1}})
	w.create(1)
	for range 8 {
		w.turn(1)
	}
	w.fork(2, w.newest(1))
	for range 8 {
		w.turn(1)
		w.turn(2)
	}
	_, err := w.c.Collect(t.Context(), false)
	must(t, err)
	w.pass(2 * time.Hour)
	for range 12 {
		w.turn(1)
	}
	w.turn(2)
	w.close()
	t.Cleanup(w.open) // which newWorld closes again
	return w
}

// action is what a test interrupts.
type action struct {
	name string
	do   func(*world) error
}

func collects(w *world) error {
	_, err := w.c.Collect(w.t.Context(), false)
	return err
}

func purges(w *world) error {
	err := w.c.Purge(w.t.Context(), ofSession(1))
	return err
}

func ofSession(n int) func(journal.Checkpoint) bool {
	return func(cp journal.Checkpoint) bool { return cp.Session == session(n) }
}

var actions = []action{{"collect", collects}, {"purge", purges}, {"turn", func(w *world) error {
	w.edit(1)
	_, err := w.take(1)
	return err
}}}

// TestKillAtEachStep ends the process before each change that an action makes in the database or on the
// disk: what the next start and its collections leave is whole, and nothing too much.
func TestKillAtEachStep(t *testing.T) {
	testkit.Long(t)
	kills(t, 1)
}

// TestKillAtSomeSteps is TestKillAtEachStep for every second step.
func TestKillAtSomeSteps(t *testing.T) { kills(t, 4) }

func kills(t *testing.T, every int) {
	base := crowded(t)
	for _, a := range actions {
		total := 0
		for n, more := 0, true; more; n += every {
			w := base.copied(t)
			var names []string
			w.steps.before = func(at int, name string) error {
				if names = append(names, name); at >= n {
					return errKilled
				}
				return nil
			}
			err := a.do(w)
			if more = len(names) > n; more != (err != nil) {
				t.Fatalf("%s, killed before step %d of %v: %v", a.name, n, names, err)
			}
			total = n
			when := fmt.Sprintf("%s, killed before step %d, %s", a.name, n, strings.Join(names[min(n, len(names)):], ","))
			st := w.restart()
			if len(st.Faults) > 0 {
				t.Errorf("%s: %+v", when, st.Faults)
			}
			w.restores(when)
			w.turn(2)
			w.collect()
			w.restores(when)
			w.clean(when)
			w.end()
		}
		t.Logf("%s: %d steps", a.name, total)
	}
}

// TestFailureAtEachStep lets each change fail, as on a full disk, while the process goes on: everything
// stays whole, and the next collections do the rest.
func TestFailureAtEachStep(t *testing.T) {
	testkit.Long(t)
	failures(t, 1)
}

// TestFailureAtSomeSteps is TestFailureAtEachStep for some steps.
func TestFailureAtSomeSteps(t *testing.T) { failures(t, 4) }

func failures(t *testing.T, every int) {
	base := crowded(t)
	for _, a := range actions {
		for n, more := 0, true; more; n += every {
			w := base.copied(t)
			failed := ""
			w.steps.before = func(at int, name string) error {
				if at == n {
					failed = name
					return syscall.ENOSPC
				}
				return nil
			}
			err := a.do(w)
			w.steps.before = nil
			when := fmt.Sprintf("%s, step %d failed: %s, %v", a.name, n, failed, err)
			if more = failed != ""; !more && err != nil || more && err == nil {
				t.Error(when)
			}
			w.restores(when)
			w.turn(2)
			w.collect()
			w.restores(when)
			w.clean(when)
			w.end()
		}
	}
}

// TestWritersMeetCollections lets a turn begin before one step of an action and commit before another
// one: either the commit is refused, or its checkpoint is whole for good.
func TestWritersMeetCollections(t *testing.T) {
	base := crowded(t)
	base.cfg.Grace = 1
	both := action{"two collections", func(w *world) error {
		if err := collects(w); err != nil {
			return err
		}
		w.pass(time.Minute)
		return collects(w)
	}}
	for _, a := range []action{both, actions[1]} {
		at := decisive(t, base, a)
		refused, taken := 0, 0
		for i, from := range at {
			for j, to := range at[i:] {
				if j > 1 && to != at[len(at)-1] {
					continue
				}
				w := base.copied(t)
				var k *taking
				var id holdfast.CheckpointID
				var err error
				w.steps.before = func(n int, _ string) error {
					own := w.steps.before
					w.steps.before = nil // the turn's own steps
					if n == from {
						k, err = w.begin(2)
						must(t, err)
					}
					if n == to {
						id, err = k.commit()
					}
					w.steps.n, w.steps.before = n+1, own
					return nil
				}
				must(t, a.do(w))
				when := fmt.Sprintf("%s, turn from step %d to %d: %v", a.name, from, to, err)
				w.steps.before = nil
				if k == nil || id == "" {
					t.Fatal(when)
				}
				switch {
				case err == nil:
					taken++
				case holdfast.IsKind(err, holdfast.KindConflict):
					refused++
				default:
					t.Error(when)
				}
				w.restores(when)
				w.collect()
				w.restores(when)
				w.clean(when)
				if got := slices.ContainsFunc(w.stored(), func(cp journal.Checkpoint) bool { return cp.ID == id }); got != (err == nil) {
					t.Errorf("%s: stored %v", when, got)
				}
				w.end()
			}
		}
		if refused == 0 || taken == 0 {
			t.Errorf("%s: %d commits refused, %d taken", a.name, refused, taken)
		}
		t.Logf("%s: %d commits refused, %d taken", a.name, refused, taken)
	}
}

// decisive returns the numbers of an action's steps that change the database, or remove the first file.
func decisive(t *testing.T, base *world, a action) (out []int) {
	w := base.copied(t)
	defer w.end()
	last := ""
	w.steps.before = func(n int, name string) error {
		if name != last && !slices.Contains([]string{"create", "write", "sync", "rename", "syncdir"}, name) {
			out = append(out, n)
		}
		last = name
		return nil
	}
	must(t, a.do(w))
	return out
}

const childEnv = "HOLDFAST_COLLECT_CHILD"

// child collects and purges in a directory, and kills its own process before a step.
func child() {
	dir, at, ok := strings.Cut(os.Getenv(childEnv), ",")
	if !ok {
		return
	}
	step, err := strconv.Atoi(at)
	if err != nil {
		panic(err)
	}
	w := &world{t: nobody{}, dir: dir, cfg: Config{Rules: Rules{Count: 5, Age: -1}}, now: clockAt(time.Now().UnixMilli()), present: map[int]files{}}
	w.open()
	w.steps.before = func(n int, _ string) error {
		if n == step {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	}
	if _, err := w.c.Collect(context.Background(), false); err != nil {
		panic(err)
	}
	if err := w.c.Purge(context.Background(), ofSession(1)); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// nobody is the test of a child, which has none.
type nobody struct{ testing.TB }

func (nobody) Helper()           {}
func (nobody) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// TestKilledProcess kills a real process at some steps.
//
// ASH-20.
func TestKilledProcess(t *testing.T) {
	base := crowded(t)
	ended := false
	for n := 0; !ended; n += 13 {
		w := base.copied(t)
		w.close()
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d", childEnv, w.dir, n))
		out, err := cmd.CombinedOutput()
		ended = err == nil
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ended && status.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v\n%s", n, err, out)
		}
		w.now.Store(time.Now().Add(time.Hour).UnixMilli())
		w.open()
		when := fmt.Sprintf("killed before step %d", n)
		_, err = w.c.Start(t.Context())
		must(t, err)
		w.restores(when)
		w.turn(2)
		w.collect()
		w.restores(when)
		w.clean(when)
		w.end()
	}
}
