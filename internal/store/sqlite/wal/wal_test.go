package wal

import (
	"bytes"
	"database/sql"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/libc"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
	"pgregory.net/rapid"
)

// openDB opens a database with settings, through this file system if ours is true.
func openDB(t *testing.T, path string, ours bool, pragmas ...string) *sql.DB {
	t.Helper()
	q := url.Values{}
	for _, p := range append([]string{"journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(0)"}, pragmas...) {
		q.Add("_pragma", p)
	}
	if ours {
		if err := Register(); err != nil {
			t.Fatal(err)
		}
		q.Set("vfs", Name)
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	c, err := sqlite.NewConnector(u.String())
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// script does what fills a log in many ways: small and large transactions, some that do not fit into SQLite's
// cache and so write to the log before they commit, rewrites of pages that are in the log, rollbacks, and
// checkpoints after which the log begins again.
func script(t *testing.T, db *sql.DB, seed uint64, visit func()) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	exec(t, db, `CREATE TABLE kv (k INTEGER PRIMARY KEY, v BLOB)`)
	for i := range 120 {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := []int{1, 1, 3, 40, 400}[r.IntN(5)]
		for range rows {
			if _, err := tx.ExecContext(t.Context(), `INSERT OR REPLACE INTO kv VALUES (?, ?)`, r.IntN(600), bytes.Repeat([]byte{byte(i)}, r.IntN(3000))); err != nil {
				t.Fatal(err)
			}
		}
		if r.IntN(8) == 0 {
			err = tx.Rollback()
		} else {
			err = tx.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		visit()
		if r.IntN(30) == 0 {
			exec(t, db, `PRAGMA wal_checkpoint(RESTART)`)
		}
	}
}

// TestAnotherConnectionReads: another connection, with SQLite's own file system, reads each transaction that was
// committed, and the database is whole after all of them.
func TestAnotherConnectionReads(t *testing.T) {
	for seed := range uint64(3) {
		path := filepath.Join(t.TempDir(), "db")
		db := openDB(t, path, true, "cache_size(20)")
		other := openDB(t, path, false, "query_only(1)")
		script(t, db, seed, func() {
			var here, there string
			for at, db := range map[*string]*sql.DB{&here: db, &there: other} {
				if err := db.QueryRowContext(t.Context(), `SELECT count(*) || ' ' || total(length(v)) || ' ' || total(k) FROM kv`).Scan(at); err != nil {
					t.Fatal(err)
				}
			}
			if here != there {
				t.Fatalf("the writer has %s, another connection %s", here, there)
			}
		})
		var ok string
		if err := db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&ok); err != nil || ok != "ok" {
			t.Errorf("%q, %v", ok, err)
		}
	}
}

// file is a log that a test opens as SQLite does.
type file struct {
	t    *testing.T
	tls  *libc.TLS
	at   uintptr
	path string
}

func openFile(t *testing.T) *file {
	t.Helper()
	if err := Register(); err != nil {
		t.Fatal(err)
	}
	f := &file{t: t, tls: libc.NewTLS(), path: filepath.Join(t.TempDir(), "x-wal")}
	// A log gets the mode of its database.
	if err := os.WriteFile(strings.TrimSuffix(f.path, "-wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// SQLite looks for parameters of a file after its name.
	name, err := libc.CString(f.path + "\x00\x00\x00")
	if err != nil {
		t.Fatal(err)
	}
	f.at = libc.Xcalloc(f.tls, 1, libc.Tsize_t(ours.FszOsFile))
	if rc := open(f.tls, address(&ours), name, f.at, lib.SQLITE_OPEN_WAL|lib.SQLITE_OPEN_READWRITE|lib.SQLITE_OPEN_CREATE, 0); rc != lib.SQLITE_OK {
		t.Fatalf("result %d", rc)
	}
	return f
}

func (f *file) methods() *lib.Tsqlite3_io_methods {
	return at[lib.Tsqlite3_io_methods](at[lib.Tsqlite3_file](f.at).FpMethods)
}

func (f *file) ok(rc int32) {
	f.t.Helper()
	if rc != lib.SQLITE_OK {
		f.t.Fatalf("result %d", rc)
	}
}

// TestAnyOrder: whatever the order of calls, reads, sizes and synced files are those of a file that is written at
// once. Writes go on where the last one ended, as those of a transaction, or elsewhere.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := openFile(t)
		m := f.methods()
		var want []byte
		end := 0
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			switch rapid.SampledFrom([]string{"next", "next", "next", "next", "elsewhere", "read", "truncate", "sync", "size"}).Draw(rt, "call") {
			case "next":
				end = f.write(m, &want, end, rapid.SampledFrom([]int{24, 4096, 70_000}).Draw(rt, "bytes"), rapid.Byte().Draw(rt, "byte"))
			case "elsewhere":
				end = f.write(m, &want, rapid.IntRange(0, len(want)).Draw(rt, "offset"), rapid.SampledFrom([]int{24, 4096}).Draw(rt, "bytes"), rapid.Byte().Draw(rt, "byte"))
			case "read":
				got := make([]byte, min(len(want), 5000))
				if len(got) > 0 {
					at := rapid.IntRange(0, len(want)-len(got)).Draw(rt, "offset")
					f.ok(function[rwFunc](m.FxRead)(f.tls, f.at, address(&got[0]), int32(len(got)), int64(at)))
					if !bytes.Equal(got, want[at:at+len(got)]) {
						rt.Fatalf("%d bytes at %d are not those that were written", len(got), at)
					}
				}
			case "truncate":
				// SQLite tells a size of 1 as 0.
				want = want[:rapid.IntRange(0, len(want)).Draw(rt, "size")&^1]
				f.ok(function[resizeFunc](m.FxTruncate)(f.tls, f.at, int64(len(want))))
			case "sync":
				f.ok(function[syncFunc](m.FxSync)(f.tls, f.at, lib.SQLITE_SYNC_NORMAL))
				f.holds(rt, want)
			case "size":
				var size int64
				f.ok(function[sizeFunc](m.FxFileSize)(f.tls, f.at, address(&size)))
				if size != int64(len(want)) {
					rt.Fatalf("%d bytes, want %d", size, len(want))
				}
			}
		}
		f.ok(function[closeFunc](m.FxClose)(f.tls, f.at))
		f.holds(rt, want)
	})
}

