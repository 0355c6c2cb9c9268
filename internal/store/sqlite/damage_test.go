package sqlite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// warnings collects the warnings of a store.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) hear(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, err.Error())
}

// logsOf makes a closed database of two sessions and returns what they hold.
func logsOf(t *testing.T, path string, n int) (logs map[int][]holdfast.Event) {
	t.Helper()
	s, err := open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for id := 1; id <= 2; id++ {
		if _, err := s.Commit(t.Context(), creation(testID(id))); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			data := fmt.Appendf(nil, `{"content":"event %d of %d %s"}`, i, id, strings.Repeat("x", 150))
			if _, err := s.Commit(t.Context(), appending(testID(id), data, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Index.Settle(t.Context(), 10*time.Second)
	logs = map[int][]holdfast.Event{}
	for id := 1; id <= 2; id++ {
		if logs[id], err = s.Events(t.Context(), testID(id), 0, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return logs
}

// TestDamagedEventIsNamed: a damaged event is named in its place; all others are read
// as usual.
func TestDamagedEventIsNamed(t *testing.T) {
	for name, change := range map[string]string{
		"data":   `UPDATE events SET data = CAST(replace(CAST(data AS TEXT), 'x', 'y') AS BLOB)`,
		"json":   `UPDATE events SET data = x'00ff'`,
		"type":   `UPDATE events SET type = 'tool.unknown'`,
		"turn":   `UPDATE events SET turn = ''`,
		"agent":  `UPDATE events SET agent = 'a1'`,
		"time":   `UPDATE events SET at = at + 1`,
		"number": `UPDATE events SET sum = sum + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "holdfast.db")
			was := logsOf(t, path, 5)
			db := plain(t, path)
			if _, err := db.ExecContext(t.Context(), change+` WHERE id = ?`, 1<<32|3); err != nil {
				t.Fatal(err)
			}
			db.Close()
			var warned warnings
			s := openAt(t, Config{Path: path, Warn: warned.hear})
			for id, want := range was {
				got, err := s.Events(t.Context(), testID(id), 0, 1000)
				if err != nil || len(got) != len(want) {
					t.Fatalf("session %d: %d events, %v", id, len(got), err)
				}
				for i, e := range got {
					damaged := id == 1 && e.Seq == 3
					if damaged != (e.Type == holdfast.EventDamaged) || !damaged && !bytes.Equal(e.Data, want[i].Data) {
						t.Errorf("session %d #%d: %s %.60s", id, e.Seq, e.Type, e.Data)
					}
					if damaged && (e.Whole() == nil || e.Decode(&holdfast.UserMessage{}) == nil) {
						t.Errorf("#%d passes for a whole event", e.Seq)
					}
				}
			}
			place := fmt.Sprintf("event #3 of session %s", testID(1))
			if got := s.Damaged(); len(got) != 1 || got[0] != place || len(warned.said) != 1 {
				t.Errorf("damaged %q, warned %q", got, warned.said)
			}
			v, err := Verify(t.Context(), path)
			if err != nil || len(v.Problems) != 1 || !strings.Contains(v.Problems[0], place) || v.Events != 12 || v.Sessions != 2 {
				t.Errorf("%+v %v", v, err)
			}
		})
	}
}

// TestNoFlippedBitIsServedAsTruth flips bits all over a database, one at a time: either
// a log reads as it was written, or the damage is named.
func TestNoFlippedBitIsServedAsTruth(t *testing.T) {
	testkit.Long(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "holdfast.db")
	was := logsOf(t, path, 40)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	named, unsaid := 0, 0
	for range 300 {
		bit := rnd.IntN(len(whole) * 8)
		flipped := bytes.Clone(whole)
		flipped[bit/8] ^= 1 << (bit % 8)
		file := filepath.Join(dir, "flipped", "holdfast.db")
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		v, verr := Verify(t.Context(), file)
		found := verr != nil || len(v.Problems) > 0
		s, err := open(t.Context(), Config{Path: file, Warn: func(error) {}})
		if err != nil {
			named++
			continue
		}
		for id, want := range was {
			got, err := s.Events(t.Context(), testID(id), 0, 1000)
			if err == nil && len(got) != len(want) && !found {
				t.Errorf("bit %d: session %d has %d events of %d, and nobody says so", bit, id, len(got), len(want))
			}
			for _, e := range got {
				if e.Type == holdfast.EventDamaged {
					named++
				} else if w := want[min(e.Seq, int64(len(want)))-1]; !bytes.Equal(e.Data, w.Data) || e.Type != w.Type || e.Turn != w.Turn || !e.Time.Equal(w.Time) {
					t.Errorf("bit %d: #%d of session %d is served as %s %s", bit, e.Seq, id, e.Type, e.Data)
				}
			}
		}
		if !found {
			unsaid++
		}
		if err := s.Close(); err != nil {
			named++
		}
	}
	t.Logf("%d named while reading, %d of no consequence for a log", named, unsaid)
	if named == 0 {
		t.Error("no flip hit an event")
	}
}

// TestMissingLogIsNamed: the log of a killed server is missing.
func TestMissingLogIsNamed(t *testing.T) {
	for _, gone := range []bool{false, true} {
		path := killedServer(t)
		// A reader that only looks leaves the log in place.
		if v, err := Verify(t.Context(), path); err != nil || len(v.Problems) > 0 || v.Events < 50 {
			t.Errorf("%+v %v", v, err)
		}
		if gone {
			v, err := withoutLog(t, path)
			for tries := 0; len(v.Problems) > 1 && tries < 20; tries++ {
				// The server was copying the log to the database: without the log the file is damaged.
				path = killedServer(t)
				v, err = withoutLog(t, path)
			}
			if err != nil || len(v.Problems) != 1 || !strings.Contains(v.Problems[0], path+"-wal is missing") {
				t.Errorf("%+v %v", v, err)
			}
			// Had either look made a log, the next start would not miss it.
			f, err := OpenAudit(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil || db.HasLog(path) {
				t.Errorf("a look left a log: %v, %v", db.HasLog(path), err)
			}
		}
		var warned warnings
		s := openAt(t, Config{Path: path, Warn: warned.hear})
		if got := s.Damaged(); gone != (len(got) == 1 && strings.Contains(got[0], path+"-wal is missing")) || len(warned.said) != len(got) {
			t.Errorf("gone %v: %q, warned %q", gone, got, warned.said)
		}
		for range 2 { // and after a clean end none is missing
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s = openAt(t, Config{Path: path, Warn: warned.hear}); len(s.Damaged()) > 0 {
				t.Errorf("after a clean end: %q", s.Damaged())
			}
		}
	}
}

// killedServer returns the path of the database of a server that was killed.
func killedServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.db")
	p, killed := startChild(t, "append", path), false
	acked(p, func(n int) {
		// The tables must be in the file: without them it would be the one of an older release.
		if info, err := os.Stat(path); killed || n < 50 || err != nil || info.Size() < 64<<10 {
			return
		}
		if killed = true; p.Process.Kill() != nil {
			t.Error("the child was not killed")
		}
	})
	_ = p.Wait()
	return path
}

// withoutLog removes the log of a database, and verifies what is left.
func withoutLog(t *testing.T, path string) (Verified, error) {
	t.Helper()
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	return Verify(t.Context(), path)
}
