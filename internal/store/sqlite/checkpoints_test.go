package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// taking is a change that stores the checkpoint of testFiles with its event.
func taking(n int, seq int64) journal.Encoded {
	e := appending(testID(n), []byte(`{}`), 1)
	e.Events[0].Type = holdfast.EventSnapshotTaken
	e.Files = testFiles(n, seq)
	return e
}

// TestVerifyNamesWhatIsWrongWithCheckpoints edits the tables of checkpoints behind the store's back.
func TestVerifyNamesWhatIsWrongWithCheckpoints(t *testing.T) {
	id := string(testCheckpoint(1, 1))
	whole := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: whole})
	commit(t, s, creation(testID(1)))
	c := taking(1, 1)
	c.Files.Restore = &journal.Restore{Scope: "w-x", Session: testID(1), Checkpoint: c.Files.Checkpoint.ID}
	pack := fmt.Sprint(commit(t, s, c).Packs[0])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]string{
		``:                                                      "",
		`UPDATE checkpoints SET seq = 3`:                        id + " of session " + string(testID(1)) + " is at event #3, but its log ends at event #2",
		`UPDATE checkpoints SET seq = 0`:                        "is at event #0",
		`UPDATE checkpoints SET session = 7`:                    id + " belongs to session number 7, which does not exist",
		`UPDATE checkpoints SET packs = x'09'`:                  "needs pack number 9, which does not exist",
		`UPDATE checkpoints SET packs = x'8000'`:                "list of packs cannot be decoded",
		`UPDATE checkpoints SET home = x'01'`:                   "has tree ids of 0 and 1 bytes",
		`DELETE FROM packs`:                                     "needs pack number " + pack + ", which does not exist",
		`UPDATE packs SET id = x'01'`:                           "pack number " + pack + " has an id of 1 bytes",
		`UPDATE packs SET bytes = 0`:                            "a size of 0",
		`UPDATE restores SET checkpoint = 'x'`:                  "the files of box w-x are being replaced by those of checkpoint x, which does not exist",
		`UPDATE restores SET session = 2`:                       "which does not exist",
		`DELETE FROM checkpoints`:                               "the files of box w-x are being replaced by those of checkpoint " + id,
		`DROP TABLE restores; CREATE TABLE restores (scope) `:   "no such column",
		`DROP TABLE packs; CREATE TABLE packs (number, bytes) `: "no such column",
	} {
		path := filepath.Join(t.TempDir(), "holdfast.db")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		db := plain(t, path)
		if _, err := db.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		db.Close()
		v, err := Verify(t.Context(), path)
		said := strings.Join(v.Problems, "\n")
		if err != nil || (said == "") != (change == "") || !strings.Contains(said, want) {
			t.Errorf("%s: %q, %v, want %q", change, said, err, want)
		}
	}
}

// TestNoPackIsDroppedThatACommitNeeds commits a checkpoint that lists a pack while others drop and mark
// the pack: either the commit is refused, or the pack stays and is not marked.
func TestNoPackIsDroppedThatACommitNeeds(t *testing.T) {
	s := openNew(t, Config{})
	commit(t, s, creation(testID(1)))
	for n := range int64(40) {
		added, err := s.AddPacks(t.Context(), []journal.Pack{{ID: fmt.Sprintf("%064x", n), Bytes: 1}})
		if err != nil {
			t.Fatal(err)
		}
		pack := []int64{added[0].Number}
		c := taking(1, 1)
		c.Files.Checkpoint.ID, c.Files.Checkpoint.Packs = testCheckpoint(1, n+1), pack
		c.Files.Packs = nil
		var wg sync.WaitGroup
		var committed, dropped, marked error
		wg.Go(func() { _, committed = s.Commit(t.Context(), c) })
		wg.Go(func() { dropped = s.DropPacks(t.Context(), pack) })
		wg.Go(func() { marked = s.MarkUnused(t.Context(), pack, time.Now()) })
		wg.Wait()
		left, err := s.Packs(t.Context(), pack)
		if err != nil || marked != nil {
			t.Fatal(err, marked)
		}
		taken := committed == nil && holdfast.IsKind(dropped, holdfast.KindConflict) && len(left) == 1 && left[0].Unused == nil
		gone := dropped == nil && holdfast.IsKind(committed, holdfast.KindConflict) && len(left) == 0
		if taken == gone {
			t.Fatalf("round %d: commit %v, drop %v, left %+v", n, committed, dropped, left)
		}
	}
}

// BenchmarkCommitCheckpoint is the latency of one commit of one event with its checkpoint, of a scope
// with a hundred packs and one new one; BenchmarkCommit is the same without the checkpoint.
func BenchmarkCommitCheckpoint(b *testing.B) {
	s := openBench(b)
	if _, err := s.Commit(b.Context(), creation(testID(1))); err != nil {
		b.Fatal(err)
	}
	var known []journal.Pack
	for n := range 100 {
		known = append(known, journal.Pack{ID: fmt.Sprintf("%064x", n), Bytes: 1})
	}
	known, err := s.AddPacks(b.Context(), known)
	if err != nil {
		b.Fatal(err)
	}
	var numbers []int64
	for _, p := range known {
		numbers = append(numbers, p.Number)
	}
	took := make([]time.Duration, 0, b.N)
	for seq := int64(1); b.Loop(); seq++ {
		c := appending(testID(1), payload, 1)
		c.Files = testFiles(1, seq)
		c.Files.Checkpoint.Packs = numbers
		start := time.Now()
		if _, err := s.Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	percentiles(b, took)
}

// BenchmarkCheckpointAt finds the checkpoint of an event among 10,000 of a session.
func BenchmarkCheckpointAt(b *testing.B) {
	s := openBench(b)
	if _, err := s.Commit(b.Context(), creation(testID(1))); err != nil {
		b.Fatal(err)
	}
	for seq := range int64(10_000) {
		if _, err := s.Commit(b.Context(), taking(1, seq+1)); err != nil {
			b.Fatal(err)
		}
	}
	for seq := int64(0); b.Loop(); seq++ {
		if _, ok, err := s.At(b.Context(), testID(1), 1+seq*37%10_000); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
