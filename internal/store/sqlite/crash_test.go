package sqlite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// acked reads a child's acknowledgements until it ends; told is called for each.
func acked(p *process, told func(n int)) (newest map[int]int64, said []string) {
	newest = make(map[int]int64)
	for n := 1; ; n++ {
		line := p.line()
		if line == "" {
			return newest, said
		}
		var session int
		var seq int64
		if _, err := fmt.Sscanf(line, "%d %d", &session, &seq); err != nil {
			said = append(said, line)
			continue
		}
		newest[session] = max(newest[session], seq)
		if told != nil {
			told(n)
		}
	}
}

// checkLogs asserts that all that was acknowledged is there, dense, and as it
// was written, and that the checkpoints are exactly those that the logs record.
func checkLogs(t *testing.T, s *opened, newest map[int]int64) {
	t.Helper()
	for session, seq := range newest {
		id := testID(session)
		head, err := s.Head(t.Context(), id)
		if err != nil || head < seq {
			t.Fatalf("session %d: #%d was acknowledged, the log ends at #%d (%v)", session, seq, head, err)
		}
		recorded := 0
		for after := int64(0); after < head; {
			evs, err := s.Events(t.Context(), id, after, 1000)
			if err != nil || len(evs) == 0 {
				t.Fatalf("session %d after #%d: %d events, %v", session, after, len(evs), err)
			}
			for _, e := range evs {
				if after++; e.Seq != after {
					t.Fatalf("session %d: #%d where #%d was expected", session, e.Seq, after)
				}
				if after > 1 && !strings.HasPrefix(string(e.Data), fmt.Sprintf(`{"seq":%d,`, after)) {
					t.Fatalf("session %d: #%d holds %.40s", session, after, e.Data)
				}
				if e.Type == holdfast.EventSnapshotTaken {
					recorded++
					checkCheckpoint(t, s, session, after)
				}
			}
		}
		if n := stored(t, s, id); n != recorded {
			t.Fatalf("session %d has %d checkpoints, its log records %d", session, n, recorded)
		}
	}
}

// checkCheckpoint asserts that the checkpoint of an event is stored, with its pack.
func checkCheckpoint(t *testing.T, s *opened, session int, seq int64) {
	t.Helper()
	cp, err := s.Checkpoint(t.Context(), testID(session), testCheckpoint(session, seq))
	if err != nil || cp.Seq != seq {
		t.Fatalf("session %d: checkpoint of #%d: %+v, %v", session, seq, cp, err)
	}
	packs, err := s.Packs(t.Context(), cp.Packs)
	if err != nil || len(packs) != 1 || packs[0].ID != testFiles(session, seq).Packs[0].ID {
		t.Fatalf("session %d: packs of #%d: %+v, %v", session, seq, packs, err)
	}
}

// stored returns the number of checkpoints of a session.
func stored(t *testing.T, s *opened, id holdfast.SessionID) (n int) {
	t.Helper()
	for before := (journal.Place{}); ; {
		page, err := s.Checkpoints(t.Context(), id, before, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return n
		}
		n, before = n+len(page), page[len(page)-1].Place()
	}
}

// TestHZ17_NothingAcknowledgedIsLostInACrash kills a writing process at random
// moments, again and again on the same file.
func TestHZ17_NothingAcknowledgedIsLostInACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(uint64(seed), 0))
	all := make(map[int]int64)
	epoch := uint64(0)
	for round := range 8 {
		p := startChild(t, "append", path)
		after := 1 + rnd.IntN(1500)
		newest, said := acked(p, func(n int) {
			if n == after {
				if err := p.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		})
		_ = p.Wait()
		if len(said) > 0 || p.err.Len() > 0 {
			t.Fatalf("round %d: the child said %q %s", round, said, &p.err)
		}
		for session, seq := range newest {
			if seq <= all[session] {
				t.Fatalf("round %d: session %d went back to #%d", round, session, seq)
			}
			all[session] = seq
		}
		if round%3 < 2 {
			continue // the next child recovers by itself
		}
		s := openAt(t, Config{Path: path})
		checkLogs(t, s, all)
		if s.Epoch() <= epoch {
			t.Fatalf("epoch %d after %d", s.Epoch(), epoch)
		}
		epoch = s.Epoch()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if s := openAt(t, Config{Path: path}); len(all) != 8 {
		t.Fatalf("%d sessions", len(all))
	} else {
		checkLogs(t, s, all)
	}
}

// TestHZ3_ASecondServerNamesTheFirst: the lock outlives a stopped process and
// ends with a killed one.
func TestHZ3_ASecondServerNamesTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	p := startChild(t, "hold", path)
	if got := p.line(); got != "ready" {
		t.Fatalf("child: %q %s", got, &p.err)
	}
	refused := func(state string) {
		t.Helper()
		_, err := open(t.Context(), Config{Path: path})
		pid := strconv.Itoa(p.Process.Pid)
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "process "+pid) {
			t.Fatalf("%s: %v", state, err)
		}
		if holdfast.KindOf(err).ExitCode() != 6 || !strings.Contains(holdfast.HintOf(err), pid) {
			t.Fatalf("%s: exit %d, hint %q", state, holdfast.KindOf(err).ExitCode(), holdfast.HintOf(err))
		}
	}
	refused("running")
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	refused("stopped")
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	s := openAt(t, Config{Path: path})
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "lock")); err != nil || string(b) != fmt.Sprintln(os.Getpid()) {
		t.Errorf("lock file %q, %v", b, err)
	}
	if _, err := open(t.Context(), Config{Path: path}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("twice in one process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openAt(t, Config{Path: path})
}

// TestHZ17_FileSizeLimit meets a real write error without privileges.
func TestHZ17_FileSizeLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	p := startChild(t, "fsize", path)
	newest, said := acked(p, nil)
	if err := p.Wait(); err != nil || p.err.Len() > 0 {
		t.Fatalf("child: %v %s", err, &p.err)
	}
	if len(newest) == 0 || len(said) != 8 {
		t.Fatalf("%d sessions, said %q", len(newest), said)
	}
	for _, line := range said {
		if strings.Count(line, "read-only") != 2 {
			t.Errorf("said %q", line)
		}
	}
	s := openAt(t, Config{Path: path})
	checkLogs(t, s, newest)
}
