package collect

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// path returns the file of a pack.
func (w *world) path(n int64) string {
	id := w.set([]int64{n})[0]
	return filepath.Join(w.dir, "packs", id.String()+".v1.pack")
}

// own returns the numbers of the packs that a checkpoint lists and none of the others does.
func own(cp journal.Checkpoint, others ...journal.Checkpoint) (out []int64) {
	for _, n := range cp.Packs {
		if !slices.ContainsFunc(others, func(o journal.Checkpoint) bool { return slices.Contains(o.Packs, n) }) {
			out = append(out, n)
		}
	}
	return out
}

// TestStart removes what the database does not know, and reports what is missing or cut.
func TestStart(t *testing.T) {
	w := newWorld(t, Config{})
	w.create(1)
	w.edit(1)
	k, err := w.begin(1)
	must(t, err)
	_, err = k.out.Commit(t.Context(), pack.Record{})
	must(t, err)
	if st := w.restart(); len(st.Orphans) != 0 || len(st.Unknown) != 1 {
		t.Errorf("beside a new database: %+v", st)
	}
	w.turn(1)
	w.turn(1)
	last := w.newest(1)
	if st := w.restart(); len(st.Orphans) != 1 || len(st.Unknown) != 0 || len(st.Faults) != 0 {
		t.Errorf("with an orphan: %+v", st)
	}
	w.clean("after a start")
	w.restores("after a start")
	cut, gone := last.Packs[0], last.Packs[1]
	must(t, os.Truncate(w.path(cut), 50))
	must(t, os.Remove(w.path(gone)))
	st := w.restart()
	if len(st.Faults) != 2 || st.Faults[0].Number != cut || !strings.Contains(st.Faults[0].Why, "50 bytes instead of") ||
		st.Faults[1].Number != gone || st.Faults[1].Why != "the file is missing" || !slices.Contains(st.Faults[1].Checkpoints, last.ID) {
		t.Errorf("%+v", st)
	}
}

// TestOrphansOfFailedCommits: a pack whose commit failed goes after the grace, without a new start, and a
// pack whose commit takes its time stays.
func TestOrphansOfFailedCommits(t *testing.T) {
	w := newWorld(t, Config{})
	w.create(1)
	w.turn(1)
	orphan := func() *taking {
		w.edit(1)
		k, err := w.begin(1)
		must(t, err)
		return k
	}
	failed, slow := orphan(), orphan()
	infos, err := failed.out.Commit(t.Context(), pack.Record{})
	must(t, err)
	p, err := w.c.Collect(t.Context(), false)
	must(t, err)
	if len(p.Orphans) > 0 {
		t.Errorf("at once: %v", p.Orphans)
	}
	_, err = slow.commit()
	must(t, err)
	w.pass(2 * time.Hour)
	p, err = w.c.Collect(t.Context(), false)
	must(t, err)
	if len(p.Orphans) != 1 || p.Orphans[0] != infos[0].ID {
		t.Errorf("after the grace: %v, want %s", p.Orphans, infos[0].ID)
	}
	w.collect()
	w.clean("in the end")
	w.restores("in the end")
}

// TestDamageIsKept: what a damaged scope has left is neither merged nor dropped, it is reported, and the
// newest whole checkpoint stays.
func TestDamageIsKept(t *testing.T) {
	w := newWorld(t, Config{Rules: Rules{Count: 1}})
	w.create(1)
	for range 6 {
		w.turn(1)
	}
	cps := w.stored()
	last := cps[len(cps)-1]
	lost := own(last, cps[:len(cps)-1]...)
	must(t, os.Remove(w.path(lost[0])))
	w.collect()
	if left := w.stored(); len(left) != 2 || left[0].ID != cps[len(cps)-2].ID || left[1].ID != last.ID {
		t.Errorf("%d checkpoints are left", len(left))
	}
	p, err := w.c.Collect(t.Context(), false)
	must(t, err)
	if len(p.Faults) != 1 || p.Faults[0].Number != lost[0] || !slices.Contains(p.Faults[0].Checkpoints, last.ID) {
		t.Errorf("%+v", p.Faults)
	}
	if got, err := w.content(w.stored()[0]); err != nil || !maps.Equal(got, w.taken[cps[len(cps)-2].ID]) {
		t.Errorf("the newest whole checkpoint: %v", err)
	}
	w.turn(1)
	w.turn(1)
	w.collect() // the damaged one is dropped, and with it the pack
	w.restores("after more turns")
	w.clean("after more turns")
}