// write writes n bytes at an offset, to the file and to what is wanted of it. It returns where they end.
func (f *file) write(m *lib.Tsqlite3_io_methods, want *[]byte, offset, n int, b byte) (end int) {
	f.t.Helper()
	data := bytes.Repeat([]byte{b}, n)
	f.ok(function[rwFunc](m.FxWrite)(f.tls, f.at, address(&data[0]), int32(n), int64(offset)))
	if short := offset + n - len(*want); short > 0 {
		*want = append(*want, make([]byte, short)...)
	}
	return offset + copy((*want)[offset:], data)
}

func (f *file) holds(rt *rapid.T, want []byte) {
	if got, err := os.ReadFile(f.path); err != nil || !bytes.Equal(got, want) {
		rt.Fatalf("the file has %d bytes, and not the %d that were written (%v)", len(got), len(want), err)
	}
}

// TestOneCallForATransaction: the pages of a transaction are in the file only once it is synced.
func TestOneCallForATransaction(t *testing.T) {
	f := openFile(t)
	m := f.methods()
	var want []byte
	for end := range 20 {
		f.write(m, &want, end*4096, 4096, byte(end))
	}
	if info, err := os.Stat(f.path); err != nil || info.Size() != 0 {
		t.Errorf("%d bytes before the sync, %v", info.Size(), err)
	}
	f.ok(function[closeFunc](m.FxClose)(f.tls, f.at))
}

// TestAFailedWrite: a write that fails is an error of the call that had to make it, such as a sync, and is not tried again.
func TestAFailedWrite(t *testing.T) {
	f := openFile(t)
	m := f.methods()
	data := make([]byte, 4096)
	f.ok(function[rwFunc](m.FxWrite)(f.tls, f.at, address(&data[0]), 4096, -4096))
	if rc := function[syncFunc](m.FxSync)(f.tls, f.at, lib.SQLITE_SYNC_NORMAL); rc == lib.SQLITE_OK {
		t.Error("a sync after a write that failed succeeded")
	}
	f.ok(function[syncFunc](m.FxSync)(f.tls, f.at, lib.SQLITE_SYNC_NORMAL))
	f.ok(function[closeFunc](m.FxClose)(f.tls, f.at))
}

// TestLogsAreForgotten: a closed log keeps no memory.
func TestLogsAreForgotten(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "db"), true)
	exec(t, db, `CREATE TABLE t (x)`)
	if n := openLogs(); n != 1 {
		t.Errorf("%d logs are open", n)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if n := openLogs(); n != 0 {
		t.Errorf("%d logs are open after the close", n)
	}
}

func openLogs() (n int) {
	logs.Range(func(any, any) bool { n++; return true })
	return n
}
