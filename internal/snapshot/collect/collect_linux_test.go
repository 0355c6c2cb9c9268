package collect

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestManySmallCheckpoints: however many small checkpoints a scope has, and if none is dropped, it needs
// few packs.
func TestManySmallCheckpoints(t *testing.T) { small(t, 600, 40) }

// TestTenThousandCheckpoints is TestManySmallCheckpoints with more of them.
func TestTenThousandCheckpoints(t *testing.T) {
	testkit.Long(t)
	small(t, 10_000, 500)
}

// small takes n checkpoints and collects after every so many.
func small(t *testing.T, n, every int) {
	w := newWorld(t, Config{Rules: Rules{Count: -1, Age: -1}})
	w.create(1)
	most := 0
	for i := range n {
		w.turn(1)
		if i%every == every-1 {
			_, err := w.c.Collect(t.Context(), false)
			must(t, err)
			most = max(most, len(w.newest(1).Packs))
		}
	}
	if most > 100 {
		t.Errorf("a scope needed %d packs after a collection", most)
	}
	w.collect()
	w.clean("in the end")
	cps := w.stored()
	if len(cps) != n {
		t.Errorf("%d checkpoints are left", len(cps))
	}
	t.Logf("%d checkpoints need %d packs, %d at most", n, len(cps[n-1].Packs), most)
	for i := 0; i < len(cps); i += 37 {
		if got, err := w.content(cps[i]); err != nil || !maps.Equal(got, w.taken[cps[i].ID]) {
			t.Errorf("checkpoint %d: %v", i, err)
		}
	}
}

// TestTurnsDuringCollections lets sessions take checkpoints while packs are merged and dropped without a
// grace: each acknowledged one keeps its files.
func TestTurnsDuringCollections(t *testing.T) {
	w := newWorld(t, Config{Rules: Rules{Count: -1, Age: -1}, Grace: -1})
	w.create(1)
	w.turn(1)
	w.fork(2, w.newest(1))
	w.fork(3, w.newest(1))
	var turns, collections sync.WaitGroup
	worlds := make([]*world, 4)
	refused := make([]int, 4)
	for n := 1; n <= 3; n++ {
		v := *w
		v.rand, v.taken, v.last = rand.New(rand.NewPCG(5, uint64(n))), map[holdfast.CheckpointID]files{}, n<<20
		v.present = map[int]files{n: maps.Clone(w.present[n])}
		worlds[n] = &v
		turns.Go(func() {
			for range 40 {
				v.edit(n)
				for {
					if _, err := v.take(n); err == nil {
						break
					} else if !holdfast.IsKind(err, holdfast.KindConflict) {
						t.Error(err)
						return
					}
					refused[n]++
				}
			}
		})
	}
	stop, runs := make(chan struct{}), 0
	collections.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.c.Collect(t.Context(), false); err != nil {
				t.Error(err)
				return
			}
			if err := w.c.Purge(t.Context(), func(cp journal.Checkpoint) bool { return cp.Order%5 == 0 }); err != nil &&
				!holdfast.IsKind(err, holdfast.KindConflict) {
				t.Error(err)
				return
			}
			runs++
		}
	})
	turns.Wait()
	close(stop)
	collections.Wait()
	for _, v := range worlds[1:] {
		maps.Copy(w.taken, v.taken)
	}
	t.Logf("%d checkpoints, %d collections and purges, commits refused twice: %v", len(w.taken), runs, refused[1:])
	w.restores("after all")
	w.collect()
	w.restores("in the end")
	w.clean("in the end")
}

// TestHeldCheckpointStays: no rule drops a checkpoint that somebody holds, not even one that is held after the plan
// was made; its files can be restored. Once it is released the rules drop it.
func TestHeldCheckpointStays(t *testing.T) {
	w := newWorld(t, Config{Rules: Rules{Count: 2, Age: time.Hour, Bytes: 1}})
	w.create(1)
	w.present[1]["big"] = secret(1)
	w.turn(1)
	first := w.newest(1)
	w.present[1]["big"] = secret(2)
	w.turn(1)
	second := w.newest(1)
	delete(w.present[1], "big")
	for range 4 {
		w.turn(1)
	}
	w.hold(first, true)
	w.pass(1000 * time.Hour)
	w.steps.before = func(_ int, name string) error {
		if name == "drop checkpoints" {
			w.steps.before = nil
			w.hold(second, true)
		}
		return nil
	}
	w.collect()
	w.clean("with two held checkpoints")
	w.restores("with two held checkpoints")
	var left []holdfast.CheckpointID
	for _, cp := range w.stored() {
		left = append(left, cp.ID)
	}
	if want := []holdfast.CheckpointID{first.ID, second.ID, w.newest(1).ID}; !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v", left, want)
	}
	w.hold(first, false)
	w.hold(second, false)
	w.collect()
	w.clean("in the end")
	if left := w.stored(); len(left) != 1 || w.on(secret(1)) || w.on(secret(2)) {
		t.Errorf("%d checkpoints are left, the content of the released ones: %v %v", len(left), w.on(secret(1)), w.on(secret(2)))
	}
}

