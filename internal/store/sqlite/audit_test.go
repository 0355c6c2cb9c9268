package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
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
	write, err := auditLog(t, s).Export(t.Context(), "")
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
// event that is in a log has its record and its delivery and no other has one, and the chain of the
// next start names the last record of the killed one.
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
		l := auditLog(t, s)
		l.Start(t.Context())
		l.Close()
		if end, _, err := s.AuditEnd(t.Context(), math.MaxInt64); err != nil || end.Head.Link != s.AuditTip() {
			t.Fatalf("round %d: head %s, tip %s, %v", round, end.Head, s.AuditTip(), err)
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
		if r.N > 0 && r.Session != "" {
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
	if tip := s.AuditTip().N; tip != 4 {
		t.Fatalf("tip %d after a failure", tip)
	}
	if err := commit(holdfast.EventToolDenied); err != nil {
		t.Fatal(err)
	}
	if _, err := exported(t, s); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(told) != "[1 2 3 4 5]" {
		t.Fatalf("told %v", told)
	}
}

// TestTheDatabaseEdited expects that a change of the database, made while no server runs, is found by
// the export of the next server.
func TestTheDatabaseEdited(t *testing.T) {
	// Two starts have written a chain each: 1:1 to 1:5, and 2:1 to 2:5.
	const first, second = 1 << 40, 2 << 40
	for name, c := range map[string]struct{ sql, want string }{
		"a record": {
			fmt.Sprintf(`UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'untrusted', 'very much') AS BLOB) WHERE place = %d`, first|2),
			"record 1:2: the record was changed",
		},
		"and its hash": {
			fmt.Sprintf(`UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'untrusted', 'very much') AS BLOB), hash = zeroblob(32) WHERE place = %d`, first|2),
			"record 1:2: the record was changed",
		},
		"one removed":            {fmt.Sprintf(`DELETE FROM audit WHERE place = %d`, first|2), "record 1:2: the record is missing"},
		"the end removed":        {fmt.Sprintf(`DELETE FROM audit WHERE place > %d`, second|3), "record 2:4: the record is missing: a signed head names record 2:5"},
		"an earlier end removed": {fmt.Sprintf(`DELETE FROM audit WHERE place BETWEEN %d AND %d`, first|3, first|5), "record 1:3: the record is missing: record 2:1 names record 1:5"},
		"the last chain removed": {fmt.Sprintf(`DELETE FROM audit WHERE place > %d`, second), "record 2:1: the record is missing: a signed head names record 2:5"},
		"a whole chain removed":  {fmt.Sprintf(`DELETE FROM audit WHERE place < %d`, second), "record 1:5: chain 1 is missing: record 2:1 names this record of it"},
		"two swapped": {
			fmt.Sprintf(`UPDATE audit SET place = CASE place WHEN %d THEN -1 ELSE place END; UPDATE audit SET place = %d WHERE place = %d;
				UPDATE audit SET place = %d WHERE place = -1`, first|2, first|2, first|3, first|3),
			"record 1:2: the record is missing: record 1:3 follows record 1:1",
		},
		"a record added to an ended chain": {
			fmt.Sprintf(`INSERT INTO audit SELECT %d, hash, body FROM audit WHERE place = %d`, first|6, first|5),
			"record 1:6: the file has record 1:5 in the place of this record",
		},
		"all removed": {`DELETE FROM audit`, "record 2:1: the record is missing: a signed head names record 2:5"},
	} {
		path := filepath.Join(t.TempDir(), "holdfast.db")
		for start := range 2 {
			s := openAt(t, Config{Path: path})
			for i := range 4 {
				if _, err := s.Commit(t.Context(), creation(testID(10*start+i))); err != nil {
					t.Fatal(err)
				}
			}
			if start > 0 {
				if _, err := exported(t, s); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
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
		s := openAt(t, Config{Path: path})
		if _, err := exported(t, s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		_ = s.Close()
	}
}

// TestAStartWritesItsFirstRecordOrNothing makes the first record of a start fail: then the epoch is
// not raised either, so that the next start takes the same number, with its record.
func TestAStartWritesItsFirstRecordOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	epoch := s.Epoch()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := plain(t, path)
	if _, err := file.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON audit
		BEGIN SELECT RAISE(ABORT, 'some failure'); END`); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t.Context(), Config{Path: path}); err == nil {
		t.Fatal("the store opened without its first record")
	}
	if _, err := file.ExecContext(t.Context(), `DROP TRIGGER refuse`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, Config{Path: path})
	if s.Epoch() != epoch+1 || s.AuditTip().Place != (audit.Place{Chain: int64(epoch) + 1, N: 1}) {
		t.Fatalf("epoch %d after %d, first record %s", s.Epoch(), epoch, s.AuditTip())
	}
	if _, err := exported(t, s); err != nil {
		t.Fatal(err)
	}
}

// TestAKilledStartLeavesALinkedLog kills processes while they open the store and right after it.
// Each epoch that was raised has its chain, and all chains are linked.
func TestAKilledStartLeavesALinkedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for range 12 {
		p := startChild(t, "audit", path)
		<-time.After(time.Duration(rnd.IntN(60)) * time.Millisecond)
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
	}
	s := openAt(t, Config{Path: path})
	if _, err := exported(t, s); err != nil {
		t.Fatal(err)
	}
	var begun uint64
	row := s.all.db.Reads().QueryRowContext(t.Context(), `SELECT count(*) FROM audit WHERE place & 0xffffffffff = 1`)
	if err := row.Scan(&begun); err != nil || begun != s.Epoch() {
		t.Fatalf("%d chains of %d starts, %v", begun, s.Epoch(), err)
	}
}

// TestTheOldChainIsChain0 opens a database of the release before chains had numbers: its records are
// chain 0, which the first new chain names, and its heads stay valid.
func TestTheOldChainIsChain0(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	s := openAt(t, Config{Path: path})
	epoch := s.Epoch()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := plain(t, path)
	p, err := schema.Of(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(t.Context(), 19); err != nil {
		t.Fatal(err)
	}
	if _, err := file.ExecContext(t.Context(), `DELETE FROM audit`); err != nil {
		t.Fatal(err)
	}
	var old audit.Link
	key, err := audit.NewKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r := old.Next(audit.Entry{Time: time.Now(), Type: holdfast.EventToolDenied, Session: testID(i), Seq: 1, Data: []byte(`{}`)})
		if _, err := file.ExecContext(t.Context(), `INSERT INTO audit (n, hash, body) VALUES (?,?,?)`, r.N, r.Hash[:], r.Body); err != nil {
			t.Fatal(err)
		}
		old = r.Link
		if i != 2 {
			continue
		}
		h := key.Sign(old, time.Now())
		if _, err := file.ExecContext(t.Context(), `INSERT INTO audit_heads (n, hash, at, signature) VALUES (?,?,?,?)`,
			h.N, h.Hash[:], h.Time.UnixMilli(), h.Signature); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenAudit(t.Context(), path); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Fatalf("the log of an older release opened for reading: %v, %v", f, err)
	}
	s = openAt(t, Config{Path: path})
	data, err := exported(t, s)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := audit.Verify(bytes.NewReader(data), audit.Options{Known: &old})
	if err != nil || rep.Records != 6 || rep.Chains != 2 || rep.Heads != 2 || rep.First != (audit.Place{N: 1}) ||
		rep.Last != (audit.Place{Chain: int64(epoch) + 1, N: 1}) {
		t.Fatalf("%+v, %v", rep, err)
	}
	if err := audit.Check(t.Context(), s, key); err != nil {
		t.Fatal(err)
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