// TestVerify flips bytes all over the packs: each is found, and exactly the checkpoints and files that
// have lost something are named.
func TestVerify(t *testing.T) {
	w := newWorld(t, Config{})
	w.create(1)
	for range 4 {
		w.turn(1)
	}
	w.fork(2, w.newest(1))
	w.turn(2)
	whole, err := w.c.Verify(t.Context(), nil)
	must(t, err)
	known, err := w.db.Checkpoints.AllPacks(t.Context())
	must(t, err)
	if len(whole.Faults)+len(whole.Damaged) > 0 || whole.Checkpoints != 6 || whole.Packs != len(known) || whole.Bytes == 0 || whole.Blobs == 0 {
		t.Errorf("%+v", whole)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		p := known[r.IntN(len(known))]
		content, err := os.ReadFile(w.path(p.Number))
		must(t, err)
		bad := bytes.Clone(content)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		must(t, os.WriteFile(w.path(p.Number), bad, 0o600))
		w.packs.Release()
		rep, err := w.c.Verify(t.Context(), nil)
		must(t, err)
		if len(rep.Faults) != 1 || rep.Faults[0].Number != p.Number || len(rep.Faults[0].Checkpoints) == 0 {
			t.Fatalf("%+v", rep)
		}
		var want, got []holdfast.CheckpointID
		for _, cp := range w.stored() {
			if _, err := w.content(cp); err != nil {
				want = append(want, cp.ID)
			}
		}
		for _, d := range rep.Damaged {
			got = append(got, d.Checkpoint)
			if len(d.Paths) == 0 {
				t.Errorf("checkpoint %s is damaged, but no path is", d.Checkpoint)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		must(t, os.WriteFile(w.path(p.Number), content, 0o600))
		w.packs.Release()
	}
	again, err := w.c.Verify(t.Context(), nil)
	must(t, err)
	if diff := cmp.Diff(whole, again); diff != "" {
		t.Error(diff)
	}
	one, err := w.c.Verify(t.Context(), ofSession(2))
	must(t, err)
	if one.Checkpoints != 2 || one.Packs > whole.Packs {
		t.Errorf("%+v", one)
	}
}

// on reports whether content is anywhere in the directory of packs. It finds content that cannot be
// compressed.
func (w *world) on(content string) bool {
	names, err := os.ReadDir(filepath.Join(w.dir, "packs"))
	must(w.t, err)
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(w.dir, "packs", n.Name()))
		must(w.t, err)
		if bytes.Contains(b, []byte(content)) {
			return true
		}
	}
	return false
}

// secret returns content that cannot be compressed.
func secret(seed byte) string {
	b := make([]byte, 3000)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return string(b)
}