// TestDryRun: a dry run plans what the next run does, and changes nothing.
func TestDryRun(t *testing.T) {
	base := crowded(t)
	w := base.copied(t)
	defer w.end()
	w.steps.before = func(_ int, name string) error {
		t.Errorf("a dry run changes something: %s", name)
		return nil
	}
	plan, err := w.c.Collect(t.Context(), true)
	must(t, err)
	w.steps.before = nil
	if len(plan.Checkpoints) == 0 || len(plan.Merges) == 0 || len(plan.Mark) == 0 || len(plan.Remove) == 0 {
		t.Errorf("nothing to do: %+v", plan)
	}
	done, err := w.c.Collect(t.Context(), false)
	must(t, err)
	if diff := cmp.Diff(plan, done, cmp.AllowUnexported(Merge{}), cmpopts.IgnoreUnexported(Plan{})); diff != "" {
		t.Errorf("the run differs from the plan: %s", diff)
	}
	for _, d := range done.Checkpoints {
		if _, err := w.db.Checkpoints.Checkpoint(t.Context(), d.Session, d.Checkpoint); !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.Errorf("%s: %v", d.Checkpoint, err)
		}
	}
	w.restores("after the run")
}

// TestSizeRule: above the limit the oldest checkpoints go, until the packs are small enough, and no more.
func TestSizeRule(t *testing.T) {
	w := newWorld(t, Config{Rules: Rules{Count: -1, Age: -1, Bytes: 40 << 10}})
	w.create(1)
	w.create(2)
	for range 20 {
		w.turn(1)
		w.turn(2)
	}
	before := w.stored()
	w.collect()
	w.clean("after a collection")
	w.restores("after a collection")
	left := w.stored()
	size := int64(0)
	known, err := w.db.Checkpoints.AllPacks(t.Context())
	must(t, err)
	for _, p := range known {
		size += p.Bytes
	}
	t.Logf("%d of %d checkpoints are left in %d bytes", len(left), len(before), size)
	if size > 40<<10 || size < 25<<10 || len(left) == 0 || left[len(left)-1].ID != before[len(before)-1].ID {
		t.Errorf("%d of %d checkpoints are left in %d bytes", len(left), len(before), size)
	}
	for i, cp := range left {
		if newest := before[len(before)-len(left)+i]; cp.ID != newest.ID {
			t.Errorf("checkpoint %s stays although %s went", cp.ID, newest.ID)
		}
	}
}

// TestRandom does anything in any order, with ends of the process in between: checkpoints that the rules
// keep always have their files, and in the end nothing else is left.
func TestRandom(t *testing.T) { random(t, 4) }

// TestRandomLong is TestRandom with more seeds.
func TestRandomLong(t *testing.T) {
	testkit.Long(t)
	random(t, 25)
}

func random(t *testing.T, seeds uint64) {
	for seed := range seeds {
		w := newWorld(t, Config{Rules: Rules{Count: 8, Age: -1}})
		w.rand = rand.New(rand.NewPCG(seed, 1))
		w.create(1)
		w.turn(1)
		sessions := []int{1}
		for step := range 60 {
			n := sessions[w.rand.IntN(len(sessions))]
			when := fmt.Sprintf("seed %d, step %d", seed, step)
			switch k := w.rand.IntN(16); {
			case k < 8:
				w.turn(n)
			case k < 9 && len(sessions) < 5:
				cps := slices.DeleteFunc(w.stored(), func(cp journal.Checkpoint) bool { return cp.Session != session(n) })
				if len(cps) > 0 {
					sessions = append(sessions, len(sessions)+1)
					w.fork(len(sessions), cps[w.rand.IntN(len(cps))])
				}
			case k < 10:
				w.pass(time.Duration(w.rand.IntN(90)) * time.Minute)
			case k < 12:
				_, err := w.c.Collect(t.Context(), false)
				must(t, err)
			case k < 13:
				err := w.c.Purge(t.Context(), func(cp journal.Checkpoint) bool {
					return cp.Session == session(n) && cp.Order%3 == int64(step%3)
				})
				must(t, err)
			default:
				w.interrupt(n, when)
			}
			w.restores(when)
		}
		w.collect()
		w.clean(fmt.Sprintf("seed %d, in the end", seed))
		for _, fam := range sessions {
			w.turn(fam)
		}
		w.restores(fmt.Sprintf("seed %d, in the end", seed))
	}
}

// interrupt ends the process at any step of anything, or lets the step fail, and starts again.
func (w *world) interrupt(n int, when string) {
	w.t.Helper()
	at, kill := w.rand.IntN(30), w.rand.IntN(3) > 0
	w.steps.n = 0
	w.steps.before = func(step int, _ string) error {
		switch {
		case kill && step >= at:
			return errKilled
		case step == at:
			return syscall.ENOSPC
		}
		return nil
	}
	switch w.rand.IntN(3) {
	case 0:
		w.edit(n)
		_, _ = w.take(n) // ends at any step
	case 1:
		_, _ = w.c.Collect(w.t.Context(), false)
	case 2:
		_ = w.c.Purge(w.t.Context(), func(cp journal.Checkpoint) bool { return cp.Session == session(n) && cp.Order%2 == 0 })
	}
	w.steps.before = nil
	if kill {
		if st := w.restart(); len(st.Faults) > 0 {
			w.t.Fatalf("%s: %+v", when, st.Faults)
		}
	}
}
