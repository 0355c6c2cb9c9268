package db

import (
	"database/sql"
	"strings"
	"testing"
)

// TestSettingsHoldOnEveryConnection asks all connections of all pools, held at
// the same time: settings that are not in the DSN reach one of them only.
func TestSettingsHoldOnEveryConnection(t *testing.T) {
	s := openNotes(t, Config{Readers: 3})
	conns := map[string]*sql.Conn{"writer": s.writer.conn}
	for name, db := range map[string]*sql.DB{"side": s.sideDB, "read 1": s.readDB, "read 2": s.readDB, "read 3": s.readDB} {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[name] = c
	}
	for name, c := range conns {
		want := map[string]string{
			"journal_mode": "wal", "synchronous": "2", "busy_timeout": "10000", "foreign_keys": "1",
			"wal_autocheckpoint": "0", "temp_store": "2", "trusted_schema": "0", "mmap_size": "0", "query_only": "0",
		}
		switch {
		case strings.HasPrefix(name, "read"):
			want["query_only"] = "1"
		case name == "side":
			want["busy_timeout"] = "50"
		}
		for pragma, v := range want {
			var got string
			if err := c.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil {
				t.Fatal(name, pragma, err)
			}
			if got != v {
				t.Errorf("%s: %s is %s, want %s", name, pragma, got, v)
			}
		}
	}
	if _, err := conns["read 2"].ExecContext(t.Context(), `DELETE FROM server`); err == nil {
		t.Error("a reader can write")
	}
}