// TestPurge: what only the purged session has is gone from the disk when Purge returns, also from packs that
// its fork needs and from packs in their grace; what the fork has stays.
func TestPurge(t *testing.T) {
	w := newWorld(t, Config{Rules: Rules{Count: 3}})
	w.create(1)
	w.present[1]["shared"], w.present[1]["early"] = secret(1), secret(2)
	w.turn(1)
	delete(w.present[1], "early")
	w.fork(2, w.newest(1))
	delete(w.present[2], "early")
	w.turn(2)
	for i := range 4 {
		w.present[1]["late"] = secret(byte(10 + i))
		w.turn(1)
	}
	w.hold(w.newest(1), true)
	_, err := w.c.Collect(t.Context(), false)
	must(t, err)
	for _, seed := range []byte{1, 2, 10, 13} {
		if !w.on(secret(seed)) {
			t.Fatalf("secret %d is not found before the purge", seed)
		}
	}
	mine := w.taken[w.newest(1).ID]["late"]
	err = w.c.Purge(t.Context(), func(cp journal.Checkpoint) bool {
		return cp.Session == session(1) || cp.Reason == holdfast.CheckpointFork
	})
	must(t, err)
	for _, seed := range []byte{2, 10, 11, 12, 13} {
		if w.on(secret(seed)) {
			t.Errorf("secret %d is left", seed)
		}
	}
	if w.on(mine) || !w.on(secret(1)) {
		t.Errorf("what the fork has: %v", w.on(secret(1)))
	}
	w.clean("after a purge")
	w.restores("after a purge")
	left := w.stored()
	if len(left) != 1 || left[0].Session != session(2) {
		t.Errorf("%d checkpoints are left", len(left))
	}
	if recorded := w.recorded(); len(recorded) != 1 || !recorded[left[0].ID] {
		t.Errorf("there are records of %v", recorded)
	}
}

// TestPurgeSaysWhatItCannotDo: a checkpoint in use, and a shared pack that cannot be replaced, are conflicts.
func TestPurgeSaysWhatItCannotDo(t *testing.T) {
	w := newWorld(t, Config{})
	w.create(1)
	w.present[1]["mine"] = secret(1)
	w.turn(1)
	w.fork(2, w.newest(1))
	mark := func(r journal.Restore) {
		c := journal.NewChange(session(2))
		c.Token = journal.Token(w.db.Epoch())
		c.Files = &journal.FilesChange{Restore: &r}
		_, err := w.db.Sessions.Commit(t.Context(), journal.Encoded{Change: c})
		must(t, err)
	}
	scope := session(2).Box()
	mark(journal.Restore{Scope: scope, Session: session(1), Checkpoint: w.newest(1).ID})
	if err := w.c.Purge(t.Context(), ofSession(1)); !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), string(w.newest(1).ID)) {
		t.Errorf("in use: %v", err)
	}
	w.restores("after a refused purge")
	mark(journal.Restore{Scope: scope})
	delete(w.present[2], "mine")
	for range 2 {
		w.turn(2)
	}
	cp := w.newest(2)
	must(t, os.Remove(w.path(own(cp, w.newest(1))[0])))
	err := w.c.Purge(t.Context(), func(cp journal.Checkpoint) bool {
		return cp.Session == session(1) || cp.Reason == holdfast.CheckpointFork
	})
	if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), "was kept with all its content") {
		t.Errorf("damaged: %v", err)
	}
}

// TestPurgeOfADamagedPack: a damaged pack that a fork needs too cannot be replaced, and the error names it.
func TestPurgeOfADamagedPack(t *testing.T) {
	w := newWorld(t, Config{})
	w.create(1)
	w.present[1]["mine"], w.present[1]["ours"] = secret(1), secret(2)
	w.turn(1)
	w.fork(2, w.newest(1))
	delete(w.present[2], "mine")
	w.turn(2)
	shared := w.newest(1).Packs[0]
	content, err := os.ReadFile(w.path(shared))
	must(t, err)
	bad := bytes.Clone(content)
	bad[bytes.Index(content, []byte(secret(2)))] ^= 1
	must(t, os.WriteFile(w.path(shared), bad, 0o600))
	purge := func() error {
		err := w.c.Purge(t.Context(), func(cp journal.Checkpoint) bool {
			return cp.Session == session(1) || cp.Reason == holdfast.CheckpointFork
		})
		return err
	}
	name := w.set([]int64{shared})[0].String()
	if err := purge(); !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(err.Error(), name) {
		t.Errorf("damaged: %v", err)
	}
	must(t, os.WriteFile(w.path(shared), content, 0o600))
	_, err = w.c.Verify(t.Context(), nil)
	must(t, err)
	w.restores("after the repair")
	if !w.on(secret(1)) {
		t.Error("the purged content is gone already")
	}
}
