package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/store/sqlite/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notes is a store over a database that numbers texts from 1 on. It keeps them in the table
// facts.
type notes struct {
	*DB
	put *sql.Stmt
}

// openNotes opens a database that the test closes at its end at the latest. It uses at most one cleaner.
func openNotes(t testing.TB, cfg Config, cleaner ...Cleaner) *notes {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "holdfast.db")
	}
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { t.Errorf("warned: %v", err) }
	}
	n := &notes{}
	cfg.Schema = schema.Of
	d, err := Open(t.Context(), cfg, func(s *Setup) error {
		s.Write(&n.put, `INSERT INTO facts (name, value) VALUES (?,?)`)
		for _, c := range cleaner {
			s.Clean(c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n.DB = d
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// write adds a text under a number.
func (n *notes) write(ctx context.Context, number int, text string, admits bool) error {
	return n.Do(ctx, "note", &Op{Admits: admits, Weight: len(text), Apply: func(t *Tx) error {
		t.Pages += 1 + len(text)/PageSize
		_, err := n.put.ExecContext(t.Ctx, strconv.Itoa(number), text)
		return err
	}})
}

// check asserts that the texts from 1 to last are there, and none after them.
func (n *notes) check(t *testing.T, last int) {
	t.Helper()
	var count, most int
	row := n.Reads().QueryRowContext(t.Context(), `SELECT count(*), coalesce(max(CAST(name AS INTEGER)), 0) FROM facts`)
	if err := row.Scan(&count, &most); err != nil || count != last || most != last {
		t.Fatalf("%d notes up to %d, want %d: %v", count, most, last, err)
	}
}

// refuses asserts the read-only state: all writes are unavailable with the reason, reads
// as before.
func (n *notes) refuses(t *testing.T, last int) {
	t.Helper()
	err := n.Healthy()
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "read-only") || holdfast.HintOf(err) == "" {
		t.Fatalf("health: %v (hint %q)", err, holdfast.HintOf(err))
	}
	for range 3 {
		if got := n.write(t.Context(), last+1, "x", false); got != err {
			t.Fatalf("write: %v, health says %v", got, err)
		}
	}
	n.check(t, last)
}

// plain is a second connection to a database, as another program has it.
func plain(t testing.TB, path string) *sql.DB {
	t.Helper()
	cfg := Config{Path: path}
	cfg.defaults()
	db, err := sql.Open("sqlite", cfg.dsn())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestHZ17_FailedCommit injects the failure, so that it runs everywhere.
func TestHZ17_FailedCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	failed := make(chan error, 2)
	n := openNotes(t, Config{Path: path, Failed: func(err error) { failed <- err }})
	commits := 0
	n.writer.fault = func() error {
		if commits++; commits > 5 {
			return fmt.Errorf("fsync: %w", errFault)
		}
		return nil
	}
	last := 0
	for n.write(t.Context(), last+1, "x", false) == nil {
		last++
	}
	if last != 5 {
		t.Fatalf("%d writes were acknowledged", last)
	}
	n.refuses(t, last)
	if len(failed) != 1 || <-failed != n.Healthy() {
		t.Errorf("the server heard %d times that the disk failed", len(failed))
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = openNotes(t, Config{Path: path})
	n.check(t, last)
	if err := n.write(t.Context(), last+1, "x", false); err != nil {
		t.Fatal(err)
	}
}

// TestMembersFollowTheTransaction counts what a member hears.
func TestMembersFollowTheTransaction(t *testing.T) {
	var heard []string
	hear := func(what string) func() { return func() { heard = append(heard, what) } }
	d, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "holdfast.db"), Schema: schema.Of}, func(s *Setup) error {
		s.Join(Member{
			Begin:     func(*Tx) error { heard = append(heard, "begin"); return nil },
			Flush:     func(*Tx) error { heard = append(heard, "flush"); return nil },
			Committed: hear("committed"), Undone: hear("undone"), Forget: hear("forget"),
		})
		s.Join(Member{}) // all functions may be missing
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := strings.Join(heard, " "); got != "forget begin flush committed" {
		t.Errorf("the transaction that raises the epoch: heard %q", got)
	}
	refusal := holdfast.Errorf(holdfast.KindConflict, "test", "refused")
	for _, c := range []struct {
		name string
		op   *Op
		want string
		err  error
	}{
		{"the first", &Op{Apply: func(*Tx) error { return nil }}, "flush committed", nil},
		{"another", &Op{Apply: func(*Tx) error { return nil }}, "flush committed", nil},
		{"refused", &Op{Plan: func(*Tx) error { return refusal }}, "undone", refusal},
		{"failed", &Op{Apply: func(*Tx) error { return errors.New("failed") }}, "undone", errors.New("failed")},
	} {
		heard = nil
		err := d.Do(t.Context(), "test", c.op)
		if got := strings.Join(heard, " "); got != c.want || (err == nil) != (c.err == nil) {
			t.Errorf("%s: heard %q, %v, want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
	if _, err := plain(t, d.cfg.Path).ExecContext(t.Context(), `INSERT INTO facts (name, value) VALUES ('a', 'b')`); err != nil {
		t.Fatal(err)
	}
	heard = nil
	if err := d.Do(t.Context(), "test", &Op{Apply: func(*Tx) error { return nil }}); err != nil || strings.Join(heard, " ") != "forget flush committed" {
		t.Errorf("after a write by another program: %q, %v", heard, err)
	}
}
