package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
)

func auditLog(t testing.TB, s *opened) *audit.Log {
	t.Helper()
	key, err := audit.NewKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return audit.NewLog(audit.Config{Store: s, Key: key, Now: time.Now, Warn: func(err error) { t.Errorf("warned: %v", err) }})
}

// exported is the export of a store's chain, and what the verifier says of it.
func exported(t testing.TB, s *opened) ([]byte, error) {
	t.Helper()
	var b bytes.Buffer
	write, err := auditLog(t, s).Export(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), &b); err != nil {
		return b.Bytes(), err
	}
	_, err = audit.Verify(bytes.NewReader(b.Bytes()), audit.Options{})
	return b.Bytes(), err
}

// TestI25_NoCrashLeavesAGap kills a writing process again and again: each recorded
// event that is in a log has its record and its delivery and no other has one, the chain goes on
// over the crashes, and the next start signs what has no head.
func TestI25_NoCrashLeavesAGap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	for round := range 4 {
		p := startChild(t, "audit", path)
		newest, said := acked(p, func(n int) {
			if n == 100+300*round {
				if err := p.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		})
		_ = p.Wait()
		if len(said) > 0 || p.err.Len() > 0 {
			t.Fatalf("round %d: the child said %q %s", round, said, &p.err)
		}
		s := openAt(t, Config{Path: path})
		checkLogs(t, s, newest)
		if _, head, err := s.AuditLast(t.Context()); err != nil || head.N >= s.AuditTip().N {
			t.Fatalf("round %d: head %d, tip %d, %v", round, head.N, s.AuditTip().N, err)
		}
		l := auditLog(t, s)
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, head, err := s.AuditLast(t.Context()); err != nil || head.Link != s.AuditTip() {
			t.Fatalf("round %d: head %d, tip %d, %v", round, head.N, s.AuditTip().N, err)
		}
		data, err := exported(t, s)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		compareWithLogs(t, s, data)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// compareWithLogs asserts that records and recorded events are the same.
func compareWithLogs(t *testing.T, s *opened, export []byte) {
	t.Helper()
	recorded := map[string]bool{}
	for line := range bytes.Lines(export) {
		var r struct {
			N       int64
			Session string `json:"session_id"`
			Seq     int64
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.N > 0 {
			recorded[fmt.Sprint(r.Session, r.Seq)] = true
		}
	}
	n := 0
	for i := range 8 {
		for after := int64(0); ; {
			evs, err := s.Events(t.Context(), testID(i), after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if len(evs) == 0 {
				break
			}
			for _, e := range evs {
				after = e.Seq
				if _, ok := audit.Of(e.Type, e.Data); !ok {
					continue
				}
				if n++; !recorded[fmt.Sprint(e.Session, e.Seq)] {
					t.Fatalf("event #%d of %s has no record", e.Seq, e.Session)
				}
			}
		}
	}
	if n != len(recorded) || n < 50 {
		t.Fatalf("%d records of %d events", len(recorded), n)
	}
	var waiting int
	if err := s.all.db.Reads().QueryRowContext(t.Context(), `SELECT count(*) FROM outbox`).Scan(&waiting); err != nil || waiting != n {
		t.Fatalf("%d deliveries of %d events, %v", waiting, n, err)
	}
}

// TestAuditFollowsTheTransaction: a transaction that fails leaves the chain where
// it was, and the next one goes on from there.
func TestAuditFollowsTheTransaction(t *testing.T) {
	var told []int64
	s := openAt(t, Config{Path: filepath.Join(t.TempDir(), "holdfast.db"), Audited: func(n int64) { told = append(told, n) }})
	commit := func(typ holdfast.EventType) error {
		c := appending(testID(1), payload, 1)
		c.Events[0].Type = typ
		_, err := s.Commit(t.Context(), c)
		return err
	}
	if _, err := s.Commit(t.Context(), creation(testID(1))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := commit(holdfast.EventToolDenied); err != nil {
			t.Fatal(err)
		}
	}
	if err := commit(holdfast.EventNotice); err != nil {
		t.Fatal(err)
	}
	// The database refuses the transaction after it has a record.
	if _, err := plain(t, s.path).ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON audit
		BEGIN SELECT RAISE(ABORT, 'some failure'); END`); err != nil {
		t.Fatal(err)
	}
	if err := commit(holdfast.EventToolDenied); err == nil {
		t.Fatal("no error")
	}
	if _, err := plain(t, s.path).ExecContext(t.Context(), `DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	if tip := s.AuditTip().N; tip != 3 {
		t.Fatalf("tip %d after a failure", tip)
	}
	if err := commit(holdfast.EventToolDenied); err != nil {
		t.Fatal(err)
	}
	if _, err := exported(t, s); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(told) != "[1 2 3 4]" {
		t.Fatalf("told %v", told)
	}
}

// TestTheDatabaseEdited: what somebody does to the file behind the server shows.
func TestTheDatabaseEdited(t *testing.T) {
	for name, c := range map[string]struct{ sql, want string }{
		"a record":        {`UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'untrusted', 'very much') AS BLOB) WHERE n = 2`, "record 2: the record was changed"},
		"and its hash":    {`UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'untrusted', 'very much') AS BLOB), hash = zeroblob(32) WHERE n = 2`, "record 2: the record was changed"},
		"one removed":     {`DELETE FROM audit WHERE n = 2`, "record 2: the record is missing"},
		"the end removed": {`DELETE FROM audit WHERE n > 2`, "record 3: the chain ends at record 2, but a signed head names record 4"},
		"all removed":     {`DELETE FROM audit`, "record 1: the chain ends at record 0, but a signed head names record 4"},
	} {
		path := filepath.Join(t.TempDir(), "holdfast.db")
		s := openAt(t, Config{Path: path})
		for i := range 4 {
			if _, err := s.Commit(t.Context(), creation(testID(i))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := exported(t, s); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := db.ExecContext(t.Context(), c.sql); err != nil {
			t.Fatal(err)
		} else if n, err := res.RowsAffected(); n == 0 {
			t.Fatal("nothing was edited", err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s = openAt(t, Config{Path: path})
		if _, err := exported(t, s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		_ = s.Close()
	}
}

// BenchmarkAudit compares appends with and without the audit chain, a hundred of
// each in turn within one run, so that both meet the same machine. mixed is one
// recorded event of nine, as in a turn with one tool call (gate: cost ≤ 5 %); all
// is nothing but recorded events.
func BenchmarkAudit(b *testing.B) {
	for _, mix := range []struct {
		name  string
		every int
	}{{"mixed", 9}, {"all", 1}} {
		b.Run(mix.name, func(b *testing.B) { benchAudit(b, mix.every) })
	}
}

func benchAudit(b *testing.B, every int) {
	var stores [2]*opened
	for i := range stores {
		s, err := open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "holdfast.db"), noAudit: i == 0, Warn: func(err error) { b.Error(err) }})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		fill(b, s, 100)
		stores[i] = s
	}
	verdict, err := json.Marshal(holdfast.ToolDecision{ToolUseID: "toolu_01", Tool: "Bash", InputHash: strings.Repeat("0a", 32), By: "mode bypassPermissions"})
	if err != nil {
		b.Fatal(err)
	}
	// Each of 100 sessions appends what a turn does, one event at a time.
	round := func(s *opened) time.Duration {
		began := time.Now()
		done := make(chan error, 100)
		for i := range 100 {
			go func() {
				var err error
				for n := range 9 {
					c := appending(testID(i+1), payload, 1)
					if n%every == 0 {
						c.Events[0].Type, c.Data[0] = holdfast.EventToolAllowed, verdict
					}
					if _, e := s.Commit(b.Context(), c); e != nil {
						err = e
					}
				}
				done <- err
			}()
		}
		for range 100 {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began)
	}
	var took [2]time.Duration
	n := 0
	for b.Loop() {
		// Either is first as often as the other.
		for _, i := range [2]int{n % 2, 1 - n%2} {
			took[i] += round(stores[i])
		}
		n++
	}
	for i, unit := range []string{"without-appends/s", "with-appends/s"} {
		b.ReportMetric(float64(n*900)/took[i].Seconds(), unit)
	}
	b.ReportMetric(100*(took[1].Seconds()/took[0].Seconds()-1), "cost-%")
}
