package sqlite

import (
	"context"
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
// was written.
func checkLogs(t *testing.T, s *Store, newest map[int]int64) {
	t.Helper()
	for session, seq := range newest {
		id := testID(session)
		head, err := s.Head(t.Context(), id)
		if err != nil || head < seq {
			t.Fatalf("session %d: #%d was acknowledged, the log ends at #%d (%v)", session, seq, head, err)
		}
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
			}
		}
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
		_, err := Open(t.Context(), Config{Path: path})
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
	if _, err := Open(t.Context(), Config{Path: path}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("twice in one process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openAt(t, Config{Path: path})
}

func TestHZ3_ALockWithoutAPID(t *testing.T) {
	dir := t.TempDir()
	f, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	_, err = lockDir(t.Context(), dir)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "another process") || holdfast.HintOf(err) == "" {
		t.Fatal(err)
	}
}

// refusesWrites asserts the read-only state: all writes unavailable with the
// reason, reads as before.
func refusesWrites(t *testing.T, s *Store, id holdfast.SessionID) {
	t.Helper()
	err := s.Healthy()
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "read-only") || holdfast.HintOf(err) == "" {
		t.Fatalf("health: %v (hint %q)", err, holdfast.HintOf(err))
	}
	head, herr := s.Head(t.Context(), id)
	if herr != nil {
		t.Fatalf("reading: %v", herr)
	}
	for range 3 {
		if _, got := s.Commit(t.Context(), appending(id, []byte("1"), 1)); got != err {
			t.Fatalf("commit: %v, health says %v", got, err)
		}
	}
	if err := s.DeleteSession(t.Context(), id); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("delete: %v", err)
	}
	if now, err := s.Head(t.Context(), id); err != nil || now != head {
		t.Fatalf("head %d, was %d, %v", now, head, err)
	}
}

// fillUp appends until the store refuses and returns the last acknowledged number.
func fillUp(t *testing.T, s *Store, id holdfast.SessionID) int64 {
	t.Helper()
	done, err := s.Commit(t.Context(), creation(id))
	if err != nil {
		t.Fatal(err)
	}
	last := done.Row.LastSeq
	for range 10_000 {
		data := fmt.Appendf(nil, `{"seq":%d,"pad":%q}`, last+1, strings.Repeat("y", 20_000))
		if done, err = s.Commit(t.Context(), appending(id, data, 1)); err != nil {
			if !holdfast.IsKind(err, holdfast.KindUnavailable) {
				t.Fatalf("commit: %v", err)
			}
			return last
		}
		last = done.Row.LastSeq
	}
	t.Fatal("the disk does not get full")
	return 0
}

func reopenHealthy(t *testing.T, path string, last int64) {
	t.Helper()
	s := openAt(t, Config{Path: path})
	checkLogs(t, s, map[int]int64{1: last})
	if _, err := s.Commit(context.WithoutCancel(t.Context()), appending(testID(1), []byte("1"), 1)); err != nil {
		t.Fatal(err)
	}
}

// TestHZ17_FailedCommit injects the failure, so that it runs everywhere.
func TestHZ17_FailedCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	failed := make(chan error, 2)
	s := openAt(t, Config{Path: path, Failed: func(err error) { failed <- err }})
	n := 0
	s.commitFault = func() error {
		if n++; n > 5 {
			return fmt.Errorf("fsync: %w", errFault)
		}
		return nil
	}
	last := fillUp(t, s, testID(1))
	if last != 5 {
		t.Fatalf("#%d was acknowledged", last)
	}
	refusesWrites(t, s, testID(1))
	if len(failed) != 1 || <-failed != s.Healthy() {
		t.Errorf("the server heard %d times that the disk failed", len(failed))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reopenHealthy(t, path, last)
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
